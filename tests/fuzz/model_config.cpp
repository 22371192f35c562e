// A model's config.json, read and written again with another dtype.
#include "runtime/model_config.h"

#include "runtime/files/model_companions.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const annulus::MemoryFolder folder;
  static const annulus::MemoryFile file(folder, "config.json");
  file.write(annulus::text_of(data, size));

  annulus::read_or_refuse(annulus::ExitCode::data, [&] {
    const annulus::ModelConfig model = annulus::ModelConfig::read(folder.path());
    annulus::require(model.kv_heads >= 1 && model.heads % model.kv_heads == 0 && model.head_dim % 2 == 0,
                     "the heads are possible");
    annulus::require(static_cast<int64_t>(model.layer_windows.size()) == model.layers, "every layer has a window");
    annulus::require(model.parameters() > 0, "the parameters are counted without overflow");
    file.write(annulus::with_dtype(file.path(), "float32"));
    annulus::require(annulus::ModelConfig::read(folder.path()).parameters() == model.parameters(),
                     "a saved configuration is of the same model");
  });
  return 0;
}
