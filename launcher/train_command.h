// `annulus train`: from words on the command line to a trained model.
#pragma once

#include <span>
#include <string>

#include "launcher/job.h"

namespace annulus {

// Runs what `words`, the name of the program first, ask for. Throws annulus::Error.
void run_command(std::span<const std::string> words, Job& job);

}  // namespace annulus
