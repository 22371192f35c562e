#include "parallel/ring_attention.h"

#include <array>

namespace annulus {
namespace {

// Room for the keys and values (or their gradients) that pass by in one step; slices of it fill from the front.
struct KeyBuffer {
  Tensor key, value;  // (rows, kv_heads, head_dim)

  KeyBuffer(Device& device, const Shape& shape, DType dtype)
      : key(device.allocate(shape, dtype, Purpose::communication)),
        value(device.allocate(shape, dtype, Purpose::communication)) {}
};

// `rows` of a global array, as they lie one after the other in a buffer that holds only them.
std::vector<KeySlice> packed_slices(const KeyBuffer& buffer, std::span<const Chunk> rows) {
  std::vector<KeySlice> slices;
  int64_t begin = 0;
  for (const Chunk& chunk : rows) {
    const int64_t end = begin + chunk.rows();
    slices.push_back({buffer.key->slice(begin, end), buffer.value->slice(begin, end), chunk.begin});
    begin = end;
  }
  return slices;
}

// `rows` of a global array, as they lie in this rank's part of it.
std::vector<KeySlice> local_slices(const View& key, const View& value, const RingSchedule& schedule,
                                   std::span<const Chunk> rows) {
  std::vector<KeySlice> slices;
  for (const Chunk& chunk : rows) {
    const int64_t begin = schedule.local_row(chunk.begin);
    const int64_t end = begin + chunk.rows();
    slices.push_back({key.slice(begin, end), value.slice(begin, end), chunk.begin});
  }
  return slices;
}

std::vector<Message> messages(int peer, std::span<const KeySlice> slices) {
  std::vector<Message> list;
  for (const KeySlice& slice : slices) {
    list.push_back({peer, slice.key});
    list.push_back({peer, slice.value});
  }
  return list;
}

std::vector<KeyGradientSlice> as_gradients(std::span<const KeySlice> slices) {
  std::vector<KeyGradientSlice> gradients;
  for (const KeySlice& slice : slices) gradients.push_back({slice.key, slice.value});
  return gradients;
}

// The keys of the other ranks passing by: posts step d+1 before step d is used, in two buffers by turns.
class PassingKeys {
 public:
  PassingKeys(Device& device, Transport& transport, const Mesh& mesh, const View& key, const View& value,
              const LocalMask& mask)
      : transport_(transport), mesh_(mesh), key_(key), value_(value), schedule_(mask.schedule) {
    requests_.resize(schedule_.steps().size());
    for (size_t i = 0; i < std::min<size_t>(2, schedule_.steps().size()); ++i) {
      buffers_.emplace_back(device, key.shape().with_rows(mask.most_passing), key.dtype());
    }
  }

  // Steps count from 0 here: the first is the nearest neighbour's. Asking for one past the end does nothing.
  void request(size_t index, Stream stream) {
    if (index >= schedule_.steps().size()) return;
    const RingStep& step = schedule_.steps()[index];
    const auto sends = messages(mesh_.context_peer(step.target), local_slices(key_, value_, schedule_, step.send));
    const auto receives = messages(mesh_.context_peer(step.source), packed_slices(buffer(index), step.receive));
    requests_[index] = transport_.exchange(sends, receives, Channel::keys, stream);
  }

  std::vector<KeySlice> arrived(size_t index, Stream stream) {
    requests_[index].wait_received(stream);
    return packed_slices(buffer(index), schedule_.steps()[index].receive);
  }

  // All that left here has been taken.
  void finish(Stream stream) {
    for (Request& request : requests_) request.wait(stream);
  }

 private:
  KeyBuffer& buffer(size_t index) { return buffers_[index % 2]; }

  Transport& transport_;
  Mesh mesh_;
  View key_, value_;
  const RingSchedule& schedule_;
  std::vector<KeyBuffer> buffers_;
  std::vector<Request> requests_;
};

// Key gradients on their way home: what was computed here for step d travels to its owner, and what the target computed
// for this rank arrives and is added, in the order of d.
class ReturningGradients {
 public:
  ReturningGradients(Device& device, Transport& transport, const Mesh& mesh, const View& key_gradient,
                     const View& value_gradient, const LocalMask& mask)
      : device_(device),
        transport_(transport),
        mesh_(mesh),
        key_(key_gradient),
        value_(value_gradient),
        schedule_(mask.schedule) {
    const Shape shape = key_gradient.shape().with_rows(mask.most_passing);
    const size_t steps = schedule_.steps().size();
    const size_t wanted = steps == 0 ? 0 : steps == 1 ? 2 : 3;  // one to receive into, two to compute into by turns
    for (size_t i = 0; i < wanted; ++i) buffers_.emplace_back(device, shape, DType::float32);
  }

  // Where step `index` computes the gradients of the keys that passed by.
  std::vector<KeySlice> outgoing(size_t index) {
    return packed_slices(buffers_[1 + index % 2], schedule_.steps()[index].receive);
  }

  void send(size_t index, Stream stream) {
    finish(stream);
    const RingStep& step = schedule_.steps()[index];
    const auto sends = messages(mesh_.context_peer(step.source), outgoing(index));
    const auto receives = messages(mesh_.context_peer(step.target), packed_slices(buffers_[0], step.send));
    request_ = transport_.exchange(sends, receives, Channel::key_gradients, stream);
    under_way_ = &step;
  }

  // Adds what is under way, if anything is.
  void finish(Stream stream) {
    request_.wait(stream);
    if (under_way_ == nullptr) return;
    const auto arrived = packed_slices(buffers_[0], under_way_->send);
    const auto owned = local_slices(key_, value_, schedule_, under_way_->send);
    for (size_t i = 0; i < arrived.size(); ++i) {
      device_.accumulate(owned[i].key, arrived[i].key, stream);
      device_.accumulate(owned[i].value, arrived[i].value, stream);
    }
    under_way_ = nullptr;
  }

 private:
  Device& device_;
  Transport& transport_;
  Mesh mesh_;
  View key_, value_;
  const RingSchedule& schedule_;
  std::vector<KeyBuffer> buffers_;
  Request request_;
  const RingStep* under_way_ = nullptr;
};

// How many steps there are up to and including the last that brings keys here.
size_t steps_with_keys(const RingSchedule& schedule) {
  size_t count = schedule.steps().size();
  while (count > 0 && schedule.steps()[count - 1].receive.empty()) --count;
  return count;
}

}  // namespace

void RingAttention::forward(const RingAttentionForward& args, const LocalMask& mask, Stream stream) {
  const RingSchedule& schedule = mask.schedule;
  PassingKeys passing(device_, transport_, mesh_, args.key, args.value, mask);
  std::array<Tensor, 3> state;
  if (mesh_.context_size > 1) {  // by the mesh and not the mask, so that packing does not change sizes
    state = {device_.allocate(args.query.shape(), DType::float32, Purpose::attention),
             device_.allocate(args.log_sum.shape(), DType::float32, Purpose::attention),
             device_.allocate(args.log_sum.shape(), DType::float32, Purpose::attention)};
  }
  const size_t used = steps_with_keys(schedule);
  const auto attend = [&](std::span<const KeySlice> keys, bool first, bool last) {
    const ActivityScope scope(device_.clock(), Activity::attention);
    device_.attention_forward({.query = args.query,
                               .ranges = mask.ranges,
                               .keys = keys,
                               .scale = args.scale,
                               .first = first,
                               .last = last,
                               .state = {state[0], state[1], state[2]},
                               .output = args.output,
                               .log_sum = args.log_sum},
                              stream);
  };

  passing.request(0, stream);
  attend(local_slices(args.key, args.value, schedule, schedule.own()), true, used == 0);
  for (size_t i = 0; i < schedule.steps().size(); ++i) {
    passing.request(i + 1, stream);
    const auto keys = passing.arrived(i, stream);
    if (i < used && (!keys.empty() || i + 1 == used)) attend(keys, false, i + 1 == used);
  }
  passing.finish(stream);
}

void RingAttention::backward(const RingAttentionBackward& args, const LocalMask& mask, Stream stream) {
  const RingSchedule& schedule = mask.schedule;
  PassingKeys passing(device_, transport_, mesh_, args.key, args.value, mask);
  ReturningGradients returning(device_, transport_, mesh_, args.key_gradient, args.value_gradient, mask);
  const auto attend = [&](std::span<const KeySlice> keys, std::span<const KeySlice> gradients, bool first) {
    const ActivityScope scope(device_.clock(), Activity::attention);
    device_.attention_backward({.query = args.query,
                                .ranges = mask.ranges,
                                .keys = keys,
                                .scale = args.scale,
                                .log_sum = args.log_sum,
                                .delta = args.delta,
                                .output_gradient = args.output_gradient,
                                .first = first,
                                .query_gradient = args.query_gradient,
                                .key_gradients = as_gradients(gradients)},
                               stream);
  };

  passing.request(0, stream);
  attend(local_slices(args.key, args.value, schedule, schedule.own()),
         local_slices(args.key_gradient, args.value_gradient, schedule, schedule.own()), true);
  for (size_t i = 0; i < schedule.steps().size(); ++i) {
    passing.request(i + 1, stream);
    const auto keys = passing.arrived(i, stream);
    if (!keys.empty()) attend(keys, returning.outgoing(i), false);
    returning.send(i, stream);
  }
  returning.finish(stream);
  passing.finish(stream);
}

}  // namespace annulus
