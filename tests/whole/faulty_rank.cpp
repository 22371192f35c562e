// A rank that trains as annulus does and, if it is the chosen one, fails in the chosen phase and way:
//   faulty_rank RANK PHASE throw|kill|exit|_exit|heard MARK train CONFIG [section.key=value ...]
// heard: it throws, and the others' connections say in the same phase that it has gone.
// It creates the file MARK when it fails.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "launcher/command_line.h"
#include "launcher/config_file.h"
#include "launcher/environment.h"
#include "launcher/job.h"
#include "runtime/run.h"

namespace annulus {
namespace {

using Words = std::vector<std::string>;

[[noreturn]] void fail(const std::string& way) {
  if (way == "kill") raise(SIGKILL);
  if (way == "exit") std::exit(0);  // as if all were well: what a library that gives up may do
  if (way == "_exit") _exit(0);
  throw std::runtime_error("this rank was told to fail");
}

bool is_met(const std::string& phase_name, Phase phase, int64_t step) {
  return name_of(phase) == phase_name && step != 1;  // not the first step, so that the ranks have met
}

class FaultyListener : public Listener {
 public:
  FaultyListener(std::string phase, std::string way, std::filesystem::path mark)
      : phase_(std::move(phase)), way_(std::move(way)), mark_(std::move(mark)) {}

  void entered(Phase phase, int64_t step) override {
    if (!is_met(phase_, phase, step)) return;
    std::ofstream(mark_).flush();
    fail(way_);
  }

 private:
  std::string phase_, way_;
  std::filesystem::path mark_;
};

class HearingListener : public Listener {
 public:
  explicit HearingListener(std::string phase) : phase_(std::move(phase)) {}

  void entered(Phase phase, int64_t step) override {
    if (is_met(phase_, phase, step)) throw ConnectionError("a rank has gone");
  }

 private:
  std::string phase_;
};

void train_rank(const Words& words, Listener& listener, Transport& transport) {
  const TrainArguments arguments = std::get<TrainArguments>(parse_command_line(words).command);
  const Settings settings = load_settings(arguments.config, arguments.overrides);
  PreparedRun run = prepare(settings, transport.rank(), transport.size());
  const std::unique_ptr<Device> device = make_cpu_device({.threads = settings.runtime.threads});
  train(run, *device, transport, listener);
}

}  // namespace
}  // namespace annulus

int main(int argc, char** argv) {
  using namespace annulus;
  Job job;
  try {
    const Words words(argv, argv + argc);
    Words command = {"annulus"};
    command.insert(command.end(), words.begin() + 5, words.end());
    job.announce(announced_launch(process_variables()));
    Transport& transport = job.start_mpi({}, "annulus");
    FaultyListener faulty(words[2], words[3], words[4]);
    HearingListener hearing(words[2]);
    Listener sound;
    Listener& other = words[3] == "heard" ? static_cast<Listener&>(hearing) : sound;
    train_rank(command, std::to_string(transport.rank()) == words[1] ? faulty : other, transport);
    return 0;
  } catch (...) {
    return job.fail();
  }
}
