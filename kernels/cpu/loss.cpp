#include <algorithm>
#include <cmath>

#include "kernels/cpu/device.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/dispatch.h"
#include "kernels/shapes.h"

namespace annulus::cpu {
namespace {

float load(float value) {
  return value;
}
float load(bfloat16 value) {
  return widen(value);
}
void store(float& place, float value) {
  place = value;
}
void store(bfloat16& place, float value) {
  place = round_to_bfloat16(value);
}

// The loss of one row, whose logits become their gradient. The label's own element, weight (p − 1), is computed apart
// and rounded once: near p = 1 it is small beside p.
template <class T>
float cross_entropy_row(const TypedMath<T>& math, T* logits, int64_t vocabulary, int32_t label, float weight) {
  const float most = math.maximum(logits, vocabulary);
  const double sum = math.sum_exp(logits, most, vocabulary);
  const double label_logit = static_cast<double>(load(logits[label])) - static_cast<double>(most);
  math.scaled_exp(logits, most, static_cast<float>(weight / sum), vocabulary);
  store(logits[label], static_cast<float>(weight * (std::exp(label_logit) / sum - 1.0)));
  return static_cast<float>(weight * (std::log(sum) - label_logit));
}

}  // namespace

void CpuDevice::cross_entropy(const CrossEntropy& args, Stream /*stream*/) {
  const int64_t rows = args.logits.rows();
  const int64_t vocabulary = args.logits.row_elements();
  require_shapes(args);
  auto* const losses = args.losses.as<float>();
  const auto* const labels = args.labels.as<int32_t>();
  const auto* const weights = args.weights.as<float>();
  require(std::all_of(labels, labels + rows, [&](int32_t label) { return label >= -1 && label < vocabulary; }),
          "every label is in the vocabulary, or -1");
  with_float_type(args.logits.dtype(), [&]<class T>() {
    auto* const logits = args.logits.as<T>();
    parallel_for(threads_, rows, [&](int64_t row) {
      T* const row_logits = logits + row * vocabulary;
      if (labels[row] < 0 || weights[row] == 0) {  // whatever the logits are, NaN included
        std::fill_n(row_logits, vocabulary, T{});
        losses[row] = 0;
      } else {
        losses[row] = cross_entropy_row(math_.of<T>(), row_logits, vocabulary, labels[row], weights[row]);
      }
    });
  });
}

}  // namespace annulus::cpu
