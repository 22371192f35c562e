// One flat tensor of a rank's shard: on the device for good, or in storage, from where ranges of it are copied when
// they are needed.
#pragma once

#include <cstdint>

#include "kernels/device.h"

namespace annulus {

class ShardTensor {
 public:
  ShardTensor() = default;
  ShardTensor(Device& device, Place place, int64_t elements, DType dtype, Purpose purpose, Stream stream);  // zero

  [[nodiscard]] int64_t elements() const { return elements_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] bool resident() const { return storage_ == nullptr; }
  [[nodiscard]] const View& view() const;  // (elements); of a resident tensor only

  // Between elements [begin, begin + n) in storage and a view of n elements.
  Transfer load(const View& destination, int64_t begin, Stream stream) const;
  Transfer store(int64_t begin, const View& source, Stream stream) const;

 private:
  int64_t elements_ = 0;
  DType dtype_ = DType::float32;
  Tensor tensor_;
  Storage* storage_ = nullptr;
  int64_t offset_ = 0;  // bytes, in storage
};

}  // namespace annulus
