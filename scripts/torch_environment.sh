#!/usr/bin/env bash
# Makes the virtual environment with PyTorch and transformers that comparisons use, unless it is there, and prints the
# path of its python. In build/ (Python 3.11 or newer), 5.4 GB with PyPI's torch, which brings CUDA's libraries though
# a CPU needs none of them.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
environment=$root/build/torch_environment
packages=(torch==2.15.0 transformers==5.24.0 safetensors==0.8.0 numpy==2.4.6)

if [[ $(cat "$environment/packages" 2>/dev/null) != "${packages[*]}" ]]; then
  python3 -m venv --clear "$environment" >&2 || {
    echo "torch_environment.sh: error: python3 cannot make a virtual environment; install python3-venv" >&2
    exit 1
  }
  "$environment/bin/pip" install --quiet --no-cache-dir "${packages[@]}" >&2
  echo "${packages[*]}" >"$environment/packages"
fi
echo "$environment/bin/python"
