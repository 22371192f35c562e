#include "kernels/plan/plan_device.h"

#include <algorithm>

namespace annulus {
namespace {

int64_t overlap(int64_t begin, int64_t end, int64_t first, int64_t last) {
  return std::max<int64_t>(0, std::min(end, last) - std::max(begin, first));
}

double per_pair(const View& query) {
  return static_cast<double>(query.dim(1) * query.dim(2));
}

}  // namespace

void PlanDevice::upload(View destination, const void* source, Stream /*stream*/) {
  const bool is_mask =
      destination.dtype() == DType::int32 && destination.shape().rank() == 2 && destination.dim(1) == 4;
  if (!is_mask) return;
  const auto* const rows = static_cast<const KeyRanges*>(source);
  masks_[destination.data()].assign(rows, rows + destination.rows());
}

void PlanDevice::download(void* destination, View source, Stream /*stream*/) {
  const auto ones = [&]<class T>(T* values) { std::fill_n(values, source.elements(), T{1}); };
  if (source.dtype() == DType::float64) return ones(static_cast<double*>(destination));
  require(source.dtype() == DType::float32, "a plan is asked for numbers of a dtype that nobody reads");
  ones(static_cast<float*>(destination));
}

void PlanDevice::use_workspace(int64_t bytes) {
  const Allocation used(memory_, bytes, Purpose::workspace);
}

void PlanDevice::matmul(const Matmul& args, Stream /*stream*/) {
  use_workspace(workspace_->matmul(args));
  const int64_t k = args.a.dim(args.transpose_a ? 0 : 1);
  operations_.matmul += 2 * static_cast<double>(args.c.elements()) * static_cast<double>(k);
}

void PlanDevice::rms_norm_backward(const RmsNormBackward& args, Stream /*stream*/) {
  use_workspace(workspace_->rms_norm_backward(args));
}

void PlanDevice::rotary_angles(View cosine, View /*sine*/, View /*positions*/, double /*theta*/, Stream /*stream*/) {
  use_workspace(workspace_->rotary_angles(cosine));
}

void PlanDevice::head_norm_rotary_backward(const HeadNormRotaryBackward& args, Stream /*stream*/) {
  use_workspace(workspace_->head_norm_rotary_backward(args));
}

double PlanDevice::visible_pairs(const View& ranges, std::span<const KeySlice> keys) const {
  const auto mask = masks_.find(ranges.data());
  require(mask != masks_.end(), "attention has a mask that was uploaded");
  int64_t pairs = 0;
  for (const KeySlice& slice : keys) {
    const int64_t last = slice.first + slice.key.rows();
    for (const KeyRanges& r : mask->second) {
      pairs += overlap(r.begin0, r.end0, slice.first, last) + overlap(r.begin1, r.end1, slice.first, last);
    }
  }
  return static_cast<double>(pairs);
}

void PlanDevice::attention_forward(const AttentionForward& args, Stream /*stream*/) {
  use_workspace(workspace_->attention_forward(args));
  operations_.attention += 4 * per_pair(args.query) * visible_pairs(args.ranges, args.keys);
}

void PlanDevice::attention_backward(const AttentionBackward& args, Stream /*stream*/) {
  use_workspace(workspace_->attention_backward(args));
  operations_.attention += 10 * per_pair(args.query) * visible_pairs(args.ranges, args.keys);
}

}  // namespace annulus
