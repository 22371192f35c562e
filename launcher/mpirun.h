// Starting ranks: this process becomes mpirun, which starts annulus again, once for each rank.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace annulus {

// What starting depends on.
struct MpirunSituation {
  bool root = false;        // Open MPI refuses root unless told otherwise
  bool single_copy = true;  // process_vm_readv is allowed; containers often forbid it
};

// The command: mpirun, its flags, `executable` and the words after the program's name in `words`.
std::vector<std::string> mpirun_command(int ranks, const MpirunSituation& situation, const std::string& executable,
                                        std::span<const std::string> words);

// Does not return; throws EnvironmentError where mpirun cannot be started.
[[noreturn]] void start_under_mpirun(int ranks, std::span<const std::string> words);

// Whether somebody watches stderr on a terminal. Under start_under_mpirun it is a pipe, and this asks on behalf of
// mpirun.
bool watched_on_terminal();

}  // namespace annulus
