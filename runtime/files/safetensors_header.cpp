#include "runtime/files/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "kernels/error.h"
#include "kernels/narrow.h"
#include "runtime/files/json.h"

namespace annulus {

namespace {

struct NamedDType {
  std::string_view name;
  StoredDType dtype;
};
constexpr std::array named_dtypes = {NamedDType{"F32", StoredDType::f32}, NamedDType{"BF16", StoredDType::bf16},
                                     NamedDType{"F16", StoredDType::f16}};

std::string_view name_of(StoredDType dtype) {
  return std::ranges::find(named_dtypes, dtype, &NamedDType::dtype)->name;
}

// A tensor and its bytes [begin, end) of the data.
struct Entry {
  StoredTensor tensor;
  int64_t begin = 0, end = 0;
};

// nullopt where the number of bytes does not fit 64 bits.
std::optional<int64_t> checked_bytes(const StoredTensor& tensor) {
  int64_t bytes = tensor.dtype == StoredDType::f32 ? 4 : 2;
  for (const int64_t dim : tensor.shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) return std::nullopt;
  }
  return bytes;
}

// Collects the entries of a header, refusing what is not of the form {NAME: {dtype, shape, data_offsets}} with an
// optional
// {"__metadata__": {NAME: string}}.
class HeaderHandler final : public JsonHandler {
 public:
  explicit HeaderHandler(const std::filesystem::path& path) : path_(path) {}

  std::vector<Entry> take() { return std::move(entries_); }

  void begin_object() override {
    if (place_ == Place::file) {
      place_ = Place::header;
    } else if (place_ == Place::header) {
      place_ = name_ == "__metadata__" ? Place::metadata : Place::entry;
      fields_.clear();
      entry_ = {};
      offsets_.clear();
    } else {
      refuse("an object");
    }
  }

  void end_object() override {
    if (place_ == Place::entry) finish_entry();
    place_ = Place::header;
  }

  void key(const std::string& name) override {
    std::set<std::string>& seen = place_ == Place::header ? names_ : fields_;
    (place_ == Place::header ? name_ : field_) = name;
    if (!seen.insert(name).second) fail(fmt::format("the name '{}' appears twice", name));
  }

  void begin_array() override {
    if (place_ != Place::entry || (field_ != "shape" && field_ != "data_offsets")) refuse("an array");
    place_ = Place::numbers;
  }

  void end_array() override { place_ = Place::entry; }

  void integer(int64_t value) override {
    if (place_ != Place::numbers || value < 0) refuse(std::to_string(value));
    (field_ == "shape" ? entry_.tensor.shape : offsets_).push_back(value);
  }

  void string(const std::string& value) override {
    if (place_ == Place::metadata) return;
    if (place_ != Place::entry || field_ != "dtype") refuse("a string");
    const auto* const known = std::ranges::find(named_dtypes, value, &NamedDType::name);
    if (known == named_dtypes.end()) fail(fmt::format("dtype {} is not F32, BF16 or F16; convert it", value));
    entry_.tensor.dtype = known->dtype;
  }

  void other(std::string_view text) override { refuse(text); }

 private:
  enum class Place : uint8_t { file, header, metadata, entry, numbers };

  [[noreturn]] void fail(const std::string& reason) const {
    const std::string tensor = name_.empty() ? "" : fmt::format(", tensor '{}'", name_);
    throw DataError(fmt::format("'{}' is not a safetensors file to be read{}: {}", path_.string(), tensor, reason));
  }

  [[noreturn]] void refuse(std::string_view what) const {
    switch (place_) {
      case Place::file:
        fail(fmt::format("its header is {}, not an object", what));
      case Place::header:
        fail(fmt::format("its entry is {}, not an object", what));
      case Place::metadata:
        fail(fmt::format("the value of '{}' is {}, not a string", field_, what));
      case Place::entry:
        fail(fmt::format("{} cannot be the value of '{}'", what, field_));
      default:
        fail(fmt::format("'{}' holds {} where integers from 0 on belong", field_, what));
    }
  }

  void finish_entry() {
    if (fields_ != std::set<std::string>{"data_offsets", "dtype", "shape"}) {
      fail(fmt::format("its entry has the keys {}, not dtype, shape and data_offsets", fmt::join(fields_, ", ")));
    }
    if (offsets_.size() != 2 || offsets_[0] > offsets_[1]) {
      fail(fmt::format("data_offsets [{}] are not the begin and the end of its bytes", fmt::join(offsets_, ", ")));
    }
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    if (checked_bytes(entry_.tensor) != entry_.end - entry_.begin) {
      fail(fmt::format("shape [{}] of {} does not take the {} bytes of data_offsets [{}, {}]",
                       fmt::join(entry_.tensor.shape, ", "), name_of(entry_.tensor.dtype), entry_.end - entry_.begin,
                       entry_.begin, entry_.end));
    }
    entry_.tensor.name = name_;
    entries_.push_back(std::move(entry_));
  }

  const std::filesystem::path& path_;
  Place place_ = Place::file;
  std::set<std::string> names_, fields_;  // seen in the header and in the object being read
  std::string name_, field_;              // keys of the value being read
  Entry entry_;
  std::vector<int64_t> offsets_;
  std::vector<Entry> entries_;
};

// Refuses entries, sorted by offset, that do not cover [0, data_size) exactly.
void check_cover(std::span<const Entry> entries, int64_t data_size, const std::filesystem::path& path) {
  int64_t end = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != end) {
      throw DataError(fmt::format("'{}', tensor '{}': its data begin at byte {} but the tensor before ends at {}: {}",
                                  path.string(), entry.tensor.name, entry.begin, end,
                                  entry.begin < end ? "they overlap" : "there is a gap"));
    }
    end = entry.end;
  }
  if (end != data_size) {
    throw DataError(fmt::format("'{}': its tensors take {} bytes of data but the file holds {}: {}", path.string(), end,
                                data_size,
                                end > data_size ? "it was cut off; fetch it again" : "bytes trail the last"));
  }
}

}  // namespace

std::map<std::string, StoredTensor> parse_safetensors_header(std::string_view json, const std::filesystem::path& path,
                                                             int64_t data_begin, int64_t file_size) {
  HeaderHandler handler(path);
  parse_json(json, fmt::format("the header of '{}'", path.string()), handler);
  std::vector<Entry> entries = handler.take();
  std::ranges::sort(entries, {}, [](const Entry& entry) { return std::pair(entry.begin, entry.end); });
  check_cover(entries, file_size - data_begin, path);

  std::map<std::string, StoredTensor> tensors;
  for (Entry& entry : entries) {
    entry.tensor.offset = data_begin + entry.begin;
    tensors.emplace(entry.tensor.name, std::move(entry.tensor));
  }
  return tensors;
}

std::string make_safetensors_header(std::span<const StoredTensor> tensors) {
  // transformers refuses a file whose metadata does not say which framework's layout it has.
  std::string header = R"({"__metadata__":{"format":"pt"})";
  std::set<std::string_view> names{"__metadata__"};
  int64_t begin = 0;
  for (const StoredTensor& tensor : tensors) {
    require(names.insert(tensor.name).second, "the tensors of a file have different names");
    const int64_t end = begin + tensor.bytes();
    header += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", quote_json(tensor.name),
                          name_of(tensor.dtype), fmt::join(tensor.shape, ","), begin, end);
    begin = end;
  }
  header += '}';
  header.resize(narrow<size_t>(round_up(std::ssize(header), 8)), ' ');
  require(std::ssize(header) <= largest_safetensors_header, "a header is within the format's limit");
  return header;
}

}  // namespace annulus
