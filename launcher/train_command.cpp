#include "launcher/train_command.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <sstream>

#include "kernels/device.h"
#include "launcher/agreement.h"
#include "launcher/budget.h"
#include "launcher/command_line.h"
#include "launcher/config_file.h"
#include "launcher/device_choice.h"
#include "launcher/mpirun.h"
#include "launcher/occupied.h"
#include "launcher/output_lock.h"
#include "launcher/print.h"
#include "launcher/progress.h"
#include "runtime/outside.h"
#include "runtime/plan.h"
#include "runtime/run.h"

namespace annulus {
namespace {

std::string joined(std::span<const std::string> words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// What of its machine a rank has.
struct Seat {
  int local_ranks = 1;  // that share it
  int threads = 1;
  int gpu = 0;  // where it computes on one
};

// Decides what is kept and what is computed again, and makes a device with the memory that takes, and not a byte more.
std::unique_ptr<Device> make_device(PreparedRun& run, const Seat& seat, const Budget& budget) {
  const DeviceOptions options = {
      .threads = seat.threads,
      .gpu = seat.gpu,
      .reserved_multiprocessors = choose_reserved_multiprocessors(run.settings, run.mesh.size()),
      .poison = run.settings.debug.poison,
      .offload_directory = offload_directory(run.settings)};
  RankPlan plan = fit_rank(run.settings, run.model, run.mesh, seat.threads, budget);
  run.memory = plan.rule;
  check_machine(plan, run, seat.local_ranks);
  spdlog::info("memory: {} bytes of {} a rank, with {}", plan.memory.extent, budget.memory, plan.rule.to_string());
  const Outside outside = outside_of(run);
  spdlog::info("outside of that: {} bytes a rank, {}", outside.bytes, outside.what);
  const auto& [host, disk] = plan.memory.stored;
  if (host > 0) spdlog::info("host memory: {} bytes a rank", host);
  if (disk > 0) spdlog::info("disk: {} bytes a rank in {}", disk, options.offload_directory.string());
  if (run.settings.runtime.device == DeviceKind::cuda) return make_cuda_device(options, std::move(plan.memory));
  return make_cpu_device(options, std::move(plan.memory));
}

int choose_threads(const Settings& settings, const Launch& launch) {
  if (settings.runtime.threads > 0) return settings.runtime.threads;
  const Cores cores = available_cores(process_variables());
  const int threads = threads_per_rank(launch, cores);
  const int share = threads_per_rank(launch, {.own = cores.node, .node = cores.node});
  if (threads < share) {
    spdlog::info(
        "warning: each rank is bound to {} of the {} cores that are its share; mpirun --bind-to none lifts that",
        threads, share);
  }
  return threads;
}

Seat take_seat(const Settings& settings, const Launch& launch, int local_rank, int local_ranks) {
  const bool on_gpu = settings.runtime.device == DeviceKind::cuda;
  return {.local_ranks = local_ranks,
          .threads = choose_threads(settings, launch),
          .gpu = on_gpu ? choose_gpu(settings, local_rank, local_ranks) : 0};
}

void log_lines(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) spdlog::info(line);
}

void show_dry_run(const PreparedRun& run) {
  if (run.mesh.rank == 0) print(run.summary() + "nothing trained\n");
}

// What train() would be given: all checks, and the device, whose memory is reserved but not touched.
struct ReadyRun {
  PreparedRun run;
  std::unique_ptr<Device> device;
};

ReadyRun make_ready(PreparedRun run, const Seat& seat, const Budget& budget) {
  ReadyRun ready{std::move(run), nullptr};
  ready.device = make_device(ready.run, seat, budget);
  spdlog::info("ranks: {}, each on {}; results in {}", ready.run.mesh.size(), ready.device->description(),
               ready.run.settings.output.directory.string());
  return ready;
}

// One rank from beginning to end; all ranks do the same.
void train_rank(const TrainArguments& arguments, const Settings& settings, const Launch& launch, int local_rank,
                Transport& transport) {
  start_log(transport.rank());
  require_agreement(arguments.dry_run ? "a dry run" : "a run", transport);
  const int local_ranks = launch.local_ranks.value_or(transport.size());
  const Seat seat = take_seat(settings, launch, local_rank, local_ranks);
  Budget budget = budget_of(settings, transport.size(), local_ranks, seat.gpu);
  for (int64_t* bytes : {&budget.memory, &budget.host, &budget.disk}) *bytes = smallest_of_all(*bytes, transport);
  PreparedRun run = prepare(settings, transport.rank(), transport.size());
  require_agreement(run.fingerprint(), transport);
  ReadyRun ready = make_ready(std::move(run), seat, budget);
  if (arguments.dry_run) return show_dry_run(ready.run);
  log_lines(ready.run.summary());
  const OutputLock lock(settings.output.directory, transport.rank());
  const std::unique_ptr<Listener> listener = make_listener(transport.rank(), watched_on_terminal());
  const std::unique_ptr<Transport> between_devices = make_device_transport(settings, transport, *ready.device);
  train(ready.run, *ready.device, between_devices ? *between_devices : transport, *listener);
  const int64_t planned = ready.device->memory().peak_bytes();
  spdlog::info(
      "done; {}; results in {}",
      settings.runtime.device == DeviceKind::cuda ? taken_of_gpu(seat.gpu, planned) : taken_by_process(planned),
      settings.output.directory.string());
}

// A dry run of several ranks does not need them.
void dry_run(const Settings& settings, int ranks) {
  start_log(0);
  const Launch launch = {.kind = Launch::Kind::mpirun, .ranks = ranks, .local_ranks = ranks};
  const Seat seat = take_seat(settings, launch, 0, ranks);
  show_dry_run(make_ready(prepare(settings, 0, ranks), seat, budget_of(settings, ranks, ranks, seat.gpu)).run);
}

}  // namespace

void train_command(const TrainArguments& arguments, std::span<const std::string> words, Job& job) {
  Settings settings = load_settings(arguments.config, arguments.overrides);
  settings.runtime.device = choose_device(settings);
  const Launch& launch = job.launch();
  check_before_mpi(launch, arguments.ranks, joined(words));
  const int ranks = arguments.ranks.value_or(1);
  if (launch.present()) {
    Transport& transport = job.start_mpi(arguments.ranks, joined(words));
    train_rank(arguments, settings, launch, job.local_rank(), transport);
  } else if (arguments.dry_run) {
    dry_run(settings, ranks);
  } else if (ranks > 1) {
    const Variables variables = process_variables();
    check_start(ranks, variables, available_cores(variables));
    start_under_mpirun(ranks, words);
  } else {
    run_as_threads(1, [&](Transport& transport) { train_rank(arguments, settings, launch, 0, transport); });
  }
}

}  // namespace annulus
