#include "parallel/sharded_parameters.h"

#include <algorithm>

namespace annulus {

ShardedParameters::ShardedParameters(Device& device, Transport& transport, DType dtype,
                                     std::vector<ParameterUnit> units, const ParameterPlaces& places, Stream stream)
    : device_(device),
      transport_(transport),
      dtype_(dtype),
      units_(std::move(units)),
      gathered_(units_.size()),
      open_gradients_(units_.size()),
      gradient_began_(units_.size()) {
  const bool master_serves = dtype == DType::float32 && places.weights == places.optimizer;
  for (const ParameterUnit& unit : units_) {
    const int64_t elements = unit.shard_elements(transport.size());
    const auto make = [&](Place place, DType type, Purpose purpose) {
      return ShardTensor(device, place, elements, type, purpose, stream);
    };
    ParameterShard shard{.master = make(places.optimizer, DType::float32, Purpose::optimizer),
                         .moment1 = make(places.optimizer, DType::float32, Purpose::optimizer),
                         .moment2 = make(places.optimizer, DType::float32, Purpose::optimizer),
                         .gradient = make(places.gradients, DType::float32, Purpose::gradients),
                         .rounded = {},
                         .parts = parts_in_shard(unit, transport.rank(), transport.size())};
    if (!master_serves) shard.rounded = make(places.weights, dtype, Purpose::parameters);
    shards_.push_back(std::move(shard));
  }
}

View ShardedParameters::rank_part(const View& flat, size_t unit, int rank) const {
  const int64_t part = units_[unit].shard_elements(transport_.size());
  return flat.slice(rank * part, (rank + 1) * part);
}

void ShardedParameters::prefetch(size_t unit, Stream stream) {
  const ShardTensor& own = shards_[unit].weights();
  if (gathered_[unit] || (alone() && own.resident())) return;
  const Shape shape{units_[unit].shard_elements(transport_.size()) * transport_.size()};
  Gathered gathered{device_.allocate(shape, dtype_, Purpose::parameters), {}, {}};
  const View part = rank_part(gathered.flat, unit, transport_.rank());
  if (own.resident()) {
    device_.copy(part, own.view(), stream);
    exchange_weights(gathered, unit, stream);
  } else {
    gathered.loaded = own.load(part, 0, stream);
  }
  gathered_[unit] = std::move(gathered);
}

void ShardedParameters::exchange_weights(Gathered& gathered, size_t unit, Stream stream) {
  std::vector<Message> sends, receives;
  for (int distance = 1; distance < transport_.size(); ++distance) {  // no two ranks begin with the same peer
    const int to = (transport_.rank() + distance) % transport_.size();
    const int from = (transport_.rank() - distance + transport_.size()) % transport_.size();
    sends.push_back({to, rank_part(gathered.flat, unit, transport_.rank())});
    receives.push_back({from, rank_part(gathered.flat, unit, from)});
  }
  gathered.request = transport_.exchange(sends, receives, Channel::parameters, stream);
}

View ShardedParameters::weights(size_t unit, Stream stream) {
  const ShardTensor& own = shards_[unit].weights();
  if (alone() && own.resident()) return own.view();
  prefetch(unit, stream);
  Gathered& gathered = *gathered_[unit];
  if (!own.resident()) {
    gathered.loaded.wait(stream);
    exchange_weights(gathered, unit, stream);
  }
  gathered.request.wait(stream);
  return gathered.flat;
}

void ShardedParameters::drop(size_t unit) {
  gathered_[unit].reset();
}

void ShardedParameters::clear_gradients(Stream stream) {
  std::fill(gradient_began_.begin(), gradient_began_.end(), false);
  for (const ParameterShard& shard : shards_) {
    if (shard.gradient.resident()) device_.fill_zero(shard.gradient.view(), stream);
  }
}

// What a gradient in storage is added to: what it was so far, or zero.
Transfer ShardedParameters::begin_gradient(const View& gradient, size_t unit, Stream stream) {
  if (gradient_began_[unit]) return shards_[unit].gradient.load(gradient, 0, stream);
  gradient_began_[unit] = true;
  device_.fill_zero(gradient, stream);
  return {};
}

View ShardedParameters::gradient(size_t unit, Stream stream) {
  const ShardTensor& own = shards_[unit].gradient;
  if (alone() && own.resident()) return own.view();
  const Shape shape{units_[unit].shard_elements(transport_.size()) * transport_.size()};
  open_gradients_[unit] = device_.allocate(shape, DType::float32, Purpose::gradients);
  if (alone()) {
    begin_gradient(open_gradients_[unit], unit, stream).wait(stream);
  } else {
    device_.fill_zero(open_gradients_[unit], stream);
  }
  return open_gradients_[unit];
}

void ShardedParameters::reduce(size_t unit, Stream stream) {
  const ShardTensor& own = shards_[unit].gradient;
  if (alone()) {
    if (!own.resident()) store_gradient(unit, std::move(open_gradients_[unit]), stream);
    return;
  }
  finish_reduction(stream);
  const int64_t part = own.elements();
  Reduction reduction{
      .unit = unit,
      .flat = std::move(open_gradients_[unit]),
      .received = device_.allocate({transport_.size() - 1, part}, DType::float32, Purpose::communication),
      .sum = {},
      .loaded = {},
      .request = {}};
  if (!own.resident()) {
    reduction.sum = device_.allocate({part}, DType::float32, Purpose::gradients);
    reduction.loaded = begin_gradient(reduction.sum, unit, stream);
  }
  std::vector<Message> sends, receives;
  for (int distance = 1; distance < transport_.size(); ++distance) {
    const int to = (transport_.rank() + distance) % transport_.size();
    const int from = (transport_.rank() - distance + transport_.size()) % transport_.size();
    sends.push_back({to, rank_part(reduction.flat, unit, to)});
    receives.push_back({from, reduction.received->slice(distance - 1, distance).flat()});
  }
  reduction.request = transport_.exchange(sends, receives, Channel::gradients, stream);
  reduction_ = std::move(reduction);
}

void ShardedParameters::finish_reduction(Stream stream) {
  if (!reduction_) return;
  Reduction done = std::exchange(reduction_, std::nullopt).value();
  done.request.wait(stream);
  done.loaded.wait(stream);
  const ShardTensor& own = shards_[done.unit].gradient;
  const View sum = own.resident() ? own.view() : done.sum.view();
  for (int rank = 0; rank < transport_.size(); ++rank) {  // the order of ranks, whoever came first
    const int distance = (transport_.rank() - rank + transport_.size()) % transport_.size();
    const View part =
        distance == 0 ? rank_part(done.flat, done.unit, rank) : done.received->slice(distance - 1, distance).flat();
    device_.accumulate(sum, part, stream);
  }
  if (!own.resident()) store_gradient(done.unit, std::move(done.sum), stream);
}

void ShardedParameters::store_gradient(size_t unit, Tensor gradient, Stream stream) {
  stored_.transfer.wait(stream);
  stored_ = {};  // gives its memory back before the next one is kept
  stored_.gradient = std::move(gradient);
  stored_.transfer = shards_[unit].gradient.store(0, stored_.gradient, stream);
}

void ShardedParameters::finish_gradients(Stream stream) {
  finish_reduction(stream);
  stored_.transfer.wait(stream);
  stored_ = {};
}

void gather_rows(const View& values, Transport& transport, Stream stream) {
  std::vector<Message> sends, receives;
  for (int peer = 0; peer < transport.size(); ++peer) {
    if (peer == transport.rank()) continue;
    sends.push_back({peer, values.slice(transport.rank(), transport.rank() + 1)});
    receives.push_back({peer, values.slice(peer, peer + 1)});
  }
  transport.exchange(sends, receives, Channel::scalars, stream).wait(stream);
}

}  // namespace annulus
