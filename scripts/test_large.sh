#!/usr/bin/env bash
# Tests buffers of more than 2^31 elements: builds and runs tests/large, which needs 21 GiB of free memory and some
# minutes. Arguments go to the test: scripts/test_large.sh --gtest_filter='LargeHead*'
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

needed=21 # GiB
available=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
[[ $available -ge $needed ]] || {
  echo "test_large.sh: error: $needed GiB of memory are needed and $available are free; end what holds the rest" >&2
  exit 1
}
"$root/scripts/install_dependencies.sh"
"$root/scripts/build.sh" large_tests
"$root/build/large_tests" "$@"
