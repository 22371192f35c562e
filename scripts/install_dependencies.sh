#!/usr/bin/env bash
# Installs what building and running Annulus needs, from the packages of Debian 12 or Ubuntu 24.04; with the argument
# "tests" also what all tests need: clang, for the fuzz targets and for hosted CUDA under ThreadSanitizer,
# Boost.Context, and Python, for the coverage of hosted CUDA. Does nothing where all of it is there.
set -euo pipefail

packages=(g++ cmake ninja-build ccache openmpi-bin libopenmpi-dev libdnnl-dev libfmt-dev libspdlog-dev libyaml-cpp-dev
  libcli11-dev nlohmann-json3-dev libgtest-dev libbenchmark-dev)
[[ ${1:-} != tests ]] || packages+=(clang libclang-rt-dev libomp-dev libboost-context-dev python3)

fail() {
  echo "install_dependencies.sh: error: $1" >&2
  exit 1
}

command -v dpkg-query >/dev/null || fail "this is neither Debian nor Ubuntu; install what these packages hold: ${packages[*]}"

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

as_root=()
if [[ $EUID -ne 0 ]]; then
  command -v sudo >/dev/null || fail "not root and no sudo here; ask somebody who is to install: ${missing[*]}"
  as_root=(sudo)
fi
echo "Installing: ${missing[*]}"
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
