// Every failure Annulus reports, and the exit code the process ends with. Errors are thrown where they are noticed and
// caught once, in main, which prints one line and ends the job.
#pragma once

#include <stdexcept>
#include <string>

namespace annulus {

// Process exit codes, part of the contract with scripts.
enum class ExitCode : int {
  done = 0,
  failure = 1,        // anything without a code of its own
  configuration = 2,  // usage or configuration
  data = 3,           // bad data, weights or checkpoint
  environment = 4,    // MPI, devices, libraries, the machine
  memory = 5,         // memory or disk too small
};

// A place in our source. std::source_location does the same, but clang has it only from 16 on.
class SourceLocation {
 public:
  static constexpr SourceLocation current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
  [[nodiscard]] constexpr const char* file() const { return file_; }
  [[nodiscard]] constexpr int line() const { return line_; }

 private:
  constexpr SourceLocation(const char* file, int line) : file_(file), line_(line) {}

  const char* file_;
  int line_;
};

// Says what went wrong, with what, and what to do about it. `where` is the place in our source, for bug reports.
class Error : public std::runtime_error {
 public:
  Error(const std::string& message, ExitCode code, SourceLocation where)
      : std::runtime_error(message), code_(code), where_(where) {}

  [[nodiscard]] ExitCode code() const noexcept { return code_; }
  [[nodiscard]] const SourceLocation& where() const noexcept { return where_; }

 private:
  ExitCode code_;
  SourceLocation where_;
};

// A mistake of ours: a broken promise between two parts of the program.
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& message, SourceLocation where = SourceLocation::current())
      : Error("internal error: " + message, ExitCode::failure, where) {}
};

class ConfigurationError : public Error {
 public:
  explicit ConfigurationError(const std::string& message, SourceLocation where = SourceLocation::current())
      : Error(message, ExitCode::configuration, where) {}
};

class DataError : public Error {
 public:
  explicit DataError(const std::string& message, SourceLocation where = SourceLocation::current())
      : Error(message, ExitCode::data, where) {}
};

class EnvironmentError : public Error {
 public:
  explicit EnvironmentError(const std::string& message, SourceLocation where = SourceLocation::current())
      : Error(message, ExitCode::environment, where) {}
};

// What a rank's connection to the others says. As a rule another rank has failed, and reports why.
class ConnectionError : public EnvironmentError {
 public:
  explicit ConnectionError(const std::string& message, SourceLocation where = SourceLocation::current())
      : EnvironmentError(message, where) {}
};

class MemoryError : public Error {
 public:
  explicit MemoryError(const std::string& message, SourceLocation where = SourceLocation::current())
      : Error(message, ExitCode::memory, where) {}
};

// Throws InternalError unless `holds`; for promises between functions, never for user input.
inline void require(bool holds, const char* promise, SourceLocation where = SourceLocation::current()) {
  if (!holds) throw InternalError(promise, where);
}

}  // namespace annulus
