// Whole safetensors files in host memory, for tests that make small ones or look into them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace annulus {

struct HostTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
};
using HostTensors = std::map<std::string, HostTensor>;  // by name

HostTensors read_tensors(const std::filesystem::path& path);
void write_tensors(const std::filesystem::path& path, const HostTensors& tensors);  // as float32

}  // namespace annulus
