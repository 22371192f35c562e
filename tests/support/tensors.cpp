#include "tests/support/tensors.h"

#include <span>

#include "runtime/files/safetensors.h"

namespace annulus {

HostTensors read_tensors(const std::filesystem::path& path) {
  const SafetensorsReader file(path);
  HostTensors tensors;
  for (const auto& [name, stored] : file.tensors()) {
    HostTensor& tensor = tensors[name];
    tensor = {stored.shape, std::vector<float>(static_cast<size_t>(stored.elements()))};
    file.read(stored, 0, tensor.values);
  }
  return tensors;
}

void write_tensors(const std::filesystem::path& path, const HostTensors& tensors) {
  std::vector<StoredTensor> stored;
  for (const auto& [name, tensor] : tensors) {
    stored.push_back({.name = name, .dtype = StoredDType::f32, .shape = tensor.shape});
  }
  SafetensorsWriter file(path, std::move(stored));
  for (const auto& [name, tensor] : tensors) file.append(std::as_bytes(std::span(tensor.values)));
  file.commit();
}

}  // namespace annulus
