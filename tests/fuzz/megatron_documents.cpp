// Megatron's token file: a byte that says how many bytes of tokens follow, those, and the index.
#include "runtime/data/megatron_documents.h"

#include "tests/fuzz/documents.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int64_t vocabulary = 50257;
  static const annulus::MemoryFolder folder;
  static const annulus::MemoryFile tokens(folder, "tokens.bin"), index(folder, "tokens.idx");
  static const std::filesystem::path prefix = folder.path() / "tokens";
  if (size == 0) return -1;
  std::string_view rest = annulus::text_of(data + 1, size - 1);
  tokens.write(annulus::take(rest, data[0]));
  index.write(rest);

  annulus::read_or_refuse(annulus::ExitCode::data, [&] {
    annulus::check_documents(annulus::MegatronDocuments(prefix, vocabulary), vocabulary);
  });
  return 0;
}
