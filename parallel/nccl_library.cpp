// The functions of NCCL that are used here, each passed on to the library, which is loaded when the first is called: so
// that one executable also starts where NCCL is not installed.
#include <dlfcn.h>
#include <nccl.h>

#include <string>

#include "kernels/error.h"

namespace {

constexpr const char* library_name = "libnccl.so.2";

// Never closed: functions of it may run until the process ends.
void* open_library() {
  void* library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    library = dlopen((std::string(ANNULUS_NCCL_LIBRARY_FOLDER "/") + library_name).c_str(), RTLD_NOW);
  if (library == nullptr) {
    throw annulus::EnvironmentError(std::string("NCCL: cannot load ") + library_name + " (" + dlerror() +
                                    "); install NCCL or add its folder to LD_LIBRARY_PATH, or use one GPU");
  }
  return library;
}

template <class Function>
Function* find(Function* /*declared*/, const char* name) {
  static void* const library = open_library();
  void* const function = dlsym(library, name);
  if (function == nullptr) {
    throw annulus::EnvironmentError(std::string("NCCL: ") + library_name + " has no " + name +
                                    "; install a newer NCCL, or use one GPU");
  }
  return reinterpret_cast<Function*>(function);
}

}  // namespace

#define ANNULUS_PASS_ON(name, arguments)             \
  static const auto function = find(&(name), #name); \
  return function arguments

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
  ANNULUS_PASS_ON(ncclGetErrorString, (result));
}

const char* ncclGetLastError(ncclComm_t communicator) {
  ANNULUS_PASS_ON(ncclGetLastError, (communicator));
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  ANNULUS_PASS_ON(ncclGetUniqueId, (id));
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  ANNULUS_PASS_ON(ncclCommInitRankConfig, (communicator, ranks, id, rank, config));
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* error) {
  ANNULUS_PASS_ON(ncclCommGetAsyncError, (communicator, error));
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  ANNULUS_PASS_ON(ncclCommFinalize, (communicator));
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  ANNULUS_PASS_ON(ncclCommDestroy, (communicator));
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  ANNULUS_PASS_ON(ncclCommAbort, (communicator));
}

ncclResult_t ncclGroupStart() {
  ANNULUS_PASS_ON(ncclGroupStart, ());
}

ncclResult_t ncclGroupEnd() {
  ANNULUS_PASS_ON(ncclGroupEnd, ());
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  ANNULUS_PASS_ON(ncclSend, (data, count, type, peer, communicator, stream));
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  ANNULUS_PASS_ON(ncclRecv, (data, count, type, peer, communicator, stream));
}

}  // extern "C"
