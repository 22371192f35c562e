// Libraries that are loaded when they are first used, and cannot be: each process tries until one is found, so both
// ways of failing are tried in one.
#include <cublasLt.h>
#include <gtest/gtest.h>
#include <nccl.h>
#include <sys/resource.h>

#include <functional>
#include <string>

#include "kernels/error.h"

namespace annulus {
namespace {

// While it lives, no file can be opened.
class NoFiles {
 public:
  NoFiles() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit none{.rlim_cur = 0, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  NoFiles(const NoFiles&) = delete;
  NoFiles& operator=(const NoFiles&) = delete;
  ~NoFiles() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0); }

 private:
  rlimit before_{};
};

std::string failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const EnvironmentError& error) {
    return error.what();
  }
  return "nothing";
}

void expect_refusals(const std::function<void()>& call, const std::string& cannot_load, const std::string& has_no) {
  std::string failure;
  {
    const NoFiles nothing_loads;
    failure = failure_of(call);
  }
  EXPECT_EQ(failure.find(cannot_load), 0U) << failure;
  EXPECT_NE(failure.find("LD_LIBRARY_PATH"), std::string::npos) << failure;
  EXPECT_EQ(failure_of(call), has_no);
}

TEST(Libraries, NcclThatIsMissingOrTooOldIsNamed) {
  expect_refusals([] { ncclGroupStart(); }, "NCCL: cannot load libnccl.so.2 (",
                  "NCCL: libnccl.so.2 has no ncclGroupStart; install a newer NCCL, or use one GPU");
}

TEST(Libraries, CublasLtThatIsMissingOrTooOldIsNamed) {
  const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  expect_refusals([] { cublasLtGetVersion(); }, "CUDA: cannot load " + name + " (",
                  "CUDA: " + name + " has no cublasLtGetVersion; install a newer cuBLAS, or use runtime.device=cpu");
}

}  // namespace
}  // namespace annulus
