// Every failure Annulus reports, and the exit code the process ends with. Errors are thrown where they are noticed and
// caught once, in main, which prints one line and ends the job.
#pragma once

#include <source_location>
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

// Says what went wrong, with what, and what to do about it. `where` is the place in our source, for bug reports.
class Error : public std::runtime_error {
 public:
  Error(const std::string& message, ExitCode code, std::source_location where)
      : std::runtime_error(message), code_(code), where_(where) {}

  [[nodiscard]] ExitCode code() const noexcept { return code_; }
  [[nodiscard]] const std::source_location& where() const noexcept { return where_; }

 private:
  ExitCode code_;
  std::source_location where_;
};

// A mistake of ours: a broken promise between two parts of the program.
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& message, std::source_location where = std::source_location::current())
      : Error("internal error: " + message, ExitCode::failure, where) {}
};

class ConfigurationError : public Error {
 public:
  explicit ConfigurationError(const std::string& message, std::source_location where = std::source_location::current())
      : Error(message, ExitCode::configuration, where) {}
};

class DataError : public Error {
 public:
  explicit DataError(const std::string& message, std::source_location where = std::source_location::current())
      : Error(message, ExitCode::data, where) {}
};

class EnvironmentError : public Error {
 public:
  explicit EnvironmentError(const std::string& message, std::source_location where = std::source_location::current())
      : Error(message, ExitCode::environment, where) {}
};

class MemoryError : public Error {
 public:
  explicit MemoryError(const std::string& message, std::source_location where = std::source_location::current())
      : Error(message, ExitCode::memory, where) {}
};

// Throws InternalError unless `holds`; for promises between functions, never for user input.
inline void require(bool holds, const char* promise, std::source_location where = std::source_location::current()) {
  if (!holds) throw InternalError(promise, where);
}

}  // namespace annulus
