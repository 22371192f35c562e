#include "launcher/environment.h"

#include <gtest/gtest.h>

#include <functional>

#include "kernels/error.h"

namespace annulus {
namespace {

using Kind = Launch::Kind;

const Variables under_mpirun = {{"OMPI_COMM_WORLD_SIZE", "4"},
                                {"OMPI_COMM_WORLD_RANK", "3"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                {"PMIX_RANK", "3"}};

const Variables under_srun = {{"SLURM_JOB_ID", "9"},  {"SLURM_NTASKS", "4"},
                              {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"},
                              {"SLURM_PROCID", "2"},  {"SLURM_STEP_TASKS_PER_NODE", "1,3"}};

Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

std::string message_of(const std::function<void()>& call, ExitCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "accepted";
}

TEST(AnnouncedLaunch, IsNoneInAPlainShell) {
  EXPECT_EQ(announced_launch({{"HOME", "/root"}}).kind, Kind::none);
}

TEST(AnnouncedLaunch, ReadsWhatMpirunSays) {
  const Launch launch = announced_launch(under_mpirun);
  EXPECT_EQ(launch.kind, Kind::mpirun);
  EXPECT_EQ(launch.ranks, 4);
  EXPECT_EQ(launch.rank, 3);
  EXPECT_EQ(launch.local_ranks, 2);
}

TEST(AnnouncedLaunch, ReadsWhatSrunSays) {
  const Launch launch = announced_launch(with(under_srun, "PMIX_RANK", "2"));
  EXPECT_EQ(launch.kind, Kind::srun);
  EXPECT_EQ(launch.ranks, 4);
  EXPECT_EQ(launch.rank, 2);
  EXPECT_EQ(launch.local_ranks, 3);
  EXPECT_TRUE(launch.process_manager);
}

TEST(AnnouncedLaunch, ReadsRepeatedNodesOfSrun) {
  const Launch launch = announced_launch(with(under_srun, "SLURM_STEP_TASKS_PER_NODE", "2(x16),1"));
  EXPECT_EQ(launch.local_ranks, 2);
}

TEST(AnnouncedLaunch, IsNoneInTheScriptOfSbatch) {
  const Variables batch = {{"SLURM_JOB_ID", "9"}, {"SLURM_NTASKS", "4"}, {"SLURM_NPROCS", "4"}, {"SLURM_PROCID", "0"}};
  EXPECT_EQ(announced_launch(batch).kind, Kind::none);
}

TEST(AnnouncedLaunch, IsNoneInTheShellThatSallocRunsAsAStep) {
  const Variables shell = {
      {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEP_NUM_TASKS", "1"}};
  EXPECT_EQ(announced_launch(shell).kind, Kind::none);
}

TEST(AnnouncedLaunch, BelievesMpirunInsideAStepOfItsDaemons) {
  Variables both = under_mpirun;
  both.insert(under_srun.begin(), under_srun.end());
  both["SLURM_STEP_NUM_TASKS"] = "2";
  EXPECT_EQ(announced_launch(both).kind, Kind::mpirun);
  EXPECT_EQ(announced_launch(both).ranks, 4);
}

TEST(AnnouncedLaunch, RefusesAVariableThatIsNoNumber) {
  const auto message = [](const Variables& variables) {
    return message_of([&] { announced_launch(variables); }, ExitCode::environment);
  };
  EXPECT_EQ(message({{"OMPI_COMM_WORLD_SIZE", "many"}}),
            "the environment variable OMPI_COMM_WORLD_SIZE is \"many\"; expected a number of at least 1, or unset it");
  EXPECT_EQ(message({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "0"}}),
            "the environment variable OMPI_COMM_WORLD_LOCAL_SIZE is \"0\"; expected a number of at least 1, or unset "
            "it");
}

TEST(CheckBeforeMpi, RefusesSrunWithoutPmiAndSaysWhatToType) {
  const auto check = [] { check_before_mpi(announced_launch(under_srun), std::nullopt, "annulus train a.yaml"); };
  EXPECT_EQ(
      message_of(check, ExitCode::environment),
      "srun started 4 processes (SLURM_STEP_NUM_TASKS=4) without PMI, so that each would train alone; start them with "
      "`srun --mpi=pmix --ntasks=4 annulus train a.yaml`, or in the allocation's shell `mpirun -np 4 annulus train "
      "a.yaml`");
}

TEST(CheckBeforeMpi, RefusesRanksThatContradictTheLaunch) {
  const auto check = [](int ranks) { check_before_mpi(announced_launch(under_mpirun), ranks, "annulus"); };
  EXPECT_NO_THROW(check(4));
  EXPECT_EQ(
      message_of([&] { check(2); }, ExitCode::configuration),
      "--ranks 2 under a launcher that started 4 (OMPI_COMM_WORLD_SIZE=4); leave --ranks out, or start 2 ranks there");
}

TEST(CheckBeforeMpi, AcceptsSrunWithPmixAndNoLaunchAtAll) {
  EXPECT_NO_THROW(check_before_mpi(announced_launch(with(under_srun, "PMIX_RANK", "0")), std::nullopt, "annulus"));
  EXPECT_NO_THROW(check_before_mpi(Launch(), 8, "annulus"));
}

TEST(CheckAfterMpi, RefusesAnnouncedRanksThatMpiDoesNotHave) {
  const Launch launch = announced_launch({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}});
  const auto check = [&](int mpi_ranks) { check_after_mpi(launch, mpi_ranks, std::nullopt, "annulus train a.yaml"); };
  EXPECT_NO_THROW(check(2));
  EXPECT_EQ(
      message_of([&] { check(1); }, ExitCode::environment),
      "2 ranks are announced (PMI_SIZE=2) but MPI has 1: whoever started them and annulus's Open MPI do not know each "
      "other; start them with `mpirun -np 2 annulus train a.yaml`");
}

TEST(CheckAfterMpi, RefusesOtherRanksThanAskedForWhereNobodyAnnouncedANumber) {
  const Launch launch = announced_launch({{"PMIX_RANK", "1"}});
  EXPECT_EQ(launch.ranks, std::nullopt);
  EXPECT_NO_THROW(check_after_mpi(launch, 3, 3, "annulus"));
  EXPECT_THROW(check_after_mpi(launch, 1, 3, "annulus"), ConfigurationError);
}

TEST(StartingRanks, IsRefusedWhereOneMachineCouldNotBearThem) {
  EXPECT_NO_THROW(check_start(128, {}, {.own = 2, .node = 2}));
  EXPECT_THROW(check_start(129, {}, {.own = 2, .node = 2}), ConfigurationError);
  EXPECT_THROW(check_start(1'000'000, {}, {.own = 2, .node = 2}), ConfigurationError);
  EXPECT_NO_THROW(check_start(1'000'000, {{"SLURM_JOB_ID", "7"}}, {.own = 2, .node = 2}));
}

TEST(ThreadsPerRank, AreAllCoresForOneRank) {
  EXPECT_EQ(threads_per_rank(Launch(), {.own = 8, .node = 64}), 8);
}

TEST(ThreadsPerRank, ShareANodeFairly) {
  const Launch two = {.kind = Kind::mpirun, .ranks = 4, .local_ranks = 2};
  EXPECT_EQ(threads_per_rank(two, {.own = 32, .node = 32}), 16);
  EXPECT_EQ(threads_per_rank(two, {.own = 1, .node = 32}), 1);    // bound to a core each
  EXPECT_EQ(threads_per_rank(two, {.own = 16, .node = 32}), 16);  // bound to a socket each
  EXPECT_EQ(threads_per_rank(two, {.own = 1, .node = 1}), 1);     // more ranks than cores
}

TEST(ThreadsPerRank, ShareASocketThatSeveralRanksAreBoundTo) {
  const Launch four = {.kind = Kind::mpirun, .ranks = 4, .local_ranks = 4};
  EXPECT_EQ(threads_per_rank(four, {.own = 16, .node = 32}), 8);
}

// Not every srun tells a step's own count, and only srun gives a task another number than 0.
TEST(AnnouncedLaunch, IsSrunsWhereOnlyTheAllocationsCountIsKnown) {
  const Variables first = {{"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}};
  const Variables second = {{"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "1"}};
  for (const Variables& variables : {first, second}) {
    const Launch launch = announced_launch(variables);
    EXPECT_EQ(launch.kind, Launch::Kind::srun);
    EXPECT_EQ(launch.ranks, 2);
    EXPECT_FALSE(launch.process_manager);
  }
}

TEST(AvailableCores, FollowsSlurmsShareOfTheNode) {
  const Cores cores = available_cores({{"SLURM_CPUS_ON_NODE", "7"}});
  EXPECT_EQ(cores.node, 7);
  EXPECT_GE(cores.own, 1);
  EXPECT_GE(available_cores({}).node, cores.own);
}

}  // namespace
}  // namespace annulus
