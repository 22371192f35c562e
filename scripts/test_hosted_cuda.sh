#!/usr/bin/env bash
# The long versions of the hosted CUDA tests (tests/hosted_cuda/README.md), whose short one is part of scripts/test.sh.
#   scripts/test_hosted_cuda.sh [SEEDS]   under clang's ThreadSanitizer: what depends on the schedule, for each of its
#                                         seeds, 20 unless given; then kernels and rings once
#   scripts/test_hosted_cuda.sh full      every device test, at its full size, without a sanitizer; takes an hour
# ANNULUS_CMAKE_FLAGS: more flags for CMake.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
read -r -a flags <<<"${ANNULUS_CMAKE_FLAGS:-}"

build() { # FOLDER FLAG...
  cmake -S "$root" -B "$1" -G Ninja "${@:2}" "${flags[@]}"
  cmake --build "$1" --target hosted_cuda_all
}

# What depends on the schedule: the double itself, what NCCL carries, a ring and parameters on 2 to 4 ranks, and runs on
# 1 to 3 with everything under way at once.
scheduled='^hosted_cuda\.([A-Z]|parallel\.(NcclTransport|RingAttention\.Keeps|Ranks/Sharded)|runtime\.Ranks/Overlap)'

run() { # CTEST-ARGUMENT...
  ctest --test-dir "$root/build-hosted-cuda" --output-on-failure --no-tests=error -j 2 --timeout 1800 \
    -L hosted_cuda "$@"
}

test_under_seeds() { # SEEDS
  build "$root/build-hosted-cuda" -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DANNULUS_SANITIZE=thread
  for ((seed = 1; seed <= $1; ++seed)); do
    echo "seed $seed of $1"
    ANNULUS_HOSTED_SEED=$seed run -R "$scheduled"
  done
  run -R '^hosted_cuda\.(kernels|parallel)\.' -E "$scheduled"
}

test_in_full() {
  build "$root/build"
  for tests in hosted_cuda_tests hosted_libraries_tests hosted_kernels_tests hosted_parallel_tests \
    hosted_runtime_tests; do
    "$root/build/$tests"
  done
}

[[ ${1:-20} =~ ^([0-9]+|full)$ ]] || {
  echo "test_hosted_cuda.sh: error: '$1' is neither a number of seeds nor 'full'" >&2
  exit 2
}
"$root/scripts/install_dependencies.sh" tests
if [[ ${1:-} == full ]]; then
  test_in_full
else
  test_under_seeds "${1:-20}"
fi
