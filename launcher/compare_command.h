// `annulus compare`: the same run at several rank counts, one after the other.
#pragma once

#include "launcher/command_line.h"
#include "launcher/environment.h"

namespace annulus {

// Runs every count once a round, so that a machine that grows slower does so for all, and prints a table on standard
// output. Results of the runs go to output.directory/compare. Throws annulus::Error, with the exit code of the run that
// failed.
void compare_command(const CompareArguments& arguments, const Launch& launch);

}  // namespace annulus
