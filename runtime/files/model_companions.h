// What lies beside the weights in a Hugging Face directory: the configuration and the tokenizer.
#pragma once

#include <deque>
#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/files/file.h"

namespace annulus {

// config.json, generation_config.json and whatever tokenizer files `source` has, finished in `directory` and yet to be
// committed. They are byte for byte those of `source`, but for what config.json says of the weights' dtype where that
// is not `dtype` ("bfloat16" or "float32").
std::deque<OutputFile> copy_companions(const std::filesystem::path& source, const std::filesystem::path& directory,
                                       std::string_view dtype);

// The text of the config.json `file` with torch_dtype, or dtype as newer files call it, replaced where it is given and
// another. Then the keys keep their order and all else its value, but not its spacing.
std::string with_dtype(const std::filesystem::path& file, std::string_view dtype);

}  // namespace annulus
