// One run at a time writes to an output directory.
#pragma once

#include <filesystem>

namespace annulus {

class OutputLock {
 public:
  // On rank 0 holds the directory until the process ends; EnvironmentError where another run does. File systems without
  // locks are taken to be free.
  OutputLock(const std::filesystem::path& directory, int rank);
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;
  ~OutputLock();

 private:
  int descriptor_ = -1;
};

}  // namespace annulus
