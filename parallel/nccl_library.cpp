// The functions of NCCL that are used here, each passed on to the library.
#include <nccl.h>

#include "kernels/shared_library.h"

namespace {

const annulus::SharedLibrary& library() {
  static const annulus::SharedLibrary loaded({.product = "NCCL",
                                              .file = "libnccl.so.2",
                                              .folder = ANNULUS_NCCL_LIBRARY_FOLDER,
                                              .package = "NCCL",
                                              .otherwise = "use one GPU"});
  return loaded;
}

}  // namespace

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
  ANNULUS_PASS_ON(library(), ncclGetErrorString, (result));
}

const char* ncclGetLastError(ncclComm_t communicator) {
  ANNULUS_PASS_ON(library(), ncclGetLastError, (communicator));
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  ANNULUS_PASS_ON(library(), ncclGetUniqueId, (id));
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  ANNULUS_PASS_ON(library(), ncclCommInitRankConfig, (communicator, ranks, id, rank, config));
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* error) {
  ANNULUS_PASS_ON(library(), ncclCommGetAsyncError, (communicator, error));
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  ANNULUS_PASS_ON(library(), ncclCommFinalize, (communicator));
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  ANNULUS_PASS_ON(library(), ncclCommDestroy, (communicator));
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  ANNULUS_PASS_ON(library(), ncclCommAbort, (communicator));
}

ncclResult_t ncclGroupStart() {
  ANNULUS_PASS_ON(library(), ncclGroupStart, ());
}

ncclResult_t ncclGroupEnd() {
  ANNULUS_PASS_ON(library(), ncclGroupEnd, ());
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  ANNULUS_PASS_ON(library(), ncclSend, (data, count, type, peer, communicator, stream));
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  ANNULUS_PASS_ON(library(), ncclRecv, (data, count, type, peer, communicator, stream));
}

}  // extern "C"
