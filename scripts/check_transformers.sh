#!/usr/bin/env bash
# Compares annulus with Hugging Face transformers: files in both directions, logits, losses, gradients, some training.
# Prints a line a check and fails if any is out of its bound. scripts/check_transformers.sh [EXECUTABLE]; without one,
# build/annulus is built. The first call makes a virtual environment in build/ (Python 3.11 or newer), 5.4 GB with
# PyPI's torch, which brings CUDA's libraries though only the CPU is used.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
environment=$root/build/check_transformers
packages=(torch==2.15.0 transformers==5.24.0 safetensors==0.8.0 numpy==2.4.6)

executable=${1:-$root/build/annulus}
[[ $# -gt 0 ]] || "$root/scripts/build.sh"
[[ -x $executable ]] || {
  echo "check_transformers.sh: error: '$executable' is not an executable; name one, or none to have it built" >&2
  exit 1
}

if [[ $(cat "$environment/packages" 2>/dev/null) != "${packages[*]}" ]]; then
  python3 -m venv --clear "$environment" || {
    echo "check_transformers.sh: error: python3 cannot make a virtual environment; install python3-venv" >&2
    exit 1
  }
  "$environment/bin/pip" install --quiet --no-cache-dir "${packages[@]}"
  echo "${packages[*]}" >"$environment/packages"
fi
HF_HUB_OFFLINE=1 "$environment/bin/python" "$root/scripts/check_transformers.py" "$(realpath "$executable")"
