#include "launcher/mpirun.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "kernels/error.h"

namespace annulus {
namespace {

constexpr const char* terminal_variable = "ANNULUS_ON_TERMINAL";  // set by start_under_mpirun for the ranks it starts

bool single_copy_allowed() {
  char from = 1, to = 0;
  const iovec source{&from, 1}, destination{&to, 1};
  return process_vm_readv(getpid(), &destination, 1, &source, 1, 0) == 1;
}

}  // namespace

std::vector<std::string> mpirun_command(int ranks, const MpirunSituation& situation, const std::string& executable,
                                        std::span<const std::string> words) {
  // Ranks are not bound, since each brings threads. More ranks than cores are wanted when trying things out; Open MPI
  // then yields while it waits, and changes nothing where cores suffice.
  std::vector<std::string> command = {"mpirun", "-np", std::to_string(ranks), "--bind-to", "none", "--oversubscribe"};
  if (situation.root) command.emplace_back("--allow-run-as-root");
  if (!situation.single_copy) {
    command.insert(command.end(), {"--mca", "btl_vader_single_copy_mechanism", "none"});
  }
  command.push_back(executable);
  command.insert(command.end(), words.begin() + 1, words.end());
  return command;
}

namespace {

// Open MPI keeps files of some megabytes between the ranks of a machine, and hangs where it may not.
void require_room_for_mpi() {
  constexpr rlim_t enough = 64 << 20;  // bytes
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= enough) return;
  throw MemoryError(
      fmt::format("files may be no larger than {} bytes here (ulimit -f), but mpirun needs {}; raise the limit",
                  limit.rlim_cur, enough));
}

}  // namespace

void start_under_mpirun(int ranks, std::span<const std::string> words) {
  require_room_for_mpi();
  if (isatty(STDERR_FILENO) == 1) setenv(terminal_variable, "1", 1);
  const MpirunSituation situation = {.root = geteuid() == 0, .single_copy = single_copy_allowed()};
  std::vector<std::string> command =
      mpirun_command(ranks, situation, std::filesystem::read_symlink("/proc/self/exe").string(), words);
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp("mpirun", arguments.data());
  if (errno == ENOENT) {
    throw EnvironmentError(
        "--ranks needs mpirun, which is not in PATH; install Open MPI (scripts/install_dependencies.sh, or the package "
        "openmpi-bin)");
  }
  throw EnvironmentError(fmt::format("mpirun cannot be started: {}", std::strerror(errno)));
}

bool watched_on_terminal() {
  return isatty(STDERR_FILENO) == 1 || std::getenv(terminal_variable) != nullptr;
}

}  // namespace annulus
