#include "launcher/environment.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>

#include "kernels/error.h"

namespace annulus {
namespace {

bool has(const Variables& variables, const std::string& name) {
  return variables.contains(name);
}

std::optional<int> number(const Variables& variables, const std::string& name, int least = 0) {
  const auto found = variables.find(name);
  if (found == variables.end()) return std::nullopt;
  const std::string& text = found->second;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least) {
    throw EnvironmentError(fmt::format(
        "the environment variable {} is \"{}\"; expected a number of at least {}, or unset it", name, text, least));
  }
  return value;
}

// Slurm's "4(x2),3": four on each of two nodes, three on the next. The largest, so that no node is overcommitted.
std::optional<int> most_tasks_on_a_node(const Variables& variables) {
  const auto found = variables.find("SLURM_STEP_TASKS_PER_NODE");
  if (found == variables.end()) return std::nullopt;
  int most = 0;
  std::string_view rest = found->second;
  while (!rest.empty()) {
    int tasks = 0;
    std::from_chars(rest.data(), rest.data() + rest.size(), tasks);
    most = std::max(most, tasks);
    rest.remove_prefix(std::min(rest.size(), rest.find(',')));
    if (!rest.empty()) rest.remove_prefix(1);
  }
  return most == 0 ? std::nullopt : std::optional<int>(most);
}

std::string evidence(const Variables& variables, const std::string& name) {
  return fmt::format("{}={}", name, variables.at(name));
}

Launch mpirun_launch(const Variables& variables) {
  return {.kind = Launch::Kind::mpirun,
          .ranks = number(variables, "OMPI_COMM_WORLD_SIZE", 1),
          .rank = number(variables, "OMPI_COMM_WORLD_RANK").value_or(0),
          .local_ranks = number(variables, "OMPI_COMM_WORLD_LOCAL_SIZE", 1),
          .process_manager = true,
          .evidence = evidence(variables, "OMPI_COMM_WORLD_SIZE")};
}

// The variable that says how many tasks srun started, if srun started this process. A step's own count is the one to
// trust: SLURM_NTASKS is the allocation's in the shells of salloc and sbatch, which have no step or a step of one task.
std::optional<std::string> srun_task_count(const Variables& variables) {
  if (!has(variables, "SLURM_STEP_ID") && number(variables, "SLURM_PROCID").value_or(0) == 0) return std::nullopt;
  for (const char* name : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}) {
    if (has(variables, name)) return name;
  }
  return std::nullopt;
}

Launch srun_launch(const Variables& variables, const std::string& task_count) {
  return {.kind = Launch::Kind::srun,
          .ranks = number(variables, task_count, 1),
          .rank = number(variables, "SLURM_PROCID").value_or(0),
          .local_ranks = most_tasks_on_a_node(variables),
          .process_manager = has(variables, "PMIX_RANK") || has(variables, "PMI_RANK"),
          .evidence = evidence(variables, task_count)};
}

Launch pmi_launch(const Variables& variables, const std::string& name) {
  const bool has_size = name == "PMI_SIZE";
  return {.kind = Launch::Kind::other,
          .ranks = has_size ? number(variables, name, 1) : std::nullopt,
          .rank = number(variables, has_size ? "PMI_RANK" : "PMIX_RANK").value_or(0),
          .local_ranks = std::nullopt,
          .process_manager = true,
          .evidence = evidence(variables, name)};
}

// The line that starts `ranks` ranks properly.
std::string remedy(const Launch& launch, int ranks, const std::string& command) {
  const std::string with_mpirun = fmt::format("`mpirun -np {} {}`", ranks, command);
  if (launch.kind != Launch::Kind::srun) return with_mpirun;
  return fmt::format("`srun --mpi=pmix --ntasks={} {}`, or in the allocation's shell {}", ranks, command, with_mpirun);
}

void refuse_other_ranks(const Launch& launch, int ranks, std::optional<int> ranks_option) {
  if (!ranks_option || *ranks_option == ranks) return;
  throw ConfigurationError(
      fmt::format("--ranks {} under a launcher that started {} ({}); leave --ranks out, or start {} ranks there",
                  *ranks_option, ranks, launch.evidence, *ranks_option));
}

int cores_of(pid_t process) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(process, sizeof mask, &mask) != 0) return 0;  // more than 1,024 cores, or not ours to ask
  return CPU_COUNT(&mask);
}

}  // namespace

Variables process_variables() {
  Variables variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos) variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

// The order matters: mpirun in a Slurm allocation starts its daemons with srun, so their step's variables are there too
// and count daemons.
Launch announced_launch(const Variables& variables) {
  if (has(variables, "OMPI_COMM_WORLD_SIZE")) return mpirun_launch(variables);
  if (const auto task_count = srun_task_count(variables)) {
    return number(variables, *task_count) == 1 ? Launch{} : srun_launch(variables, *task_count);
  }
  for (const char* name : {"PMI_SIZE", "PMIX_RANK"}) {
    if (has(variables, name)) return pmi_launch(variables, name);
  }
  return {};
}

void check_before_mpi(const Launch& launch, std::optional<int> ranks_option, const std::string& command) {
  if (!launch.process_manager && launch.ranks) {
    throw EnvironmentError(
        fmt::format("srun started {} processes ({}) without PMI, so that each would train alone; start them with {}",
                    *launch.ranks, launch.evidence, remedy(launch, *launch.ranks, command)));
  }
  if (launch.ranks) refuse_other_ranks(launch, *launch.ranks, ranks_option);
}

void check_after_mpi(const Launch& launch, int mpi_ranks, std::optional<int> ranks_option, const std::string& command) {
  if (launch.ranks && *launch.ranks != mpi_ranks) {
    throw EnvironmentError(
        fmt::format("{} ranks are announced ({}) but MPI has {}: whoever started them and annulus's Open MPI do not "
                    "know each other; "
                    "start them with {}",
                    *launch.ranks, launch.evidence, mpi_ranks, remedy(launch, *launch.ranks, command)));
  }
  refuse_other_ranks(launch, mpi_ranks, ranks_option);
}

void check_start(int ranks, const Variables& variables, const Cores& cores) {
  constexpr int64_t most_per_core = 64;
  for (const char* allocation : {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"}) {
    if (variables.contains(allocation)) return;
  }
  if (ranks <= most_per_core * cores.own) return;
  throw ConfigurationError(fmt::format(
      "--ranks {} is too many for this machine, which has {} cores: at most {} ranks a core may share it, {}", ranks,
      cores.own, most_per_core, most_per_core * cores.own));
}

Cores available_cores(const Variables& variables) {
  const int own = std::max(1, cores_of(0));
  const int starter = std::max(own, cores_of(getppid()));
  return {.own = own, .node = number(variables, "SLURM_CPUS_ON_NODE", 1).value_or(starter)};
}

int threads_per_rank(const Launch& launch, const Cores& cores) {
  if (!launch.present()) return cores.own;
  const int local_ranks = std::max(1, launch.local_ranks.value_or(launch.ranks.value_or(1)));
  return std::clamp(cores.node / local_ranks, 1, cores.own);
}

}  // namespace annulus
