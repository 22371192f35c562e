// The JSON header of a safetensors file: reading it with every rule of the format checked, and writing it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "runtime/files/safetensors.h"

namespace annulus {

inline constexpr int64_t largest_safetensors_header = 100'000'000;  // bytes, a limit of the format

// The tensors that `json` describes, where `data_begin` is the file offset of the data and `file_size` the file's end.
// Throws DataError naming `path` and the tensor unless names are unique, dtypes are ours, shapes and byte ranges agree,
// and the ranges cover the data without gap, overlap or rest.
std::map<std::string, StoredTensor> parse_safetensors_header(std::string_view json, const std::filesystem::path& path,
                                                             int64_t data_begin, int64_t file_size);

// The header of tensors that lie one after the other, padded with spaces to a multiple of 8 bytes.
std::string make_safetensors_header(std::span<const StoredTensor> tensors);

}  // namespace annulus
