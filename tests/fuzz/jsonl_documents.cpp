// A documents file of JSON Lines.
#include "runtime/data/jsonl_documents.h"

#include <memory>

#include "tests/fuzz/documents.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int64_t vocabulary = 1000;
  static const annulus::MemoryFolder folder;
  static const annulus::MemoryFile file(folder, "documents.jsonl");
  file.write(annulus::text_of(data, size));

  std::unique_ptr<annulus::JsonlDocuments> documents;
  annulus::read_or_refuse(annulus::ExitCode::data,
                          [&] { documents = std::make_unique<annulus::JsonlDocuments>(file.path(), vocabulary); });
  // A file is checked in full when it is opened, so reading it refuses nothing.
  if (documents != nullptr) annulus::check_documents(*documents, vocabulary);
  return 0;
}
