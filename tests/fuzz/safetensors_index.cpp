// model.safetensors.index.json beside two files of weights.
#include <string>

#include "runtime/files/safetensors_directory.h"
#include "runtime/files/safetensors_header.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/memory_file.h"

namespace {

// A file of two tensors without elements, which is all that an index needs to be checked against.
std::string weights(const char* first, const char* second) {
  const std::vector<annulus::StoredTensor> tensors = {{.name = first, .shape = {0}}, {.name = second, .shape = {0}}};
  const std::string header = annulus::make_safetensors_header(tensors);
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  bytes[1] = static_cast<char>(header.size() >> 8);
  return bytes + header;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const annulus::MemoryFolder folder;
  static const annulus::MemoryFile index(folder, "model.safetensors.index.json");
  static const annulus::MemoryFile one(folder, "1.safetensors"), two(folder, "2.safetensors");
  static const bool written = (one.write(weights("a", "b")), two.write(weights("c", "d")), true);
  annulus::require(written, "the weights are there");
  index.write(annulus::text_of(data, size));

  annulus::read_or_refuse(annulus::ExitCode::data, [&] {
    const annulus::SafetensorsDirectory directory(folder.path());
    for (const auto& [name, tensor] : directory.tensors()) {
      const std::string file = directory.path_of(tensor).filename().string();
      annulus::require(file == (name < "c" ? "1.safetensors" : "2.safetensors"),
                       "a tensor is in the file that holds it");
    }
  });
  return 0;
}
