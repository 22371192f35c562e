#!/usr/bin/env bash
# Builds build/annulus, or the targets named as arguments. ANNULUS_CMAKE_FLAGS: more flags for CMake, separated by blanks.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

for tool in cmake ninja; do
  command -v "$tool" >/dev/null || {
    echo "build.sh: error: $tool is missing; run scripts/install_dependencies.sh first" >&2
    exit 1
  }
done
read -r -a flags <<<"${ANNULUS_CMAKE_FLAGS:-}"
[[ $# -gt 0 ]] || set -- annulus
cmake -S "$root" -B "$root/build" -G Ninja "${flags[@]}"
cmake --build "$root/build" --target "$@"
