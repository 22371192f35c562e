// What the process environment says about ranks, before MPI is asked. Everything but the first function is pure.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace annulus {

using Variables = std::map<std::string, std::string>;
Variables process_variables();

// How this process was started, as the launcher announced it in variables. One mpirun or srun is one launch; the shell
// of an allocation (salloc, the script of sbatch) is none, whatever SLURM_NTASKS says there.
struct Launch {
  enum class Kind { none, mpirun, srun, other };
  Kind kind = Kind::none;
  std::optional<int> ranks;  // of the whole launch; unknown where only PMIX_RANK is there
  int rank = 0;
  std::optional<int> local_ranks;  // on this node
  bool process_manager = false;    // MPI can meet its peers: PMI or PMIx variables are there
  std::string evidence = {};       // the variable that says so, for messages: "SLURM_STEP_NUM_TASKS=4"

  [[nodiscard]] bool present() const { return kind != Kind::none; }
};

// Throws EnvironmentError naming a variable that is not the number it should be.
Launch announced_launch(const Variables& variables);

// Cores a process may run on.
struct Cores {
  int own = 1;   // in this process's affinity mask
  int node = 1;  // in the mask of whoever started it, before a launcher bound the ranks
};

// Before MPI starts: throws EnvironmentError for srun without PMI and ConfigurationError where --ranks contradicts the
// launch. `command` is what was typed, for the line that fixes it.
void check_before_mpi(const Launch& launch, std::optional<int> ranks_option, const std::string& command);

// Before mpirun is started: throws ConfigurationError where this machine alone would get more than 64 ranks a core,
// which is a slip of the finger and would bring it down. Inside an allocation other machines take part.
void check_start(int ranks, const Variables& variables, const Cores& cores);

// After MPI has started: throws EnvironmentError unless MPI has the ranks that were announced. Otherwise every process
// would train alone and overwrite the others' results. ConfigurationError where --ranks asks for another number.
void check_after_mpi(const Launch& launch, int mpi_ranks, std::optional<int> ranks_option, const std::string& command);

// Cores of this process; `node` follows SLURM_CPUS_ON_NODE where that is set.
Cores available_cores(const Variables& variables);

// Threads for each rank so that the ranks of a node do not share cores: their fair share, and no more than the mask.
int threads_per_rank(const Launch& launch, const Cores& cores);

}  // namespace annulus
