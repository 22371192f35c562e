#include "kernels/tensor.h"

#include <algorithm>

namespace annulus {

int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
    case DType::int32:
      return 4;
    case DType::bfloat16:
      return 2;
    case DType::float64:
      return 8;
  }
  throw InternalError("a dtype that does not exist");
}

const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return "float32";
    case DType::bfloat16:
      return "bfloat16";
    case DType::int32:
      return "int32";
    case DType::float64:
      return "float64";
  }
  throw InternalError("a dtype that does not exist");
}

Shape::Shape(std::initializer_list<int64_t> dims) {
  require(dims.size() >= 1 && dims.size() <= dims_.size(), "a shape has one to four dimensions");
  require(std::ranges::all_of(dims, [](int64_t dim) { return dim >= 0; }), "no dimension of a shape is negative");
  std::ranges::copy(dims, dims_.begin());
  rank_ = static_cast<int>(dims.size());
}

int64_t Shape::elements() const {
  if (rank_ == 0) return 0;
  int64_t product = 1;
  for (int i = 0; i < rank_; ++i) product *= (*this)[i];
  return product;
}

Shape Shape::with_rows(int64_t rows) const {
  require(rank_ > 0 && rows >= 0, "a shape with rows has a dimension, and not a negative number of them");
  Shape result = *this;
  result.dims_[0] = rows;
  return result;
}

std::string Shape::to_string() const {
  std::string text = "(";
  for (int i = 0; i < rank_; ++i) text += (i == 0 ? "" : ", ") + std::to_string((*this)[i]);
  return text + ")";
}

View View::slice(int64_t begin, int64_t end) const {
  require(0 <= begin && begin <= end && end <= rows(), "a slice lies inside its view");
  char* start = static_cast<char*>(data_) + begin * row_elements() * size_of(dtype_);
  return {start, dtype_, shape_.with_rows(end - begin)};
}

View View::flat() const {
  return {data_, dtype_, Shape{elements()}};
}

View View::reshaped(Shape shape) const {
  require(shape.elements() == elements(), "a reshaped view has as many elements as before");
  return {data_, dtype_, shape};
}

}  // namespace annulus
