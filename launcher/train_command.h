// `annulus train`: from a configuration to a trained model.
#pragma once

#include <span>
#include <string>

#include "launcher/command_line.h"
#include "launcher/job.h"

namespace annulus {

// `words`: the whole command line, the name of the program first, for starting it again under mpirun. Throws
// annulus::Error.
void train_command(const TrainArguments& arguments, std::span<const std::string> words, Job& job);

}  // namespace annulus
