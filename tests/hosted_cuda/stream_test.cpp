// Streams, events and copies: what they order, and what they do not.
#include <algorithm>
#include <array>
#include <thread>

#include "tests/hosted_cuda/fixture.h"

namespace annulus::hosted {
namespace {

constexpr size_t count = 1000;

class Event {
 public:
  Event() { EXPECT_SUCCESS(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { EXPECT_SUCCESS(cudaEventDestroy(event_)); }
  operator cudaEvent_t() const { return event_; }  // NOLINT(google-explicit-constructor)

 private:
  cudaEvent_t event_ = nullptr;
};

class PinnedArray {
 public:
  explicit PinnedArray(int value) {
    EXPECT_SUCCESS(cudaMallocHost(&data_, count * sizeof(int)));
    std::fill_n(begin(), count, value);
  }
  PinnedArray(const PinnedArray&) = delete;
  PinnedArray& operator=(const PinnedArray&) = delete;
  ~PinnedArray() { EXPECT_SUCCESS(cudaFreeHost(data_)); }
  [[nodiscard]] int* begin() const { return static_cast<int*>(data_); }

 private:
  void* data_ = nullptr;
};

__global__ void add(int* data, int value) {
  for (int i = cuda::thread_index(); i < static_cast<int>(count); i += cuda::block_threads()) data[i] += value;
}

bool all_are(const std::vector<int>& numbers, int value) {
  return std::all_of(numbers.begin(), numbers.end(), [&](int number) { return number == value; });
}

// Adds 1 on one stream and doubles by a copy on another. Whether the result is right.
bool right_over_two_streams(cudaStream_t first, cudaStream_t second, auto start, bool with_event) {
  const DeviceArray<int> data(std::vector<int>(count, 1), first), copy(std::vector<int>(count, 0), second);
  EXPECT_SUCCESS(cudaStreamSynchronize(second));
  const Event done;
  start(first, data.get());
  EXPECT_SUCCESS(cudaEventRecord(done, first));
  if (with_event) {
    EXPECT_SUCCESS(cudaStreamWaitEvent(second, done, 0));
  }
  EXPECT_SUCCESS(cudaMemcpyAsync(copy.get(), data.get(), data.bytes(), cudaMemcpyDeviceToDevice, second));
  EXPECT_SUCCESS(cudaStreamSynchronize(first));
  return all_are(copy.download(), 4);
}

TEST_F(HostedCuda, AnEventOrdersTwoStreamsUnderEverySchedule) {
  const cudaStream_t other = new_stream();
  const auto start_add = [](cudaStream_t stream, int* data) { EXPECT_SUCCESS(start(stream, add, 1, 32, 0, data, 3)); };
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    set_seed(seed);
    EXPECT_TRUE(right_over_two_streams(stream(), other, start_add, true)) << seed;
  }
}

TEST_F(HostedCuda, AMissingEventGivesWrongNumbersUnderSomeSchedule) {
  if (watched) expect_race();
  const cudaStream_t other = new_stream();
  const auto start_add = [](cudaStream_t stream, int* data) { EXPECT_SUCCESS(start(stream, add, 1, 32, 0, data, 3)); };
  int wrong = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    set_seed(seed);
    if (!right_over_two_streams(stream(), other, start_add, false)) ++wrong;
  }
  EXPECT_GT(wrong, 0);
}

TEST_F(HostedCuda, AWaitIsForWhatWasRecordedBeforeIt) {
  const Event event;
  EXPECT_SUCCESS(cudaStreamWaitEvent(stream(), event, 0));
  EXPECT_SUCCESS(cudaEventQuery(event));
  EXPECT_SUCCESS(cudaEventRecord(event, stream()));
  EXPECT_SUCCESS(cudaEventSynchronize(event));
  EXPECT_SUCCESS(cudaEventQuery(event));
}

TEST_F(HostedCuda, APageableCopyHasReadItsSourceWhenItReturnsAndAPinnedOneHasNot) {
  set_seed(7);
  const DeviceArray<int> data(std::vector<int>(count, 0), stream());
  std::vector<int> pageable(count, 1);
  EXPECT_SUCCESS(cudaMemcpyAsync(data.get(), pageable.data(), data.bytes(), cudaMemcpyHostToDevice, stream()));
  std::fill(pageable.begin(), pageable.end(), 2);
  EXPECT_TRUE(all_are(data.download(), 1));
  if (watched) return;  // what follows is a race
  int late = 0;
  for (int i = 0; i < 20; ++i) {
    const PinnedArray pinned(1);
    EXPECT_SUCCESS(cudaMemcpyAsync(data.get(), pinned.begin(), data.bytes(), cudaMemcpyHostToDevice, stream()));
    std::fill_n(pinned.begin(), count, 2);
    if (!all_are(data.download(), 1)) ++late;
  }
  EXPECT_GT(late, 0);
}

TEST_F(HostedCuda, CountsHowOftenTheHostWaits) {
  const int64_t before = host_synchronisations();
  const DeviceArray<int> data(std::vector<int>(count, 3), stream());
  const PinnedArray pinned(0);
  const Event event;
  EXPECT_SUCCESS(cudaMemcpyAsync(pinned.begin(), data.get(), data.bytes(), cudaMemcpyDeviceToHost, stream()));
  EXPECT_SUCCESS(cudaMemsetAsync(data.get(), 0, data.bytes(), stream()));
  EXPECT_SUCCESS(cudaEventRecord(event, stream()));
  EXPECT_EQ(host_synchronisations(), before);
  EXPECT_SUCCESS(cudaEventSynchronize(event));
  EXPECT_EQ(host_synchronisations(), before + 1);
  EXPECT_EQ(pinned.begin()[count - 1], 3);
  EXPECT_TRUE(all_are(data.download(), 0));
  EXPECT_EQ(host_synchronisations(), before + 2);
}

TEST_F(HostedCuda, MeasuresTheTimeBetweenEvents) {
  const Event begin, end;
  EXPECT_SUCCESS(cudaEventRecord(begin, stream()));
  EXPECT_SUCCESS(cudaEventRecord(end, stream()));
  EXPECT_SUCCESS(cudaStreamSynchronize(stream()));
  float milliseconds = -1;
  EXPECT_SUCCESS(cudaEventElapsedTime(&milliseconds, begin, end));
  EXPECT_GE(milliseconds, 0);
}

// Two streams, each waiting for the other's first half; launches in any order cannot deadlock on a device alone.
TEST_F(HostedCuda, RunsOneKernelAtATimeInTheOrderOfLaunches) {
  set_one_kernel_at_a_time(true);
  const cudaStream_t other = new_stream();
  const DeviceArray<int> data(std::vector<int>(count, 0), stream());
  const Event copied;
  EXPECT_SUCCESS(cudaEventRecord(copied, stream()));
  EXPECT_SUCCESS(cudaStreamWaitEvent(other, copied, 0));
  for (int i = 0; i < 10; ++i) {
    const Event half;
    EXPECT_SUCCESS(start(other, add, 1, 32, 0, data.get(), 1));
    EXPECT_SUCCESS(cudaEventRecord(half, other));
    EXPECT_SUCCESS(cudaStreamWaitEvent(stream(), half, 0));
    EXPECT_SUCCESS(start(stream(), add, 1, 32, 0, data.get(), 1));
    EXPECT_SUCCESS(cudaEventRecord(half, stream()));
    EXPECT_SUCCESS(cudaStreamWaitEvent(other, half, 0));
  }
  EXPECT_TRUE(all_are(data.download(), 20));
  set_one_kernel_at_a_time(false);
}

// As ranks that share a GPU do: one ends while another frees memory.
TEST_F(HostedCuda, SynchronisesADeviceWhileAnotherThreadDestroysStreamsOfIt) {
  std::thread other([] {
    EXPECT_SUCCESS(cudaSetDevice(0));
    for (int i = 0; i < 500; ++i) {
      cudaStream_t stream = nullptr;
      EXPECT_SUCCESS(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0));
      EXPECT_SUCCESS(cudaStreamDestroy(stream));
    }
  });
  for (int i = 0; i < 500; ++i) EXPECT_SUCCESS(cudaDeviceSynchronize());
  other.join();
}

}  // namespace
}  // namespace annulus::hosted
