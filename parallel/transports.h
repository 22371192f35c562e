// The transports there are, and what the process environment says about ranks.
#pragma once

#include <functional>
#include <memory>

#include "parallel/transport.h"

namespace annulus {

// MPI, started and ended once a process.
class MpiSession {
 public:
  // Initialises MPI (FUNNELED); throws EnvironmentError naming what is missing.
  MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  ~MpiSession();

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;

  // Ends every rank of the job with this exit code.
  [[noreturn]] void abort(int exit_code) const noexcept;

  // Messages over MPI from host memory. One at a time.
  [[nodiscard]] std::unique_ptr<Transport> transport() const;
};

// Runs `rank_main` once for each of `ranks` ranks, as threads of this process. If one throws, the others' transports
// throw too, and the first cause is rethrown when all have ended.
void run_as_threads(int ranks, const std::function<void(Transport&)>& rank_main);

}  // namespace annulus
