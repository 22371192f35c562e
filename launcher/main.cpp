#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <variant>
#include <vector>

#include "kernels/error.h"
#include "launcher/compare_command.h"
#include "launcher/plan_command.h"
#include "launcher/print.h"
#include "launcher/train_command.h"

namespace {

using namespace annulus;

void run(const std::vector<std::string>& words, Job& job) {
  job.announce(announced_launch(process_variables()));
  const CommandLine line = parse_command_line(words);
  if (!line.answer.empty()) {
    print(line.answer);
  } else if (const auto* plan = std::get_if<PlanArguments>(&line.command)) {
    plan_command(*plan, job.launch());
  } else if (const auto* compare = std::get_if<CompareArguments>(&line.command)) {
    compare_command(*compare, job.launch());
  } else {
    train_command(std::get<TrainArguments>(line.command), words, job);
  }
}

// A file opened later would otherwise take the number of a stream that is closed, and be written to by the log.
void open_standard_streams() {
  while (true) {
    const int descriptor = ::open("/dev/null", O_RDWR);
    if (descriptor > STDERR_FILENO) ::close(descriptor);
    if (descriptor < 0 || descriptor > STDERR_FILENO) return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file over the limit is an error of its write, not the end of the process
  Job job;                        // outlives what may throw: it ends the other ranks
  try {
    run(std::vector<std::string>(argv, argv + argc), job);
    return static_cast<int>(ExitCode::done);
  } catch (...) {
    return job.fail();
  }
}
