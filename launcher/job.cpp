#include "launcher/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <new>
#include <thread>

#include "kernels/error.h"

namespace annulus {
namespace {

struct Failure {
  std::string message;
  ExitCode code = ExitCode::failure;
  bool of_connection = false;  // so another rank has failed before
};

Failure current_failure() {
  try {
    throw;
  } catch (const InternalError& error) {
    return {fmt::format("{} ({}:{})", error.what(), error.where().file(), error.where().line()), error.code()};
  } catch (const ConnectionError& error) {
    return {error.what(), error.code(), true};
  } catch (const Error& error) {
    return {error.what(), error.code()};
  } catch (const std::bad_alloc&) {
    return {"out of host memory; use fewer ranks on this machine or a smaller data.sequence_length", ExitCode::memory};
  } catch (const std::exception& error) {
    return {error.what(), ExitCode::failure};
  } catch (...) {
    return {"an exception of unknown type", ExitCode::failure};
  }
}

// In one line that a terminal shows as it is: what a message quotes may hold anything, of any length.
std::string in_one_line(std::string_view message) {
  constexpr size_t most = 4000;
  std::string line;
  for (const char character : message.substr(0, most)) {
    const auto byte = static_cast<unsigned char>(character);
    line += byte < 0x20 || byte == 0x7F ? fmt::format("\\x{:02x}", byte) : std::string(1, character);
  }
  return message.size() > most ? line + " ..." : line;
}

// Most errors meet every rank. Rank 0 speaks first and takes the others down, for which mpirun needs about a second
// where MPI has not started yet; who is still there afterwards has an error of its own to report. Last come those that
// have only heard of an error.
void let_the_cause_speak(int rank, bool of_connection) {
  using std::chrono::milliseconds;
  if (of_connection) std::this_thread::sleep_for(milliseconds(5000));
  if (rank > 0) std::this_thread::sleep_for(milliseconds(2000 + 20 * std::min(rank, 100)));
}

}  // namespace

Transport& Job::start_mpi(std::optional<int> ranks_option, const std::string& command) {
  session_.emplace();
  check_after_mpi(launch_, session_->size(), ranks_option, command);
  transport_ = session_->transport();
  return *transport_;
}

int Job::fail() noexcept {
  const Failure failure = current_failure();
  let_the_cause_speak(transport_ ? transport_->rank() : launch_.rank, failure.of_connection);
  // What the configuration lacks, or the launch, is not one rank's fault.
  const bool of_one_rank = transport_ && transport_->size() > 1 && failure.code != ExitCode::configuration;
  const std::string rank = of_one_rank ? fmt::format("rank {}: ", transport_->rank()) : "";
  std::fputs(fmt::format("annulus: error: {}{}\n", rank, in_one_line(failure.message)).c_str(), stderr);
  if (session_ && session_->size() > 1) session_->abort(static_cast<int>(failure.code));
  return static_cast<int>(failure.code);
}

}  // namespace annulus
