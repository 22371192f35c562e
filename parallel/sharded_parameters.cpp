#include "parallel/sharded_parameters.h"

namespace annulus {

ShardedParameters::ShardedParameters(Device& device, Transport& transport, DType dtype,
                                     std::vector<ParameterUnit> units, Stream stream)
    : device_(device),
      transport_(transport),
      dtype_(dtype),
      units_(std::move(units)),
      gathered_(units_.size()),
      open_gradients_(units_.size()) {
  for (const ParameterUnit& unit : units_) {
    const Shape shape{unit.shard_elements(transport.size())};
    ParameterShard shard{.master = device.allocate(shape, DType::float32, Purpose::optimizer),
                         .moment1 = device.allocate(shape, DType::float32, Purpose::optimizer),
                         .moment2 = device.allocate(shape, DType::float32, Purpose::optimizer),
                         .gradient = device.allocate(shape, DType::float32, Purpose::gradients),
                         .rounded = {},
                         .parts = parts_in_shard(unit, transport.rank(), transport.size())};
    if (dtype != DType::float32) shard.rounded = device.allocate(shape, dtype, Purpose::parameters);
    for (const View& zeroed : {shard.master.view(), shard.moment1.view(), shard.moment2.view(), shard.weights()}) {
      device.fill_zero(zeroed, stream);
    }
    shards_.push_back(std::move(shard));
  }
}

View ShardedParameters::rank_part(const View& flat, size_t unit, int rank) const {
  const int64_t part = units_[unit].shard_elements(transport_.size());
  return flat.slice(rank * part, (rank + 1) * part);
}

void ShardedParameters::prefetch(size_t unit, Stream stream) {
  if (transport_.size() == 1 || gathered_[unit]) return;
  const Shape shape{units_[unit].shard_elements(transport_.size()) * transport_.size()};
  Gathered gathered{device_.allocate(shape, dtype_, Purpose::parameters), {}};
  const View& own = shards_[unit].weights();
  device_.copy(rank_part(gathered.flat, unit, transport_.rank()), own, stream);
  std::vector<Message> sends, receives;
  for (int distance = 1; distance < transport_.size(); ++distance) {  // no two ranks begin with the same peer
    const int to = (transport_.rank() + distance) % transport_.size();
    const int from = (transport_.rank() - distance + transport_.size()) % transport_.size();
    sends.push_back({to, own});
    receives.push_back({from, rank_part(gathered.flat, unit, from)});
  }
  gathered.request = transport_.exchange(sends, receives, Channel::parameters, stream);
  gathered_[unit] = std::move(gathered);
}

View ShardedParameters::weights(size_t unit, Stream stream) {
  if (transport_.size() == 1) return shards_[unit].weights();
  prefetch(unit, stream);
  gathered_[unit]->request.wait(stream);
  return gathered_[unit]->flat;
}

void ShardedParameters::drop(size_t unit) {
  gathered_[unit].reset();
}

void ShardedParameters::clear_gradients(Stream stream) {
  for (const ParameterShard& shard : shards_) device_.fill_zero(shard.gradient, stream);
}

View ShardedParameters::gradient(size_t unit, Stream stream) {
  if (transport_.size() == 1) return shards_[unit].gradient;
  const Shape shape{units_[unit].shard_elements(transport_.size()) * transport_.size()};
  open_gradients_[unit] = device_.allocate(shape, DType::float32, Purpose::gradients);
  device_.fill_zero(open_gradients_[unit], stream);
  return open_gradients_[unit];
}

void ShardedParameters::reduce(size_t unit, Stream stream) {
  if (transport_.size() == 1) return;
  finish_gradients(stream);
  const int64_t part = units_[unit].shard_elements(transport_.size());
  Reduction reduction{unit,
                      std::move(open_gradients_[unit]),
                      device_.allocate({transport_.size() - 1, part}, DType::float32, Purpose::communication),
                      {}};
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

void ShardedParameters::finish_gradients(Stream stream) {
  if (!reduction_) return;
  Reduction done = std::exchange(reduction_, std::nullopt).value();
  done.request.wait(stream);
  for (int rank = 0; rank < transport_.size(); ++rank) {  // the order of ranks, whoever came first
    const int distance = (transport_.rank() - rank + transport_.size()) % transport_.size();
    const View part =
        distance == 0 ? rank_part(done.flat, done.unit, rank) : done.received->slice(distance - 1, distance).flat();
    device_.accumulate(shards_[done.unit].gradient, part, stream);
  }
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
