// This process's part in the job: how it was started, its MPI session, and how it ends when something fails.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "launcher/environment.h"
#include "parallel/transports.h"

namespace annulus {

class Job {
 public:
  void announce(Launch launch) { launch_ = std::move(launch); }
  [[nodiscard]] const Launch& launch() const { return launch_; }

  // This process among those of its machine, from 0; 0 without MPI.
  [[nodiscard]] int local_rank() const { return session_ ? session_->local_rank() : 0; }

  // Starts MPI and checks that it has the ranks that were announced.
  Transport& start_mpi(std::optional<int> ranks_option, const std::string& command);

  // Called where an exception has been caught: reports it in one line on stderr and ends every rank of the job, or,
  // without MPI, returns the exit code.
  [[nodiscard]] int fail() noexcept;

 private:
  Launch launch_;
  std::optional<MpiSession> session_;
  std::unique_ptr<Transport> transport_;
};

}  // namespace annulus
