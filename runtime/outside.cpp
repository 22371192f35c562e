#include "runtime/outside.h"

#include <set>

#include "kernels/device.h"
#include "parallel/sequence_layout.h"
#include "parallel/transports.h"

namespace annulus {
namespace {

// The program and its libraries, Open MPI's buffers, what weights are read and written through: measured. The rest are
// the arrays of a micro-batch before they are cut for ranks: a sequence's tokens, answers and positions, the same again
// with weights for the whole micro-batch, and the ranges of each kind of mask.
Outside outside_on_cpu(const PreparedRun& run) {
  constexpr int64_t process_bytes = 75'000'000, row_bytes = 12 + 16, mask_row_bytes = sizeof(KeyRanges);
  const SequenceLayout layout(run.settings.parallel.layout, run.mesh.context_size, run.settings.train.micro_batch_size,
                              run.settings.data.sequence_length);
  const std::set<int64_t> masks(run.model.layer_windows.begin(), run.model.layer_windows.end());
  return {
      .bytes = process_bytes + layout.global_rows() * (row_bytes + static_cast<int64_t>(masks.size()) * mask_row_bytes),
      .what = "about: the process beside that"};
}

}  // namespace

Outside outside_on_gpu(const Settings& settings, int ranks) {
  if (ranks == 1 || settings.parallel.transport == TransportKind::mpi) {
    return {.bytes = cuda_context_bytes, .what = "assumed: the driver's context, kernels, cuBLASLt"};
  }
  return {.bytes = cuda_context_bytes + nccl_bytes(ranks),
          .what = "assumed: the driver's context, kernels, cuBLASLt, NCCL's buffers"};
}

Outside outside_of(const PreparedRun& run) {
  if (run.settings.runtime.device == DeviceKind::cuda) return outside_on_gpu(run.settings, run.mesh.size());
  return outside_on_cpu(run);
}

}  // namespace annulus
