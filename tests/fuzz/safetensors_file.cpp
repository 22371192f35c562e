// A whole safetensors file, and every number in it.
#include <vector>

#include "runtime/files/safetensors.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const annulus::MemoryFolder folder;
  static const annulus::MemoryFile file(folder, "model.safetensors");
  file.write(annulus::text_of(data, size));

  annulus::read_or_refuse(annulus::ExitCode::data, [&] {
    const annulus::SafetensorsReader reader(file.path());
    for (const auto& [name, tensor] : reader.tensors()) {
      annulus::require(tensor.bytes() <= static_cast<int64_t>(size), "a tensor is no larger than its file");
      std::vector<float> values(static_cast<size_t>(tensor.elements()));
      reader.read(tensor, 0, values);
    }
  });
  return 0;
}
