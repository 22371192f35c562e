#include "parallel/shard_windows.h"

#include <algorithm>
#include <array>
#include <vector>

namespace annulus {
namespace {

constexpr int64_t window_elements = int64_t{1} << 24;

struct Range {
  size_t unit;
  int64_t begin, end;
};

std::vector<Range> ranges_of(ShardedParameters& parameters) {
  std::vector<Range> ranges;
  for (size_t unit = 0; unit < parameters.units().size(); ++unit) {
    const int64_t elements = parameters.shard(unit).master.elements();
    for (int64_t begin = 0; begin < elements; begin += window_elements) {
      ranges.push_back({unit, begin, std::min(elements, begin + window_elements)});
    }
  }
  return ranges;
}

// One of a window's views: a look at the shard, or room for a copy that lasts for many windows.
class Part {
 public:
  Part(Device& device, const ShardTensor& example, int64_t capacity, bool reads, bool writes)
      : reads_(reads), writes_(writes) {
    if (!example.resident()) room_ = device.allocate({capacity}, example.dtype(), Purpose::staging);
  }

  View open(const ShardTensor& tensor, const Range& range, Stream stream) {
    tensor_ = &tensor;
    range_ = range;
    view_ = tensor.resident() ? tensor.view().slice(range.begin, range.end) : room_->slice(0, range.end - range.begin);
    if (reads_ && !tensor.resident()) transfer_ = tensor.load(view_, range.begin, stream);
    return view_;
  }
  void wait(Stream stream) { transfer_.wait(stream); }
  void close(Stream stream) {
    if (writes_ && !tensor_->resident()) transfer_ = tensor_->store(range_.begin, view_, stream);
  }

 private:
  bool reads_, writes_;
  Tensor room_;
  const ShardTensor* tensor_ = nullptr;
  Range range_{};
  View view_;
  Transfer transfer_;
};

// Room for one window.
class Slot {
 public:
  Slot(ShardedParameters& parameters, Device& device, WindowUse use, int64_t capacity) : parameters_(parameters) {
    const ParameterShard& shard = parameters.shard(0);
    const auto add = [&](ShardTensor ParameterShard::*tensor, View ShardWindow::*view, bool writes) {
      entries_.push_back({tensor, view, Part(device, shard.*tensor, capacity, true, writes)});
    };
    add(&ParameterShard::gradient, &ShardWindow::gradient, false);
    if (use == WindowUse::read_gradients) return;
    add(&ParameterShard::master, &ShardWindow::master, true);
    add(&ParameterShard::moment1, &ShardWindow::moment1, true);
    add(&ParameterShard::moment2, &ShardWindow::moment2, true);
    if (shard.has_rounded()) {
      entries_.push_back({&ParameterShard::rounded, &ShardWindow::weights,
                          Part(device, shard.rounded, capacity, /*reads=*/true, /*writes=*/true)});
    }
  }

  void open(const Range& range, Stream stream) {
    window_ = {};
    window_.unit = range.unit;
    window_.begin = range.begin;
    window_.end = range.end;
    const ParameterShard& shard = parameters_.shard(range.unit);
    for (Entry& entry : entries_) window_.*entry.view = entry.part.open(shard.*entry.tensor, range, stream);
    if (!shard.has_rounded()) window_.weights = window_.master;
  }
  void wait(Stream stream) {
    for (Entry& entry : entries_) entry.part.wait(stream);
  }
  void close(Stream stream) {
    for (Entry& entry : entries_) entry.part.close(stream);
  }
  [[nodiscard]] const ShardWindow& window() const { return window_; }

 private:
  struct Entry {
    ShardTensor ParameterShard::*tensor;
    View ShardWindow::*view;
    Part part;
  };

  ShardedParameters& parameters_;
  std::vector<Entry> entries_;
  ShardWindow window_;
};

}  // namespace

void for_each_window(ShardedParameters& parameters, Device& device, WindowUse use, Stream stream,
                     const std::function<void(const ShardWindow&)>& visit) {
  const std::vector<Range> ranges = ranges_of(parameters);
  int64_t capacity = 0;
  for (const Range& range : ranges) capacity = std::max(capacity, range.end - range.begin);
  std::array<Slot, 2> slots = {Slot(parameters, device, use, capacity), Slot(parameters, device, use, capacity)};
  slots[0].open(ranges[0], stream);
  for (size_t i = 0; i < ranges.size(); ++i) {
    Slot& slot = slots[i % 2];
    Slot& other = slots[(i + 1) % 2];
    slot.wait(stream);   // has been read
    other.wait(stream);  // has been written
    if (i + 1 < ranges.size()) other.open(ranges[i + 1], stream);
    visit(slot.window());
    slot.close(stream);
  }
  for (Slot& slot : slots) slot.wait(stream);
}

}  // namespace annulus
