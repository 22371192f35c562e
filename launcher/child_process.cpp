#include "launcher/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <vector>

#include "kernels/error.h"
#include "kernels/file_descriptor.h"

namespace annulus {
namespace {

[[noreturn]] void become(const char* executable, char** words, int input, int output) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (dup2(input, STDIN_FILENO) >= 0 && dup2(output, STDOUT_FILENO) >= 0 && dup2(output, STDERR_FILENO) >= 0) {
    execv(executable, words);
  }
  _exit(127);
}

}  // namespace

int run_this_program(std::span<const std::string> words, const std::filesystem::path& log) {
  std::vector<std::string> command = {"annulus"};
  command.insert(command.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const FileDescriptor input(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const FileDescriptor output(open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (output.get() < 0) {
    throw EnvironmentError(fmt::format("cannot write '{}': {}", log.string(), std::strerror(errno)));
  }
  const pid_t child = fork();
  if (child == 0) become("/proc/self/exe", arguments.data(), input.get(), output.get());
  if (child < 0) throw EnvironmentError(fmt::format("a run cannot be started: {}", std::strerror(errno)));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace annulus
