// Typed, shaped memory. A Tensor owns, a View looks; both are row-major and contiguous, so any range of rows of a View is
// a View. Neither knows which device the memory belongs to.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "kernels/bfloat16.h"
#include "kernels/error.h"
#include "kernels/memory.h"

namespace annulus {

enum class DType : uint8_t { float32, bfloat16, int32, float64 };

int64_t size_of(DType dtype);       // bytes
const char* name_of(DType dtype);

template <class T>
inline constexpr DType dtype_of_v = DType::float64;
template <>
inline constexpr DType dtype_of_v<float> = DType::float32;
template <>
inline constexpr DType dtype_of_v<bfloat16> = DType::bfloat16;
template <>
inline constexpr DType dtype_of_v<int32_t> = DType::int32;

template <class T>
constexpr DType dtype_of() {
  static_assert(dtype_of_v<T> != DType::float64 || std::is_same_v<T, double>, "no dtype holds this type");
  return dtype_of_v<T>;
}

// Up to four dimensions, outermost first. A scalar has one dimension of 1.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);

  [[nodiscard]] int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[static_cast<size_t>(i)]; }
  [[nodiscard]] int64_t elements() const;
  [[nodiscard]] Shape with_rows(int64_t rows) const;  // the same shape with another first dimension
  [[nodiscard]] std::string to_string() const;        // "(3, 4)"
  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<int64_t, 4> dims_{};
  int rank_ = 0;
};

// Looks at memory somebody else owns. Copies freely; const applies to the View, not to what it shows.
class View {
 public:
  View() = default;
  View(void* data, DType dtype, Shape shape) : data_(data), shape_(shape), dtype_(dtype) {}

  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] int64_t dim(int i) const { return shape_[i]; }
  [[nodiscard]] int64_t rows() const { return shape_[0]; }
  [[nodiscard]] int64_t elements() const { return shape_.elements(); }
  [[nodiscard]] int64_t row_elements() const { return rows() == 0 ? 0 : elements() / rows(); }
  [[nodiscard]] int64_t bytes() const { return elements() * size_of(dtype_); }
  [[nodiscard]] bool empty() const { return elements() == 0; }

  // The memory as T; an InternalError if the dtype is another.
  template <class T>
  [[nodiscard]] T* as() const {
    require(dtype_ == dtype_of<T>(), "a view is read as another dtype than its own");
    return static_cast<T*>(data_);
  }

  [[nodiscard]] View slice(int64_t begin, int64_t end) const;    // rows [begin, end)
  [[nodiscard]] View flat() const;                               // (elements)
  [[nodiscard]] View reshaped(Shape shape) const;                // same number of elements

 private:
  void* data_ = nullptr;
  Shape shape_;
  DType dtype_ = DType::float32;
};

// Owns device memory from Device::allocate; moves, and gives it back when destroyed. Converts to the View of all of it.
class Tensor {
 public:
  Tensor() = default;
  Tensor(Allocation memory, DType dtype, Shape shape)
      : memory_(std::move(memory)), view_(memory_.data(), dtype, shape) {}
  Tensor(Tensor&& other) noexcept
      : memory_(std::move(other.memory_)), view_(std::exchange(other.view_, View())) {}
  Tensor& operator=(Tensor&& other) noexcept {
    memory_ = std::move(other.memory_);
    view_ = std::exchange(other.view_, View());
    return *this;
  }

  [[nodiscard]] const View& view() const { return view_; }
  operator View() const { return view_; }  // NOLINT(google-explicit-constructor): an owner may be used wherever a look is
  const View* operator->() const { return &view_; }

 private:
  Allocation memory_;
  View view_;
};

}  // namespace annulus
