#include "kernels/cpu/device.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/cpu/arena.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_in_tiles.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/workspace.h"
#include "kernels/shapes.h"

namespace annulus {

std::unique_ptr<Device> make_cpu_device(const DeviceOptions& options) {
  return std::make_unique<cpu::CpuDevice>(options, cpu::best_isa());
}

std::unique_ptr<Device> make_cpu_device(const DeviceOptions& options, MemoryPlan plan) {
  const int64_t disk_bytes = plan.stored.disk;
  auto block = cpu::make_arena_block(plan.extent);
  auto arena = std::make_unique<PlannedArena>(std::move(plan), options.poison, std::move(block));
  return std::make_unique<cpu::CpuDevice>(options, cpu::best_isa(), std::move(arena), disk_bytes);
}

namespace cpu {

namespace {

// oneDNN lays a product out for the threads it was promised: with fewer, part of it would stay uncomputed.
void require_team(int threads) {
  if (threads == 1) return;
  omp_set_dynamic(0);
  int team = 0;
#pragma omp parallel num_threads(threads)
#pragma omp single
  team = omp_get_num_threads();
  if (team == threads) return;
  throw EnvironmentError(
      "OpenMP gives " + std::to_string(team) + " threads where runtime.threads asks for " + std::to_string(threads) +
      "; unset OMP_THREAD_LIMIT and OMP_MAX_ACTIVE_LEVELS, or set runtime.threads to " + std::to_string(team));
}

}  // namespace

CpuDevice::CpuDevice(const DeviceOptions& options, Isa isa, std::unique_ptr<Memory> memory, int64_t disk_bytes)
    : threads_(options.threads), isa_(isa), math_(vector_math(isa)), memory_(std::move(memory)) {
  if (threads_ < 1) {
    throw ConfigurationError("a CPU device needs at least one thread, not " + std::to_string(threads_) +
                             "; set runtime.threads to 1 or more, or to auto");
  }
  require_team(threads_);
  if (disk_bytes > 0)
    disk_ = std::make_unique<FileStorage>(options.offload_directory, disk_bytes, *memory_, make_host_access());
}

Storage& CpuDevice::storage(Place place) {
  if (place == Place::host) {
    throw ConfigurationError(
        "memory.offload_*: 'host' takes tensors from a GPU's memory into the host's, and on the CPU that is the same "
        "memory; use disk or none");
  }
  require(place == Place::disk && disk_ != nullptr, "a run stores what its plan says and nothing else");
  return *disk_;
}

std::string CpuDevice::description() const {
  std::string text = "CPU, " + std::to_string(threads_) + (threads_ == 1 ? " thread, " : " threads, ") + name_of(isa_);
  if (isa_bound() != IsaBound::none) text += std::string(" (ANNULUS_MAX_ISA=") + name_of(isa_bound()) + ')';
  text += ", " + gemm_library();
  if (multiplies_in_tiles()) text += ", bfloat16 products in AMX";
  if (!multiplies_bfloat16()) text += ", bfloat16 products in float32";
  return text;
}

void CpuDevice::upload(View destination, const void* source, Stream /*stream*/) {
  if (!destination.empty()) std::memcpy(destination.data(), source, static_cast<size_t>(destination.bytes()));
}

void CpuDevice::download(void* destination, View source, Stream /*stream*/) {
  if (!source.empty()) std::memcpy(destination, source.data(), static_cast<size_t>(source.bytes()));
}

namespace {

Gemm gemm_of(const Matmul& args) {
  const auto& [c, a, b, transpose_a, transpose_b, addend] = args;
  require_shapes(args);
  return {.m = c.dim(0),
          .n = c.dim(1),
          .k = a.dim(transpose_a ? 0 : 1),
          .c = c.data(),
          .a = a.data(),
          .b = b.data(),
          .ldc = c.dim(1),
          .lda = a.dim(1),
          .ldb = b.dim(1),
          .c_dtype = c.dtype(),
          .dtype = a.dtype(),
          .transpose_a = transpose_a,
          .transpose_b = transpose_b,
          .accumulate = args.adds()};
}

// The product that gives rows [begin, end) of c.
Gemm rows_of(const Gemm& whole, int64_t begin, int64_t end) {
  Gemm part = whole;
  part.m = end - begin;
  part.c = static_cast<char*>(whole.c) + begin * whole.ldc * size_of(whole.c_dtype);
  part.a = static_cast<const char*>(whole.a) + begin * (whole.transpose_a ? 1 : whole.lda) * size_of(whole.dtype);
  return part;
}

// Rows of c computed between two calls of progress: some tens of milliseconds of work, but enough rows to reuse b well.
int64_t rows_at_once(const Gemm& gemm) {
  constexpr int64_t operations = 4'000'000'000;
  constexpr int64_t fewest_rows = 256;
  const int64_t row_operations = std::max<int64_t>(1, 2 * gemm.n * gemm.k);
  return round_up(std::max(fewest_rows, operations / row_operations), 64);
}

}  // namespace

int64_t matmul_workspace(const Matmul& args, int threads) {
  omp_set_num_threads(threads);  // what gemm asks for, whichever thread the rank is on
  const Gemm whole = gemm_of(args);
  const int64_t block = std::min(whole.m, rows_at_once(whole));
  if (block == 0) return 0;
  const int64_t last_begin = (whole.m - 1) / block * block;
  return std::max(gemm_scratch_bytes(rows_of(whole, 0, block)),
                  gemm_scratch_bytes(rows_of(whole, last_begin, whole.m)));
}

void CpuDevice::matmul(const Matmul& args, Stream stream) {
  omp_set_num_threads(threads_);
  const Gemm whole = gemm_of(args);
  if (args.adds() && args.addend.data() != args.c.data()) copy(args.c, args.addend, stream);
  const int64_t block = std::min(whole.m, rows_at_once(whole));
  if (block == 0) return;
  const Allocation scratch(*memory_, matmul_workspace(args, threads_), Purpose::workspace);
  progress();
  for (int64_t begin = 0; begin < whole.m; begin += block) {
    run_gemm(rows_of(whole, begin, std::min(whole.m, begin + block)), scratch.data());
    progress();
  }
}

void CpuDevice::attention_forward(const AttentionForward& args, Stream /*stream*/) {
  omp_set_num_threads(threads_);
  cpu::attention_forward(args, *memory_, threads_, [this] { progress(); });
}

void CpuDevice::attention_delta(View delta, View output, View output_gradient, Stream /*stream*/) {
  cpu::attention_delta(delta, output, output_gradient, threads_);
}

void CpuDevice::attention_backward(const AttentionBackward& args, Stream /*stream*/) {
  omp_set_num_threads(threads_);
  cpu::attention_backward(args, *memory_, threads_, [this] { progress(); });
}

}  // namespace cpu
}  // namespace annulus
