// What somebody watching a run sees: on a terminal one line rewritten in place, elsewhere one line a step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/run.h"

namespace annulus {

// The log goes to stderr, from rank 0 alone.
void start_log(int rank);

std::string duration_text(double seconds);                         // "1h02m", "3m05s", "42s"
std::string step_text(const StepReport& report);                   // "step 3/100  loss 5.1234  1,234 tokens/s"
double seconds_left(double elapsed, int64_t done, int64_t steps);  // at the pace so far

// For rank 0 one that reports, for the others one that does not.
std::unique_ptr<Listener> make_listener(int rank, bool on_terminal);

}  // namespace annulus
