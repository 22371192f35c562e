// Programs started by tests, with a limit on how long they may take.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace annulus {

using Words = std::vector<std::string>;

struct Finished {
  int exit_code = 0;   // 128 + n where signal n ended it
  std::string output;  // stdout and stderr, as they came
};

// Throws where the program is not done after two minutes; it and what it started are then killed.
Finished run_program(const Words& words, const std::map<std::string, std::string>& more_environment = {});

// The product with `words` behind its name.
Finished run_annulus(const Words& words, const std::map<std::string, std::string>& more_environment = {});

// mpirun with the flags that any machine of tests needs: root, fewer cores than ranks, a container.
Words under_mpirun(int ranks, const std::string& program, const Words& words);

// Process ids whose command line has `word` in it.
std::vector<int> processes_with(const std::string& word);

}  // namespace annulus
