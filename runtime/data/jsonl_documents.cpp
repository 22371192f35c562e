#include "runtime/data/jsonl_documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/error.h"
#include "kernels/narrow.h"
#include "runtime/files/json.h"

namespace annulus {

namespace {

constexpr int64_t no_label_in_files = -100;

// Collects input_ids and labels of one line and lets every other key pass.
class LineHandler final : public JsonHandler {
 public:
  LineHandler(const std::string& source, int64_t vocabulary) : source_(source), vocabulary_(vocabulary) {}

  // What the line held; a missing "labels" is a copy.
  JsonlDocuments::Document take() {
    if (!tokens_.seen) fail("there is no key 'input_ids'");
    if (labels_.seen && labels_.values.size() != tokens_.values.size()) {
      fail(fmt::format("it has {} input_ids but {} labels; give one label for each token (-100: none)",
                       tokens_.values.size(), labels_.values.size()));
    }
    if (!labels_.seen) labels_.values = tokens_.values;
    return {std::move(tokens_.values), std::move(labels_.values)};
  }

  void begin_object() override {
    if (depth_ > 0) expect_ignored("an object");
    ++depth_;
  }
  void end_object() override { --depth_; }

  void begin_array() override {
    if (depth_ == 0 || (depth_ > 1 && field_ != nullptr)) refuse("an array");
    ++depth_;
  }
  void end_array() override { --depth_; }

  void key(const std::string& name) override {
    if (depth_ != 1) return;
    field_ = name == "input_ids" ? &tokens_ : name == "labels" ? &labels_ : nullptr;
    if (field_ != nullptr && std::exchange(field_->seen, true)) fail(fmt::format("the key '{}' appears twice", name));
  }

  void integer(int64_t value) override {
    if (field_ == nullptr && depth_ > 0) return;
    if (depth_ != 2) refuse(std::to_string(value));
    if (field_ == &labels_ && value == no_label_in_files) {
      field_->values.push_back(no_label);
    } else if (value < 0 || value >= vocabulary_) {
      refuse_out_of_range(value);
    } else {
      field_->values.push_back(static_cast<int32_t>(value));
    }
  }

  void string(const std::string& /*value*/) override { expect_ignored("a string"); }
  void other(std::string_view text) override { expect_ignored(text); }

 private:
  struct Field {
    const char* name;
    bool seen = false;
    std::vector<int32_t> values = {};
  };

  [[noreturn]] void fail(const std::string& reason) const { throw DataError(fmt::format("{}: {}", source_, reason)); }

  void expect_ignored(std::string_view what) const {
    if (depth_ == 0 || field_ != nullptr) refuse(what);
  }

  [[noreturn]] void refuse(std::string_view what) const {
    if (depth_ == 0) fail(fmt::format("it is {}, not an object with the key 'input_ids'", what));
    if (depth_ == 1) fail(fmt::format("'{}' is {}, not an array of integers", field_->name, what));
    fail(fmt::format("offset {}: {} holds {}, which is not an integer", field_->values.size(), field_->name, what));
  }

  [[noreturn]] void refuse_out_of_range(int64_t value) const {
    const char* const allowed = field_ == &labels_ ? "a label is -100 (none) or a token" : "a token is";
    fail(
        fmt::format("offset {}: {} holds {}, but {} from 0 to {}, the model's vocabulary; was it made with another "
                    "tokenizer?",
                    field_->values.size(), field_->name, value, allowed, vocabulary_ - 1));
  }

  const std::string& source_;
  int64_t vocabulary_;
  int64_t depth_ = 0;
  Field tokens_{"input_ids"}, labels_{"labels"};
  Field* field_ = nullptr;  // whose value is being read; null for other keys
};

std::string name_of(const InputFile& file, int64_t line) {
  return fmt::format("'{}', the document in line {}", file.path().string(), line);
}

JsonlDocuments::Document parse_line(std::string_view text, const std::string& source, int64_t vocabulary) {
  LineHandler handler(source, vocabulary);
  parse_json(text, source, handler);
  return handler.take();
}

// Calls `visit` with the offset and the text of every line, without the line feed.
void for_each_line(const InputFile& file, const std::function<void(int64_t, std::string_view)>& visit) {
  constexpr int64_t piece = int64_t{1} << 20;
  std::string line, buffer;
  int64_t begin = 0;  // of the line
  for (int64_t offset = 0; offset < file.size(); offset += std::ssize(buffer)) {
    buffer.resize(narrow<size_t>(std::min(piece, file.size() - offset)));
    file.read(offset, std::as_writable_bytes(std::span(buffer)));
    size_t done = 0;
    for (size_t feed; (feed = buffer.find('\n', done)) != std::string::npos; done = feed + 1) {
      line.append(buffer, done, feed - done);
      visit(begin, line);
      begin += std::ssize(line) + 1;
      line.clear();
    }
    line.append(buffer, done);
  }
  if (!line.empty()) visit(begin, line);
}

bool has_answer(const JsonlDocuments::Document& document) {
  return std::any_of(document.labels.begin() + 1, document.labels.end(),
                     [](int32_t label) { return label != no_label; });
}

}  // namespace

JsonlDocuments::JsonlDocuments(const std::filesystem::path& path, int64_t vocabulary)
    : file_(path), vocabulary_(vocabulary) {
  int64_t number = 0;
  bool answered = false;
  for_each_line(file_, [&](int64_t offset, std::string_view text) {
    ++number;
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) return;
    const Document document = parse_line(text, name_of(file_, number), vocabulary_);
    if (document.tokens.empty()) return;
    lines_.push_back({offset, std::ssize(text), number, std::ssize(document.tokens)});
    answered = answered || has_answer(document);
  });
  if (lines_.empty()) throw DataError(fmt::format("data.train '{}' holds no token", path.string()));
  if (!answered) {
    throw DataError(
        fmt::format("data.train '{}' has nothing to learn: no document has a label other than -100 after its "
                    "first token",
                    path.string()));
  }
}

int64_t JsonlDocuments::length(int64_t document) const {
  return lines_[narrow<size_t>(document)].tokens;
}

void JsonlDocuments::read(int64_t document, int64_t first, std::span<int32_t> tokens, std::span<int32_t> labels) const {
  const Line& line = lines_[narrow<size_t>(document)];
  require(tokens.size() == labels.size() && first >= 0 && first + std::ssize(tokens) <= line.tokens,
          "a document is read within its length");
  if (document != parsed_) {
    std::string text(narrow<size_t>(line.bytes), '\0');
    file_.read(line.offset, std::as_writable_bytes(std::span(text)));
    parsed_ = -1;
    const std::string name = name_of(file_, line.number);
    document_ = parse_line(text, name, vocabulary_);
    if (std::ssize(document_.tokens) != line.tokens) {
      throw DataError(
          fmt::format("{} is not what it was when training began; leave data.train alone until the end", name));
    }
    parsed_ = document;
  }
  std::copy_n(document_.tokens.begin() + first, tokens.size(), tokens.begin());
  std::copy_n(document_.labels.begin() + first, labels.size(), labels.begin());
}

}  // namespace annulus
