# The CUDA device. The CUDA runtime is linked statically and cuBLASLt is loaded when it is first used, so that the same
# executable runs on machines without either and computes on the CPU there.
set(ANNULUS_CUDA AUTO CACHE STRING "Build the CUDA device: ON, OFF, or AUTO: where nvcc is found")
set(ANNULUS_CUDA_ARCHITECTURES "80-real;90a-real;90-virtual" CACHE STRING
  "What GPUs the kernels are compiled for: A100 and its kind, H100, and by the driver whatever comes later")
set_property(CACHE ANNULUS_CUDA PROPERTY STRINGS AUTO ON OFF)

set(ANNULUS_CUDA_BUILT OFF)
if(ANNULUS_SANITIZE AND ANNULUS_CUDA STREQUAL AUTO)
  message(STATUS "CUDA: not built, since a sanitizer sees nothing of a GPU; tests/hosted_cuda runs the same sources")
elseif(NOT ANNULUS_CUDA STREQUAL OFF)
  find_program(ANNULUS_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(ANNULUS_NVCC)
    set(CMAKE_CUDA_COMPILER ${ANNULUS_NVCC})
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
    set(CMAKE_CUDA_ARCHITECTURES ${ANNULUS_CUDA_ARCHITECTURES})
    enable_language(CUDA)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # which CMake 3.25 does not know
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA_STANDARD 20)
    find_package(CUDAToolkit 12.4 REQUIRED)
    set(ANNULUS_CUDA_BUILT ON)
  elseif(ANNULUS_CUDA STREQUAL ON)
    message(FATAL_ERROR "ANNULUS_CUDA is ON, and nvcc is not in PATH, CUDA_HOME, CUDA_PATH or /usr/local/cuda")
  endif()
endif()
