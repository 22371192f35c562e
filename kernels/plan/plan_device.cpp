#include "kernels/plan/plan_device.h"

#include <algorithm>
#include <cstddef>

namespace annulus {
namespace {

double per_pair(const View& query) {
  return static_cast<double>(query.dim(1) * query.dim(2));
}

int64_t number_of(DType dtype) {
  return static_cast<int64_t>(dtype);
}

std::vector<int64_t> attention_shape(const View& query, std::span<const KeySlice> keys) {
  std::vector<int64_t> shape = {number_of(query.dtype()), query.dim(0), query.dim(1), query.dim(2)};
  for (const KeySlice& slice : keys) shape.insert(shape.end(), {slice.key.dim(0), slice.key.dim(1)});
  return shape;
}

template <class Shape, class Size>
int64_t remembered(std::map<Shape, int64_t>& sizes, const Shape& shape, const Size& size) {
  const auto known = sizes.find(shape);
  return known != sizes.end() ? known->second : sizes.emplace(shape, size()).first->second;
}

}  // namespace

Storage& PlanDevice::storage(Place place) {
  require(place != Place::device, "the device is no place beside itself");
  return place == Place::host ? host_ : disk_;
}

void PlanDevice::upload(View destination, const void* source, Stream /*stream*/) {
  const bool is_mask =
      destination.dtype() == DType::int32 && destination.shape().rank() == 2 && destination.dim(1) == 4;
  if (!is_mask) return;
  const auto* const rows = static_cast<const KeyRanges*>(source);
  masks_[destination.data()] = mask_runs({rows, static_cast<size_t>(destination.rows())});
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

void PlanDevice::sum(View /*destination*/, View source, Stream /*stream*/) {
  use_workspace(workspace_->sum(source));
}

void PlanDevice::sum_of_squares(View /*destination*/, View source, Stream /*stream*/) {
  use_workspace(workspace_->sum(source));
}

void PlanDevice::matmul(const Matmul& args, Stream /*stream*/) {
  const Matmul& m = args;
  const ProductShape shape = {
      m.a.dim(0),    m.a.dim(1),    m.b.dim(0),  m.b.dim(1), number_of(m.a.dtype()), number_of(m.c.dtype()),
      m.transpose_a, m.transpose_b, m.adds()};
  use_workspace(remembered(product_workspaces_, shape, [&] { return workspace_->matmul(args); }));
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

double PlanDevice::pairs(const View& ranges, std::span<const KeySlice> keys) const {
  const auto* const end = static_cast<const std::byte*>(ranges.data()) + ranges.bytes();
  int64_t sum = 0, rows = 0;
  for (auto part = masks_.lower_bound(ranges.data()); part != masks_.end() && part->first < end; ++part) {
    for (const MaskRun& run : part->second) rows += run.rows;
    for (const KeySlice& slice : keys) sum += visible_pairs(part->second, slice.first, slice.first + slice.key.rows());
  }
  require(rows == ranges.rows(), "attention has a mask that was uploaded");
  return static_cast<double>(sum);
}

void PlanDevice::attention_forward(const AttentionForward& args, Stream /*stream*/) {
  use_workspace(remembered(forward_workspaces_, attention_shape(args.query, args.keys),
                           [&] { return workspace_->attention_forward(args); }));
  operations_.attention += 4 * per_pair(args.query) * pairs(args.ranges, args.keys);
}

void PlanDevice::attention_backward(const AttentionBackward& args, Stream /*stream*/) {
  use_workspace(remembered(backward_workspaces_, attention_shape(args.query, args.keys),
                           [&] { return workspace_->attention_backward(args); }));
  operations_.attention += 10 * per_pair(args.query) * pairs(args.ranges, args.keys);
}

}  // namespace annulus
