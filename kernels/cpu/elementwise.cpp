// Filling, copying, adding, summing, looking up rows, and the gated activation.
#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cpu/device.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/dispatch.h"
#include "kernels/shapes.h"

namespace annulus::cpu {
namespace {

char* byte_address(View view, int64_t offset) {
  return static_cast<char*>(view.data()) + offset;
}

// destination (1) float64 += Σ of sum(begin, n) over blocks whose number depends on the size alone.
template <class S, class Sum>
void add_sum(View destination, View source, int threads, const Sum& sum) {
  constexpr int64_t most_blocks = 64;
  const int64_t n = source.elements();
  const int64_t block = std::max(elements_per_block, ceil_divide(n, most_blocks));
  std::array<double, most_blocks> partials{};
  parallel_blocks(threads, n, block, [&](int64_t begin, int64_t end) {
    partials[static_cast<size_t>(begin / block)] = sum(source.as<S>() + begin, end - begin);
  });
  double total = 0;
  for (const double partial : partials) total += partial;
  *destination.as<double>() += total;
}

void require_tokens(View tokens, int64_t vocabulary) {
  const auto* const token = tokens.as<int32_t>();
  for (int64_t row = 0; row < tokens.elements(); ++row) {
    require(token[row] >= 0 && token[row] < vocabulary, "every token is in the vocabulary");
  }
}

}  // namespace

void CpuDevice::fill_zero(View destination, Stream /*stream*/) {
  parallel_blocks(threads_, destination.bytes(), elements_per_block * 4, [&](int64_t begin, int64_t end) {
    std::memset(byte_address(destination, begin), 0, static_cast<size_t>(end - begin));
  });
}

void CpuDevice::copy(View destination, View source, Stream /*stream*/) {
  require_copy(destination, source);
  if (destination.dtype() == source.dtype()) {
    parallel_blocks(threads_, source.bytes(), elements_per_block * 4, [&](int64_t begin, int64_t end) {
      std::memcpy(byte_address(destination, begin), byte_address(source, begin), static_cast<size_t>(end - begin));
    });
  } else if (destination.dtype() == DType::bfloat16) {
    parallel_blocks(threads_, source.elements(), elements_per_block,
                    [&, from = source.as<float>()](int64_t begin, int64_t end) {
                      math_.round(static_cast<bfloat16*>(destination.data()) + begin, from + begin, end - begin);
                    });
  } else {
    auto* const to = destination.as<float>();
    auto* const from = source.as<bfloat16>();
    parallel_blocks(threads_, source.elements(), elements_per_block,
                    [&](int64_t begin, int64_t end) { math_.widen(to + begin, from + begin, end - begin); });
  }
}

void CpuDevice::accumulate(View destination, View source, Stream /*stream*/) {
  require_copy(destination, source);
  with_float_type(destination.dtype(), [&]<class D>() {
    with_float_type(source.dtype(), [&]<class S>() {
      const auto add = [&] {
        if constexpr (std::is_same_v<S, float>)
          return math_.of<D>().add_float32;
        else
          return math_.of<D>().add_bfloat16;
      }();
      auto* const to = destination.as<D>();
      auto* const from = source.as<S>();
      parallel_blocks(threads_, source.elements(), elements_per_block,
                      [&](int64_t begin, int64_t end) { add(to + begin, from + begin, end - begin); });
    });
  });
}

void CpuDevice::sum(View destination, View source, Stream /*stream*/) {
  if (source.dtype() == DType::float64)
    add_sum<double>(destination, source, threads_, math_.sum_float64);
  else
    add_sum<float>(destination, source, threads_, math_.sum_float32);
}

void CpuDevice::sum_of_squares(View destination, View source, Stream /*stream*/) {
  if (source.dtype() == DType::float64)
    add_sum<double>(destination, source, threads_, math_.sum_of_squares_float64);
  else
    add_sum<float>(destination, source, threads_, math_.sum_of_squares_float32);
}

void CpuDevice::sum_rows(View destination, View source, Stream /*stream*/) {
  require_sum_rows(destination, source);
  const int64_t width = destination.elements();
  auto* const total = destination.as<double>();
  std::fill_n(total, width, 0.0);
  const auto* const value = source.as<double>();
  for (int64_t i = 0; i < source.elements(); ++i) total[i % width] += value[i];
}

void CpuDevice::embedding_forward(View output, View table, View tokens, Stream /*stream*/) {
  require_embedding_forward(output, table, tokens);
  require_tokens(tokens, table.rows());
  const int64_t row_bytes = output.row_elements() * size_of(output.dtype());
  const auto* const token = tokens.as<int32_t>();
  parallel_blocks(threads_, output.rows(), 64, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::memcpy(byte_address(output, row * row_bytes), byte_address(table, token[row] * row_bytes),
                  static_cast<size_t>(row_bytes));
    }
  });
}

void CpuDevice::embedding_backward(View table_gradient, View output_gradient, View tokens, Stream /*stream*/) {
  const int64_t rows = output_gradient.rows();
  const int64_t width = table_gradient.row_elements();
  require_embedding_backward(table_gradient, output_gradient, tokens);
  require_tokens(tokens, table_gradient.rows());
  const auto* const token = tokens.as<int32_t>();
  auto* const table = table_gradient.as<float>();
  // A token may occur twice, so threads share the columns: every element is added up in the order of the rows.
  with_float_type(output_gradient.dtype(), [&]<class T>() {
    const auto* const gradient = output_gradient.as<T>();
    parallel_blocks(threads_, width, 64, [&](int64_t begin, int64_t end) {
      for (int64_t row = 0; row < rows; ++row) {
        float* const sum = table + token[row] * width + begin;
        if constexpr (std::is_same_v<T, float>)
          math_.float32.add_float32(sum, gradient + row * width + begin, end - begin);
        else
          math_.float32.add_bfloat16(sum, gradient + row * width + begin, end - begin);
      }
    });
  });
}

void CpuDevice::swiglu_forward(View output, View gate_up, Stream /*stream*/) {
  const int64_t width = output.row_elements();
  require_swiglu(output, gate_up);
  with_float_type(output.dtype(), [&]<class T>() {
    auto* const to = output.as<T>();
    const auto* const from = gate_up.as<T>();
    parallel_for(threads_, output.rows(), [&](int64_t row) {
      const T* const gate = from + row * 2 * width;
      math_.of<T>().swiglu(to + row * width, gate, gate + width, width);
    });
  });
}

void CpuDevice::swiglu_backward(View gate_up_gradient, View output_gradient, View gate_up, Stream /*stream*/) {
  const int64_t width = output_gradient.row_elements();
  require_swiglu(output_gradient, gate_up);
  require_copy(gate_up_gradient, gate_up);
  with_float_type(gate_up.dtype(), [&]<class T>() {
    auto* const to = gate_up_gradient.as<T>();
    const auto* const from = gate_up.as<T>();
    const auto* const above = output_gradient.as<T>();
    parallel_for(threads_, gate_up.rows(), [&](int64_t row) {
      T* const gradient = to + row * 2 * width;
      const T* const gate = from + row * 2 * width;
      math_.of<T>().swiglu_backward(gradient, gradient + width, above + row * width, gate, gate + width, width);
    });
  });
}

}  // namespace annulus::cpu
