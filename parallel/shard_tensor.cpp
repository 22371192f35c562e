#include "parallel/shard_tensor.h"

namespace annulus {

ShardTensor::ShardTensor(Device& device, Place place, int64_t elements, DType dtype, Purpose purpose, Stream stream)
    : elements_(elements), dtype_(dtype) {
  if (place == Place::device) {
    tensor_ = device.allocate({elements}, dtype, purpose);
    device.fill_zero(tensor_, stream);
  } else {
    storage_ = &device.storage(place);
    offset_ = storage_->reserve(elements * size_of(dtype));
  }
}

const View& ShardTensor::view() const {
  require(resident(), "a tensor in storage has no view");
  return tensor_.view();
}

Transfer ShardTensor::load(const View& destination, int64_t begin, Stream stream) const {
  return storage_->load(destination, offset_ + begin * size_of(dtype_), stream);
}

Transfer ShardTensor::store(int64_t begin, const View& source, Stream stream) const {
  return storage_->store(offset_ + begin * size_of(dtype_), source, stream);
}

}  // namespace annulus
