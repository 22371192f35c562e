#!/usr/bin/env bash
# Builds with sanitizers and runs the tests (docs/sanitizers.md): address, AddressSanitizer and
# UndefinedBehaviorSanitizer over all tests; thread, ThreadSanitizer over those that run ranks as threads. Takes several
# times as long as scripts/test.sh. scripts/test_sanitizers.sh [address|thread], both unless given; ANNULUS_CMAKE_FLAGS:
# more flags for CMake.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
suppressions=$root/tests/sanitizers
read -r -a flags <<<"${ANNULUS_CMAKE_FLAGS:-}"

export UBSAN_OPTIONS=print_stacktrace=1
export ASAN_OPTIONS=check_initialization_order=1:strict_init_order=1:detect_stack_use_after_return=1
export LSAN_OPTIONS=suppressions=$suppressions/leaks.supp:print_suppressions=0
export TSAN_OPTIONS=suppressions=$suppressions/races.supp:second_deadlock_stack=1:halt_on_error=1

run() { # PRESET TARGET CTEST-ARGUMENT...
  local preset=$1 target=$2
  shift 2
  (cd "$root" && cmake --preset "$preset" "${flags[@]}")
  cmake --build "$root/build-$preset" --target "$target"
  ctest --test-dir "$root/build-$preset" --output-on-failure --no-tests=error -j 2 --timeout 900 "$@"
}

case ${1:-both} in
  address | thread | both) ;;
  *)
    echo "test_sanitizers.sh: error: '$1' is neither address nor thread" >&2
    exit 2
    ;;
esac
"$root/scripts/install_dependencies.sh"
[[ ${1:-both} == thread ]] || run address all -LE fuzz
# oneDNN's and libgomp's code is invisible to ThreadSanitizer, so only tests whose ranks have one thread each.
[[ ${1:-both} == address ]] || run thread thread_tests -L 'parallel|runtime'
