// The JSON header of a safetensors file, after two bytes, little-endian, that say how many bytes of data would follow
// it.
#include "runtime/files/safetensors_header.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return -1;
  const int64_t data_size = data[0] | data[1] << 8;
  const std::string_view json = annulus::text_of(data + 2, size - 2);
  const int64_t data_begin = 8 + static_cast<int64_t>(json.size());

  annulus::read_or_refuse(annulus::ExitCode::data, [&] {
    const auto tensors =
        annulus::parse_safetensors_header(json, "model.safetensors", data_begin, data_begin + data_size);
    int64_t bytes = 0;
    for (const auto& [name, tensor] : tensors) {
      annulus::require(tensor.name == name, "a tensor is found under its name");
      annulus::require(tensor.offset >= data_begin && tensor.offset + tensor.bytes() <= data_begin + data_size,
                       "a tensor lies within the data");
      bytes += tensor.bytes();
    }
    annulus::require(bytes == data_size, "the tensors take all of the data");
  });
  return 0;
}
