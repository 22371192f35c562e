// `annulus plan`: what a run would need, without running it.
#pragma once

#include "launcher/command_line.h"
#include "launcher/environment.h"

namespace annulus {

// Prints the plan on standard output, under mpirun that of its ranks and on the first alone. Throws annulus::Error.
void plan_command(const PlanArguments& arguments, const Launch& launch);

}  // namespace annulus
