#include "runtime/data/megatron_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "kernels/error.h"
#include "kernels/narrow.h"

namespace annulus {

namespace {

constexpr std::string_view magic("MMIDIDX\0\0", 9);
constexpr int64_t header_bytes = 34;

// An array in a file, number by number: it may be larger than memory.
template <class T>
class ArrayReader {
 public:
  ArrayReader(const InputFile& file, int64_t offset, int64_t count) : file_(file), offset_(offset), left_(count) {}

  [[nodiscard]] int64_t end() const { return offset_ + left_ * int64_t{sizeof(T)}; }  // byte, before the first next()

  T next() {
    if (place_ == buffer_.size()) refill();
    return buffer_[place_++];
  }

 private:
  void refill() {
    require(left_ > 0, "an array is read up to its end");
    buffer_.resize(narrow<size_t>(std::min<int64_t>(left_, 65536)));
    file_.read(offset_, std::as_writable_bytes(std::span(buffer_)));
    offset_ += narrow<int64_t>(buffer_.size() * sizeof(T));
    left_ -= std::ssize(buffer_);
    place_ = 0;
  }

  const InputFile& file_;
  int64_t offset_, left_;
  std::vector<T> buffer_;
  size_t place_ = 0;  // in buffer_
};

[[noreturn]] void refuse(const InputFile& file, const std::string& reason) {
  throw DataError(fmt::format("'{}' is not an index of Megatron to be read: {}", file.path().string(), reason));
}

struct Header {
  TokenType type = TokenType::int32;
  int64_t sequences = 0, entries = 0;  // at least one entry
};

TokenType token_type(const InputFile& file, uint8_t code) {
  if (code == 4) return TokenType::int32;
  if (code == 8) return TokenType::uint16;
  refuse(file, fmt::format("its dtype code is {}, but tokens are read of code 4 (int32) and 8 (uint16)", code));
}

void check_size(const InputFile& file, uint64_t sequences, uint64_t entries) {
  const auto size = static_cast<uint64_t>(file.size());
  // A count above the size is wrong whatever an entry takes, and the sum of two below it does not overflow.
  if (sequences > size || entries > size || uint64_t{header_bytes} + 12 * sequences + 8 * entries != size) {
    refuse(file, fmt::format("its header counts {} sequences of 12 bytes and {} document starts of 8, which with the "
                             "{} bytes of the header are not its {} bytes; it was cut off, or has more than the index "
                             "of a text",
                             sequences, entries, header_bytes, size));
  }
}

Header read_header(const InputFile& file) {
  if (file.size() < header_bytes) {
    refuse(file, fmt::format("its {} bytes are too few for the header of {}", file.size(), header_bytes));
  }
  std::array<char, header_bytes> bytes{};
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  uint64_t version = 0, sequences = 0, entries = 0;
  std::memcpy(&version, &bytes[9], 8);
  std::memcpy(&sequences, &bytes[18], 8);
  std::memcpy(&entries, &bytes[26], 8);
  if (!std::string_view(bytes.data(), bytes.size()).starts_with(magic)) refuse(file, "it does not begin with MMIDIDX");
  if (version != 1) refuse(file, fmt::format("its version is {}, but only version 1 is read", version));
  const TokenType type = token_type(file, static_cast<uint8_t>(bytes[17]));
  check_size(file, sequences, entries);
  if (entries == 0) refuse(file, "its document index is empty, without even the number of sequences at its end");
  return {type, narrow<int64_t>(sequences), narrow<int64_t>(entries)};
}

// Walks once through the three arrays side by side.
class IndexReader {
 public:
  IndexReader(const InputFile& file, const Header& header, int64_t bin_size)
      : file_(file),
        header_(header),
        bin_size_(bin_size),
        lengths_(file, header_bytes, header.sequences),
        offsets_(file, lengths_.end(), header.sequences),
        starts_(file, offsets_.end(), header.entries) {}

  MegatronIndex read() {
    index_.type = header_.type;
    index_.ends.reserve(narrow<size_t>(header_.entries - 1));
    const int64_t start = starts_.next();
    if (start != 0) refuse(file_, fmt::format("its first document starts at sequence {}, not 0", start));
    for (int64_t document = 0; document < header_.entries - 1; ++document) read_document(document);
    if (sequence_ != header_.sequences) {
      refuse(file_, fmt::format("its documents end at sequence {}, but there are {}", sequence_, header_.sequences));
    }
    if (tokens_ * size_of(header_.type) != bin_size_) {
      refuse(file_,
             fmt::format("its sequences have {} {} tokens, {} bytes, but its .bin has {}; were the two made together?",
                         tokens_, name_of(header_.type), tokens_ * size_of(header_.type), bin_size_));
    }
    return std::move(index_);
  }

 private:
  void read_document(int64_t document) {
    const int64_t end = starts_.next(), begin = tokens_;
    if (end < sequence_ || end > header_.sequences) {
      refuse(file_, fmt::format("document {} starts at sequence {} and ends before {}, but there are {} sequences",
                                document, sequence_, end, header_.sequences));
    }
    while (sequence_ < end) read_sequence();
    if (tokens_ > begin) {
      index_.ends.push_back(tokens_);
    } else {
      index_.skipped.push_back(std::ssize(index_.ends));
    }
  }

  void read_sequence() {
    const int64_t length = lengths_.next(), offset = offsets_.next(), size = size_of(header_.type);
    if (length < 0) refuse(file_, fmt::format("sequence {} has a length of {}", sequence_, length));
    if (offset < 0 || offset % size != 0 || offset > bin_size_ - length * size) {
      refuse(file_,
             fmt::format("sequence {} has {} {} tokens from byte {} on, which are not in the {} bytes of its .bin",
                         sequence_, length, name_of(header_.type), offset, bin_size_));
    }
    if (length > 0 && offset != next_offset_) index_.extents.push_back({tokens_, offset});
    if (length > 0) next_offset_ = offset + length * size;
    tokens_ += length;
    ++sequence_;
  }

  const InputFile& file_;
  Header header_;
  int64_t bin_size_;
  ArrayReader<int32_t> lengths_;
  ArrayReader<int64_t> offsets_, starts_;
  int64_t sequence_ = 0, tokens_ = 0;  // read so far
  int64_t next_offset_ = -1;           // where the last sequence ended in the .bin
  MegatronIndex index_;
};

}  // namespace

MegatronIndex read_megatron_index(const std::filesystem::path& path, int64_t bin_size) {
  const InputFile file(path);
  return IndexReader(file, read_header(file), bin_size).read();
}

}  // namespace annulus
