// What leaves the GPU's memory comes back as it was, whatever is under way.
#include "kernels/plan/recording_memory.h"
#include "tests/kernels/devices.h"
#include "tests/support/temporary_directory.h"

namespace annulus::testing {
namespace {

constexpr int64_t count = 1000;
constexpr int64_t stored_bytes = 3 * 4032;  // of three arrays, each rounded to the alignment of memory

class CudaStorage : public ::testing::TestWithParam<Place> {
 protected:
  CudaStorage() {
    RecordingMemory memory(true);
    const Allocation data(memory, 2 * count * 4, Purpose::checkpoints);
    MemoryPlan plan = memory.recorded();
    place(plan);
    (GetParam() == Place::host ? plan.stored.host : plan.stored.disk) = stored_bytes;
    device_ = make_cuda_device({.poison = true, .offload_directory = folder_.path()}, std::move(plan));
    data_ = device_->allocate({2, count}, DType::float32, Purpose::checkpoints);
  }

  [[nodiscard]] Device& device() const { return *device_; }
  [[nodiscard]] Storage& storage() const { return device_->storage(GetParam()); }
  [[nodiscard]] View array(int64_t i) const { return data_->slice(i, i + 1).flat(); }

 private:
  const TemporaryDirectory folder_;
  std::unique_ptr<Device> device_;
  Tensor data_;
};

TEST_P(CudaStorage, GivesBackWhatItWasGivenInTheOrderOfTheStream) {
  const Stream stream = device().compute_stream();
  const int64_t first = storage().reserve(count * 4), second = storage().reserve(count * 4);
  const Numbers numbers(count, 3), more(count, 5);
  set_numbers(device(), array(0), numbers);
  storage().store(first, array(0), stream).wait(stream);
  set_numbers(device(), array(0), more);
  storage().store(second, array(0), stream).wait(stream);
  device().fill_zero(array(0), stream);
  storage().load(array(0), first, stream).wait(stream);
  storage().load(array(1), second, stream).wait(stream);
  EXPECT_EQ(numbers_of(device(), array(0)), numbers);
  EXPECT_EQ(numbers_of(device(), array(1)), more);
}

TEST_P(CudaStorage, BeginsWithZeros) {
  const Stream stream = device().compute_stream();
  const int64_t begin = storage().reserve(count * 4);
  storage().load(array(0), begin, stream).wait(stream);
  EXPECT_EQ(numbers_of(device(), array(0)), Numbers(count, 0));
}

TEST_P(CudaStorage, RefusesWhatIsNotPlanned) {
  const Stream stream = device().compute_stream();
  storage().reserve(count * 4);
  EXPECT_THROW(storage().store(count * 4, array(0), stream), InternalError);
  EXPECT_THROW(storage().load(array(0), -64, stream), InternalError);
  EXPECT_THROW(storage().reserve(stored_bytes), InternalError);
  EXPECT_THROW(device().storage(GetParam() == Place::host ? Place::disk : Place::host), InternalError);
  EXPECT_THROW(device().storage(Place::device), InternalError);
}

INSTANTIATE_TEST_SUITE_P(Places, CudaStorage, ::testing::Values(Place::host, Place::disk));

}  // namespace
}  // namespace annulus::testing
