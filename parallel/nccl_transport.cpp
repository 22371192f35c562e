// Messages between GPUs over NCCL: every exchange is one group of sends and receives, queued on a stream of ours and
// ordered against the caller's stream by events, so that the host never waits for a GPU. Slices of attention and shards
// of parameters have a communicator and a stream each and pass one another; all ranks post in the order of one program,
// so that no two of them begin with different exchanges.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "kernels/cuda/stream.h"
#include "parallel/transports.h"

namespace annulus {
namespace {

using namespace std::chrono_literals;

constexpr auto settle_pause = 20us;     // between questions whether NCCL has started what it was given
constexpr auto watchdog_pause = 100ms;  // between questions whether it has failed

std::string describe(ncclResult_t result, ncclComm_t communicator) {
  const std::string detail = ncclGetLastError(communicator);
  return std::string(ncclGetErrorString(result)) + (detail.empty() ? "" : ": " + detail);
}

// One communicator, which never blocks the host. Used by the rank's thread and by the watchdog's.
class Communicator {
 public:
  Communicator(const ncclUniqueId& id, int rank, int size) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const std::scoped_lock lock(mutex_);
    settle(ncclCommInitRankConfig(&handle_, size, id, rank, &config), "ncclCommInitRankConfig");
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator() { abort("the rank ends"); }

  // Queues all messages on the stream as one kernel.
  void exchange(std::span<const Message> sends, std::span<const Message> receives, cudaStream_t stream) {
    const std::scoped_lock lock(mutex_);
    throw_if_failed();
    ncclResult_t result = ncclGroupStart();
    const auto add = [&](const Message& message, auto call) {
      if (result != ncclSuccess || message.data.empty()) return;
      result = call(message.data.data(), static_cast<size_t>(message.data.bytes()), ncclUint8, message.peer, handle_,
                    stream);
    };
    for (const Message& message : receives) add(message, ncclRecv);
    for (const Message& message : sends) add(message, ncclSend);
    const ncclResult_t ended = ncclGroupEnd();
    settle(result == ncclSuccess ? ended : result, "a group of ncclSend and ncclRecv");
  }

  // Why it has failed, by itself or since another rank has; it is then aborted, which ends its kernels. Empty: it has
  // not.
  std::string failure() {
    const std::scoped_lock lock(mutex_);
    if (handle_ == nullptr) return failure_;
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(handle_, &state);
    if (asked != ncclSuccess) state = asked;
    if (state != ncclSuccess && state != ncclInProgress) give_up(describe(state, handle_));
    return failure_;
  }

  void check() {
    const std::scoped_lock lock(mutex_);
    throw_if_failed();
  }

  void abort(const std::string& why) {
    const std::scoped_lock lock(mutex_);
    give_up(why);
  }

  // Ends it together with the other ranks' once its last message has gone; not for failures.
  void finish() {
    const std::scoped_lock lock(mutex_);
    throw_if_failed();
    settle(ncclCommFinalize(handle_), "ncclCommFinalize");
    ncclCommDestroy(std::exchange(handle_, nullptr));
  }

 private:
  // NCCL works on what it was given in the background. Nothing may be recorded after it, or given to it, before this.
  void settle(ncclResult_t result, const char* call) {
    while (result == ncclInProgress) {
      std::this_thread::sleep_for(settle_pause);
      const ncclResult_t asked = ncclCommGetAsyncError(handle_, &result);
      if (asked != ncclSuccess) result = asked;
    }
    if (result == ncclSuccess) return;
    give_up(std::string(call) + ": " + describe(result, handle_));
    throw_if_failed();
  }

  void give_up(const std::string& why) {
    if (failure_.empty()) failure_ = why;
    if (handle_ != nullptr) ncclCommAbort(std::exchange(handle_, nullptr));
  }

  void throw_if_failed() const {
    if (!failure_.empty()) throw ConnectionError("NCCL: " + failure_);
  }

  std::mutex mutex_;
  ncclComm_t handle_ = nullptr;  // none after a failure
  std::string failure_;
};

// A communicator with the stream its kernels run on.
struct Lane {
  Lane(const ncclUniqueId& id, int rank, int size, int priority)
      : stream(cuda::make_stream(priority)), communicator(id, rank, size) {}

  cuda::StreamHandle stream;
  Communicator communicator;
};

class NcclRequest : public Request::State {
 public:
  explicit NcclRequest(cuda::EventHandle done) : done_(std::move(done)) {}

  // A group ends as one, sends and receives together.
  void wait_received(Stream stream) override { wait(stream); }
  void wait(Stream stream) override {
    ANNULUS_CUDA_CHECK(cudaStreamWaitEvent(cuda::cuda_stream(stream), done_.get(), 0));
  }

 private:
  cuda::EventHandle done_;
};

class NcclTransport : public Transport {
 public:
  explicit NcclTransport(Transport& host) : host_(host) {
    if (size() == 1) return;
    const auto ids = agree_on_ids();
    int least = 0, greatest = 0;
    ANNULUS_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    slices_.emplace(ids[0], rank(), size(), greatest);
    shards_.emplace(ids[1], rank(), size(), std::min(greatest + 1, least));
    connect();
    int gpu = 0;
    ANNULUS_CUDA_CHECK(cudaGetDevice(&gpu));
    watchdog_ = std::jthread([this, gpu](const std::stop_token& stop) { watch(stop, gpu); });
  }

  ~NcclTransport() override {
    if (size() == 1) return;
    watchdog_.request_stop();
    watchdog_.join();
    if (std::uncaught_exceptions() > 0) return;
    try {
      slices_->communicator.finish();
      shards_->communicator.finish();
    } catch (const ConnectionError&) {  // another rank has failed, and says so
    }
  }

  [[nodiscard]] int rank() const override { return host_.rank(); }
  [[nodiscard]] int size() const override { return host_.size(); }

  Request exchange(std::span<const Message> sends, std::span<const Message> receives, Channel channel,
                   Stream stream) override {
    if (sends.empty() && receives.empty()) return {};
    return Request(std::make_unique<NcclRequest>(post(lane_of(channel), sends, receives, cuda::cuda_stream(stream))));
  }

  void progress() override { check(); }

  void barrier() override {
    check();
    host_.barrier();
  }

 private:
  // Of the slices' and the shards' communicator; rank 0 makes them.
  std::array<ncclUniqueId, 2> agree_on_ids() {
    std::array<ncclUniqueId, 2> ids{};
    const View view(ids.data(), DType::int32, {static_cast<int64_t>(sizeof(ids) / sizeof(int32_t))});
    std::vector<Message> sends, receives;
    if (rank() == 0) {
      for (ncclUniqueId& id : ids) {
        const ncclResult_t result = ncclGetUniqueId(&id);
        if (result != ncclSuccess) throw EnvironmentError("NCCL: ncclGetUniqueId: " + describe(result, nullptr));
      }
      for (int peer = 1; peer < size(); ++peer) sends.push_back({peer, view});
    } else {
      receives.push_back({0, view});
    }
    host_.exchange(sends, receives, Channel::scalars, {}).wait({});
    return ids;
  }

  // A byte from everybody to everybody: NCCL makes its buffers for two ranks at their first message, and all of them
  // are to be there before the first step.
  void connect() {
    void* bytes = nullptr;
    ANNULUS_CUDA_CHECK(cudaMalloc(&bytes, 2 * static_cast<size_t>(size()) * sizeof(float)));
    const Handle<void*, cudaFree> memory(bytes);
    const View view(bytes, DType::float32, {2 * size()});
    std::vector<Message> sends, receives;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      sends.push_back({peer, view.slice(peer, peer + 1)});
      receives.push_back({peer, view.slice(size() + peer, size() + peer + 1)});
    }
    for (Lane* lane : {&*slices_, &*shards_}) {
      lane->communicator.exchange(sends, receives, lane->stream.get());
      ANNULUS_CUDA_CHECK(cudaStreamSynchronize(lane->stream.get()));
    }
  }

  Lane& lane_of(Channel channel) {
    const bool slices = channel == Channel::keys || channel == Channel::key_gradients;
    return slices ? *slices_ : *shards_;
  }

  // The event after the messages.
  static cuda::EventHandle post(Lane& lane, std::span<const Message> sends, std::span<const Message> receives,
                                cudaStream_t stream) {
    require(stream != nullptr, "an exchange over NCCL names the stream it follows");
    const cuda::EventHandle ready = cuda::make_event();
    ANNULUS_CUDA_CHECK(cudaEventRecord(ready.get(), stream));
    ANNULUS_CUDA_CHECK(cudaStreamWaitEvent(lane.stream.get(), ready.get(), 0));
    lane.communicator.exchange(sends, receives, lane.stream.get());
    cuda::EventHandle done = cuda::make_event();
    ANNULUS_CUDA_CHECK(cudaEventRecord(done.get(), lane.stream.get()));
    return done;
  }

  void check() {
    if (size() == 1) return;
    slices_->communicator.check();
    shards_->communicator.check();
  }

  // A kernel of NCCL that waits for a rank that has failed never ends, nor does a host that waits for it: somebody else
  // has to notice, and to abort.
  void watch(const std::stop_token& stop, int gpu) {
    cudaSetDevice(gpu);
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock(mutex);
    while (!stop.stop_requested()) {
      never.wait_for(lock, stop, watchdog_pause, [] { return false; });
      const std::string of_slices = slices_->communicator.failure(), of_shards = shards_->communicator.failure();
      if (!of_slices.empty()) shards_->communicator.abort(of_slices);
      if (!of_shards.empty()) slices_->communicator.abort(of_shards);
    }
  }

  Transport& host_;
  std::optional<Lane> slices_, shards_;  // none where there is one rank
  std::jthread watchdog_;
};

}  // namespace

std::unique_ptr<Transport> make_nccl_transport(Transport& host) {
  return std::make_unique<NcclTransport>(host);
}

}  // namespace annulus
