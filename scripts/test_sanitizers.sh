#!/usr/bin/env bash
# Builds with sanitizers and runs the tests (docs/sanitizers.md): address, AddressSanitizer and
# UndefinedBehaviorSanitizer over all tests; thread, ThreadSanitizer over those that run ranks as threads. Takes several
# times as long as scripts/test.sh. scripts/test_sanitizers.sh [address|thread], both unless given; ANNULUS_CMAKE_FLAGS:
# more flags for CMake.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
read -r -a flags <<<"${ANNULUS_CMAKE_FLAGS:-}"

export UBSAN_OPTIONS=print_stacktrace=1
export ASAN_OPTIONS=check_initialization_order=1:strict_init_order=1:detect_stack_use_after_return=1
export TSAN_OPTIONS=suppressions=$root/tests/sanitizers/races.supp:second_deadlock_stack=1:halt_on_error=1

build() { # PRESET TARGET...
  (cd "$root" && cmake --preset "$1" "${flags[@]}")
  cmake --build "$root/build-$1" --target "${@:2}"
}

run() { # PRESET CTEST-ARGUMENT...
  ctest --test-dir "$root/build-$1" --output-on-failure --no-tests=error -j 2 --timeout 900 "${@:2}"
}

test_address() {
  build address all
  run address -LE 'whole|fuzz'
  # Open MPI leaves memory behind and unloads the plug-ins that allocated it, so that no suppression could name it.
  ASAN_OPTIONS+=:detect_leaks=0 run address -L whole
}

# Only tests whose ranks have one thread each: libgomp's barriers are invisible to ThreadSanitizer.
test_thread() {
  build thread parallel_tests runtime_tests
  run thread -L 'parallel|runtime'
}

[[ $# -gt 0 ]] || set -- address thread
for sanitizer in "$@"; do
  [[ $sanitizer == address || $sanitizer == thread ]] || {
    echo "test_sanitizers.sh: error: '$sanitizer' is neither address nor thread" >&2
    exit 2
  }
done
"$root/scripts/install_dependencies.sh"
for sanitizer in "$@"; do
  "test_$sanitizer"
done
