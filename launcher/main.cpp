#include <csignal>
#include <cstdio>
#include <string>
#include <variant>
#include <vector>

#include "kernels/error.h"
#include "launcher/plan_command.h"
#include "launcher/train_command.h"

namespace {

using namespace annulus;

void run(const std::vector<std::string>& words, Job& job) {
  job.announce(announced_launch(process_variables()));
  const CommandLine line = parse_command_line(words);
  if (!line.answer.empty()) {
    std::fputs(line.answer.c_str(), stdout);
  } else if (const auto* plan = std::get_if<PlanArguments>(&line.command)) {
    plan_command(*plan);
  } else {
    train_command(std::get<TrainArguments>(line.command), words, job);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file over the limit is an error of its write, not the end of the process
  Job job;                        // outlives what may throw: it ends the other ranks
  try {
    run(std::vector<std::string>(argv, argv + argc), job);
    return static_cast<int>(ExitCode::done);
  } catch (...) {
    return job.fail();
  }
}
