// NCCL, for ranks that are threads of one process. Communicators are checked as strictly as NCCL's manual asks: one
// that does not block starts its groups only after ncclCommGetAsyncError has been asked a few times, and refuses new
// ones before.
#include <nccl.h>

#include <atomic>
#include <cstring>
#include <set>
#include <thread>

#include "tests/hosted_cuda/double/clique.h"
#include "tests/hosted_cuda/double/order.h"
#include "tests/hosted_cuda/double/seed.h"
#include "tests/hosted_cuda/double/stream.h"

using annulus::hosted::Clique;
using annulus::hosted::Group;
using annulus::hosted::Hidden;
using annulus::hosted::Shown;

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank = 0, device = 0;
  bool blocking = true;
  bool finalizing = false;
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::deque<std::function<void()>> not_started;  // groups
  int asked = 0;                                  // since the last group came
  int running = 0;                                // groups on their stream
};

namespace annulus::hosted {
namespace {

struct Call {
  ncclComm_t communicator;
  cudaStream_t stream;
  Transfer transfer;
};

struct Shared {
  std::mutex mutex;
  int64_t ids = 0;
  std::map<int64_t, std::weak_ptr<Clique>> cliques;
  std::set<ncclComm_t> communicators;

  static Shared& instance() {
    static auto* shared = new Shared;
    return *shared;
  }
};

thread_local int group_depth = 0;
thread_local std::vector<Call> group_calls;
thread_local std::string last_why;

ncclResult_t refuse(ncclResult_t result, const std::string& why) {
  last_why = why;
  fail(cudaErrorInvalidValue, "NCCL: " + why);
  return result;
}

bool exists(ncclComm_t communicator) {
  Shared& shared = Shared::instance();
  const std::scoped_lock lock(shared.mutex);
  return shared.communicators.contains(communicator);
}

size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclBfloat16:
    case ncclFloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

std::shared_ptr<Clique> clique_of(const ncclUniqueId& id, int ranks) {
  int64_t number = 0;
  std::memcpy(&number, id.internal, sizeof number);
  Shared& shared = Shared::instance();
  const std::scoped_lock lock(shared.mutex);
  if (number < 1 || number > shared.ids) return nullptr;
  std::shared_ptr<Clique> clique = shared.cliques[number].lock();
  if (!clique) shared.cliques[number] = clique = std::make_shared<Clique>(ranks);
  return clique->ranks() == ranks ? clique : nullptr;
}

// Joined, its groups started, and finalised where that was asked for.
bool settled(ncclComm_t communicator) {
  if (!communicator->clique->complete(communicator->since)) return false;
  const std::scoped_lock lock(communicator->mutex);
  return communicator->not_started.empty() && (!communicator->finalizing || communicator->running == 0);
}

ncclResult_t state(ncclComm_t communicator) {
  const bool is_settled = settled(communicator);
  const ncclResult_t error = communicator->clique->error(communicator->rank);
  if (error != ncclSuccess) return error;
  return is_settled ? ncclSuccess : ncclInProgress;
}

// A group begins on its stream one to three questions after it came.
void start_group(ncclComm_t communicator) {
  std::function<void()> start;
  {
    const std::scoped_lock lock(communicator->mutex);
    if (communicator->not_started.empty()) return;
    const uint64_t wanted = 1 + mix(seed(), static_cast<uint64_t>(communicator->rank)) % 3;
    if (static_cast<uint64_t>(++communicator->asked) < wanted) return;
    start = communicator->not_started.front();
  }
  start();
  const std::scoped_lock lock(communicator->mutex);
  communicator->not_started.pop_front();
  communicator->asked = 0;
}

// A group of the communicator that may still run.
std::shared_ptr<void> running(ncclComm_t communicator) {
  const std::scoped_lock lock(communicator->mutex);
  ++communicator->running;
  return {nullptr, [=](void*) {
            const std::scoped_lock ended(communicator->mutex);
            --communicator->running;
            communicator->changed.notify_all();
          }};
}

void enqueue(ncclComm_t communicator, Group group, cudaStream_t stream) {
  auto promise = std::make_shared<char>();
  {
    const Shown shown;
    release(promise.get());
  }
  std::function<void()> start = [=, group = std::move(group), token = running(communicator)] {
    stream->enqueue(CUstream_st::Kind::kernel, [=] {
      static_cast<void>(token);
      {
        const Shown shown;
        acquire(promise.get());
      }
      communicator->clique->run(communicator->rank, group);
    });
  };
  if (communicator->blocking) return start();
  const std::scoped_lock lock(communicator->mutex);
  communicator->not_started.push_back(std::move(start));
}

ncclResult_t end_group() {
  std::map<ncclComm_t, std::pair<cudaStream_t, Group>> groups;
  for (const Call& call : group_calls) {
    auto& [stream, group] = groups[call.communicator];
    if (stream != nullptr && stream != call.stream) {
      group_calls.clear();
      return refuse(ncclInvalidUsage, "a group uses two streams on one communicator");
    }
    stream = call.stream;
    group.push_back(call.transfer);
  }
  group_calls.clear();
  bool all_block = true;
  for (const auto& [communicator, work] : groups) {
    enqueue(communicator, work.second, work.first);
    all_block = all_block && communicator->blocking;
  }
  return all_block ? ncclSuccess : ncclInProgress;
}

ncclResult_t check_transfer(ncclComm_t communicator, const Transfer& transfer, cudaStream_t stream) {
  if (!exists(communicator)) return refuse(ncclInvalidArgument, "a communicator that does not exist");
  const ncclResult_t now = state(communicator);
  if (now != ncclSuccess) {
    return refuse(ncclInvalidUsage, now == ncclInProgress
                                        ? "a communicator is used before its last operation has been started"
                                        : "a communicator is used after it has failed: " + communicator->clique->why());
  }
  if (check(stream) != cudaSuccess) return ncclUnhandledCudaError;
  if (stream->device() != communicator->device) {
    return refuse(ncclInvalidUsage, "a stream of another device than the communicator's");
  }
  if (transfer.peer < 0 || transfer.peer >= communicator->clique->ranks() || transfer.peer == communicator->rank) {
    return refuse(ncclInvalidArgument, "rank " + std::to_string(communicator->rank) + " of " +
                                           std::to_string(communicator->clique->ranks()) + " has no peer " +
                                           std::to_string(transfer.peer));
  }
  Range range;
  if (locate(transfer.data, transfer.bytes, range) != cudaSuccess) return ncclInvalidArgument;
  if (range.place != Place::device || range.device != communicator->device) {
    return refuse(ncclInvalidArgument, "memory that is not of the communicator's device");
  }
  return ncclSuccess;
}

ncclResult_t call(ncclComm_t communicator, const Transfer& transfer, cudaStream_t stream) {
  const Hidden hidden;
  if (const ncclResult_t result = check_transfer(communicator, transfer, stream); result != ncclSuccess) return result;
  group_calls.push_back({communicator, stream, transfer});
  return group_depth == 0 ? end_group() : ncclSuccess;
}

// The groups of this rank that are on a stream end first, since they use it.
void destroy(ncclComm_t communicator) {
  std::deque<std::function<void()>> never_started;
  std::unique_lock lock(communicator->mutex);
  never_started.swap(communicator->not_started);
  lock.unlock();
  never_started.clear();
  lock.lock();
  communicator->changed.wait(lock, [&] { return communicator->running == 0; });
  lock.unlock();
  Shared& shared = Shared::instance();
  {
    const std::scoped_lock all(shared.mutex);
    shared.communicators.erase(communicator);
  }
  delete communicator;
}

}  // namespace
}  // namespace annulus::hosted

using namespace annulus::hosted;

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "a result the hosted NCCL never gives";
  }
}

const char* ncclGetLastError(ncclComm_t communicator) {
  const Hidden hidden;
  if (communicator != nullptr) {
    if (const std::string why = communicator->clique->why(); !why.empty()) last_why = why;
  }
  return last_why.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const Hidden hidden;
  Shared& shared = Shared::instance();
  const std::scoped_lock lock(shared.mutex);
  const int64_t number = ++shared.ids;
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, &number, sizeof number);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const Hidden hidden;
  const std::shared_ptr<Clique> clique = clique_of(id, ranks);
  if (!clique) return refuse(ncclInvalidArgument, "an id that is none, or used for another number of ranks");
  if (const std::string why = clique->join(rank, current_device()); !why.empty()) {
    return refuse(ncclInvalidUsage, why);
  }
  *communicator = new ncclComm;
  (*communicator)->clique = clique;
  (*communicator)->rank = rank;
  (*communicator)->device = current_device();
  (*communicator)->blocking = config->blocking != 0;
  {
    Shared& shared = Shared::instance();
    const std::scoped_lock lock(shared.mutex);
    shared.communicators.insert(*communicator);
  }
  if (!(*communicator)->blocking) return ncclInProgress;
  while (state(*communicator) == ncclInProgress) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return state(*communicator);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* error) {
  const Hidden hidden;
  if (!exists(communicator)) return refuse(ncclInvalidArgument, "a communicator that does not exist");
  start_group(communicator);
  *error = state(communicator);
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  const Hidden hidden;
  if (group_depth == 0) return refuse(ncclInvalidUsage, "a group ends that never began");
  return --group_depth == 0 ? end_group() : ncclSuccess;
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return call(communicator, {true, const_cast<void*>(data), count * size_of(type), peer}, stream);
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return call(communicator, {false, data, count * size_of(type), peer}, stream);
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  const Hidden hidden;
  if (!exists(communicator)) return refuse(ncclInvalidArgument, "a communicator that does not exist");
  communicator->finalizing = true;
  return communicator->blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  const Hidden hidden;
  if (!exists(communicator)) return refuse(ncclInvalidArgument, "a communicator that does not exist");
  if (!communicator->finalizing) return refuse(ncclInvalidUsage, "a communicator is destroyed and not finalised");
  destroy(communicator);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  const Hidden hidden;
  if (!exists(communicator)) return refuse(ncclInvalidArgument, "a communicator that does not exist");
  communicator->clique->abort(communicator->rank);
  destroy(communicator);
  return ncclSuccess;
}

}  // extern "C"
