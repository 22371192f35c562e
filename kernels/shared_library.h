// Libraries that are loaded when the first function of theirs is called, so that one executable also starts where they
// are not installed.
#pragma once

#include <dlfcn.h>

#include <string>

#include "kernels/error.h"

namespace annulus {

// What a SharedLibrary is and what a user does without it.
struct SharedLibraryName {
  const char* product;    // "CUDA"
  const char* file;       // "libcublasLt.so.13"
  const char* folder;     // where it lay when this was built; asked after the loader's own search
  const char* package;    // "cuBLAS": what it is installed with
  const char* otherwise;  // "use runtime.device=cpu"
};

// Never closed: functions of it may run until the process ends.
class SharedLibrary {
 public:
  // EnvironmentError where it is not found, with the remedy.
  explicit SharedLibrary(const SharedLibraryName& name)
      : name_(name), handle_(dlopen(name.file, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) {
      handle_ = dlopen((std::string(name.folder) + '/' + name.file).c_str(), RTLD_NOW | RTLD_LOCAL);
    }
    if (handle_ != nullptr) return;
    throw EnvironmentError(std::string(name.product) + ": cannot load " + name.file + " (" + dlerror() + "); install " +
                           name.package + " or add its folder to LD_LIBRARY_PATH, or " + name.otherwise);
  }

  // The function of this name, of the type of `declared`. EnvironmentError where the library has none.
  template <class Function>
  Function* find(Function* /*declared*/, const char* function) const {
    void* const found = dlsym(handle_, function);
    if (found != nullptr) return reinterpret_cast<Function*>(found);
    throw EnvironmentError(std::string(name_.product) + ": " + name_.file + " has no " + function +
                           "; install a newer " + name_.package + ", or " + name_.otherwise);
  }

 private:
  SharedLibraryName name_;
  void* handle_;
};

}  // namespace annulus

// The body of a declared C function that calls the one of its name in `library`, an expression of a SharedLibrary.
#define ANNULUS_PASS_ON(library, name, arguments)              \
  static const auto function = (library).find(&(name), #name); \
  return function arguments
