// `annulus plan`: what a run would need, without running it.
#pragma once

#include "launcher/command_line.h"

namespace annulus {

// Prints the plan on standard output. Throws annulus::Error.
void plan_command(const PlanArguments& arguments);

}  // namespace annulus
