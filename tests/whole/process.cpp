#include "tests/whole/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "tests/support/temporary_directory.h"

namespace annulus {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds longest_run(120);

// Becomes the program, as the head of a process group of its own.
[[noreturn]] void become(const Words& words, const std::map<std::string, std::string>& more_environment,
                         const std::filesystem::path& output) {
  setpgid(0, 0);
  const int descriptor = open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  dup2(descriptor, STDOUT_FILENO);
  dup2(descriptor, STDERR_FILENO);
  for (const auto& [name, value] : more_environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments.front(), arguments.data());
  _exit(127);
}

// The status waitpid() gives; nothing where time ran out.
bool wait_for(pid_t process, int& status) {
  const auto end = Clock::now() + longest_run;
  while (Clock::now() < end) {
    if (waitpid(process, &status, WNOHANG) == process) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  kill(-process, SIGKILL);
  waitpid(process, &status, 0);
  return false;
}

}  // namespace

Finished run_program(const Words& words, const std::map<std::string, std::string>& more_environment) {
  const TemporaryDirectory directory;
  const std::filesystem::path output = directory / "output";
  const pid_t process = fork();
  if (process < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (process == 0) become(words, more_environment, output);
  int status = 0;
  const bool in_time = wait_for(process, status);
  Finished finished{WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), bytes_of(output)};
  if (!in_time) throw std::runtime_error(words.front() + " did not end; its output so far:\n" + finished.output);
  return finished;
}

Finished run_annulus(const Words& words, const std::map<std::string, std::string>& more_environment) {
  Words all = {ANNULUS_EXECUTABLE};
  all.insert(all.end(), words.begin(), words.end());
  return run_program(all, more_environment);
}

Words under_mpirun(int ranks, const std::string& program, const Words& words) {
  Words all = {"mpirun",
               "-np",
               std::to_string(ranks),
               "--allow-run-as-root",
               "--oversubscribe",
               "--bind-to",
               "none",
               "--mca",
               "btl_vader_single_copy_mechanism",
               "none"};
  all.push_back(program);
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

std::vector<int> processes_with(const std::string& word) {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    int process = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), process).ec != std::errc()) continue;
    if (bytes_of(entry.path() / "cmdline").find(word) != std::string::npos) found.push_back(process);
  }
  return found;
}

}  // namespace annulus
