// From the dtype of a View to the type of a loop.
#pragma once

#include <string>

#include "kernels/tensor.h"

namespace annulus {

// body.operator()<T>() with the type that `dtype` names: float or bfloat16.
template <class Body>
void with_float_type(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::float32:
      return body.template operator()<float>();
    case DType::bfloat16:
      return body.template operator()<bfloat16>();
    default:
      throw InternalError(std::string("an operation on float32 or bfloat16 is given ") + name_of(dtype));
  }
}

}  // namespace annulus
