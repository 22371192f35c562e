// What the ranks of a run tell each other before it starts.
#pragma once

#include <cstdint>
#include <string>

#include "parallel/transport.h"

namespace annulus {

// The smallest of what the ranks say, the same on all of them.
int64_t smallest_of_all(int64_t value, Transport& transport);

// ConfigurationError, on every rank, naming those whose `text` is not that of rank 0.
void require_agreement(const std::string& text, Transport& transport);

}  // namespace annulus
