#include <csignal>
#include <string>
#include <vector>

#include "kernels/error.h"
#include "launcher/train_command.h"

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file over the limit is an error of its write, not the end of the process
  annulus::Job job;               // outlives what may throw: it ends the other ranks
  try {
    annulus::run_command(std::vector<std::string>(argv, argv + argc), job);
    return static_cast<int>(annulus::ExitCode::done);
  } catch (...) {
    return job.fail();
  }
}
