#include "runtime/files/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "kernels/error.h"
#include "kernels/narrow.h"
#include "runtime/files/safetensors_header.h"

namespace annulus {

static_assert(std::endian::native == std::endian::little, "the format is little-endian and is read as it lies");

namespace {

constexpr int64_t length_bytes = 8;  // of the header's length at the beginning of the file

float widen_bfloat16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

// IEEE-754 binary16: 1 sign, 5 exponent and 10 mantissa bits.
float widen_float16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000U} << 16;
  const uint32_t exponent = bits >> 10 & 0x1FU;
  const uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 0) {  // zero and subnormals: mantissa · 2^-24, exact in float32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign == 0 ? magnitude : -magnitude;
  }
  const uint32_t widened = exponent == 0x1F ? 0xFFU : exponent + 127 - 15;  // infinity and NaN, or a normal number
  return std::bit_cast<float>(sign | widened << 23 | mantissa << 13);
}

// Reads numbers of 16 bits from `offset` and widens each, through a buffer of fixed size.
template <class Widen>
void read_widened(const InputFile& file, int64_t offset, std::span<float> destination, Widen widen) {
  std::array<uint16_t, 32768> buffer;
  while (!destination.empty()) {
    const auto piece = std::span(buffer).first(std::min(buffer.size(), destination.size()));
    file.read(offset, std::as_writable_bytes(piece));
    std::ranges::transform(piece, destination.begin(), widen);
    destination = destination.subspan(piece.size());
    offset += std::ssize(piece) * int64_t{sizeof(uint16_t)};
  }
}

std::map<std::string, StoredTensor> read_header(const InputFile& file) {
  const auto refuse = [&](const std::string& reason) {
    throw DataError(fmt::format("'{}' is not a safetensors file: {}", file.path().string(), reason));
  };
  if (file.size() < length_bytes) refuse(fmt::format("{} bytes are too few for one", file.size()));
  uint64_t length = 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > uint64_t{largest_safetensors_header}) {
    refuse(fmt::format("its header would be {} bytes long, more than the {} the format allows", length,
                       largest_safetensors_header));
  }
  const int64_t data_begin = length_bytes + static_cast<int64_t>(length);
  if (data_begin > file.size()) {
    refuse(
        fmt::format("its header would end at byte {} of {}; it was cut off, fetch it again", data_begin, file.size()));
  }
  std::string json(length, '\0');
  file.read(length_bytes, std::as_writable_bytes(std::span(json)));
  if (!json.starts_with('{')) refuse("its header does not begin with '{'");
  return parse_safetensors_header(json, file.path(), data_begin, file.size());
}

}  // namespace

int64_t StoredTensor::elements() const {
  int64_t elements = 1;
  for (const int64_t dim : shape) elements *= dim;
  return elements;
}

int64_t StoredTensor::bytes() const {
  return elements() * (dtype == StoredDType::f32 ? 4 : 2);
}

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path) : file_(path), tensors_(read_header(file_)) {}

const StoredTensor& SafetensorsReader::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    throw DataError(fmt::format("'{}' holds no tensor '{}'; is it of this model?", path().string(), name));
  }
  return found->second;
}

void SafetensorsReader::read(const StoredTensor& tensor, int64_t first, std::span<float> destination) const {
  require(first >= 0 && first + std::ssize(destination) <= tensor.elements(), "a tensor is read within its elements");
  const int64_t offset = tensor.offset + first * (tensor.dtype == StoredDType::f32 ? 4 : 2);
  switch (tensor.dtype) {
    case StoredDType::f32:
      return file_.read(offset, std::as_writable_bytes(destination));
    case StoredDType::bf16:
      return read_widened(file_, offset, destination, widen_bfloat16);
    case StoredDType::f16:
      return read_widened(file_, offset, destination, widen_float16);
  }
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<StoredTensor> tensors)
    : file_(path) {
  for (const StoredTensor& tensor : tensors) expected_ += tensor.bytes();
  const std::string header = make_safetensors_header(tensors);
  const uint64_t length = header.size();
  file_.write(std::as_bytes(std::span(&length, 1)));
  file_.write(std::as_bytes(std::span(header)));
}

void SafetensorsWriter::append(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  written_ += std::ssize(bytes);
  require(written_ <= expected_, "no more bytes are appended than the tensors take");
  file_.write(bytes);
  if (written_ == expected_) file_.finish();
}

void SafetensorsWriter::commit() {
  require(written_ == expected_, "every tensor's bytes have been appended");
  file_.commit();
}

}  // namespace annulus
