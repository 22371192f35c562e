// The transports there are, and what the process environment says about ranks.
#pragma once

#include <functional>
#include <memory>

#include "parallel/transport.h"

namespace annulus {

// MPI, started and ended once a process.
class MpiSession {
 public:
  // Initialises MPI (FUNNELED); throws EnvironmentError naming what is missing.
  MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  ~MpiSession();

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  [[nodiscard]] int local_rank() const;  // among those of this machine, from 0

  // Ends every rank of the job with this exit code.
  [[noreturn]] void abort(int exit_code) const noexcept;

  // Messages over MPI from host memory. One at a time.
  [[nodiscard]] std::unique_ptr<Transport> transport() const;
};

// Messages over NCCL between GPUs: from and to device memory of the calling thread's current GPU, which no other rank
// may have. `host` carries messages from host memory between the same ranks, outlives what is made here, and serves to
// find the others and for barriers. All ranks post their exchanges in the order of one program, over all channels;
// every exchange names its stream. Where NCCL fails, or another rank has, what runs is aborted and every later call
// throws ConnectionError.
std::unique_ptr<Transport> make_nccl_transport(Transport& host);

// What NCCL is assumed to take of a GPU's memory for the transport above among `ranks` ranks. For each of its two
// communicators and each peer on NVLink, users of NCCL 2.2x on 8 H100 report 32 channels with a buffer of 10 MiB for
// what is received (4 MiB of it NCCL_BUFFSIZE) and one of 2 MiB for what is sent. Eight GPUs share an NVLink as a rule,
// and the network's peers share buffers. Over PCI, and with a smaller NCCL_MAX_P2P_NCHANNELS, it is less.
constexpr int64_t nccl_bytes(int ranks) {
  constexpr int64_t communicators = 2, channels = 32, buffer_bytes = int64_t{12} << 20;
  return communicators * (ranks < 8 ? ranks - 1 : 7) * channels * buffer_bytes;
}

// The multiprocessors that NCCL's kernels find free while attention computes. A kernel of NCCL has a block for each of
// its channels, which fills a multiprocessor; a ring exchange goes through few of them, to one neighbour.
inline constexpr int nccl_multiprocessors = 8;

// Runs `rank_main` once for each of `ranks` ranks, as threads of this process. If one throws, the others' transports
// throw ConnectionErrors; when all have ended the first error is rethrown, one of another kind rather than these.
void run_as_threads(int ranks, const std::function<void(Transport&)>& rank_main);

}  // namespace annulus
