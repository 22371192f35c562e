// llm.c's token file. Of its header of 1024 bytes the input gives the 12 that mean something and what follows the
// header; fewer than 12 bytes are the whole file.
#include "runtime/data/llmc_documents.h"

#include <span>
#include <string>

#include "tests/fuzz/documents.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int64_t vocabulary = 50257;
  constexpr size_t meaningful = 12, header = 1024;  // bytes
  static const annulus::MemoryFolder folder;
  static const annulus::MemoryFile file(folder, "tokens.bin");
  std::string_view rest = annulus::text_of(data, size);
  std::string bytes(annulus::take(rest, meaningful));
  if (bytes.size() == meaningful) bytes.append(header - meaningful, '\0').append(rest);
  file.write(bytes);

  annulus::read_or_refuse(annulus::ExitCode::data, [&] {
    annulus::check_documents(annulus::LlmcDocuments(std::span(&file.path(), 1), vocabulary), vocabulary);
  });
  return 0;
}
