#!/usr/bin/env bash
# Compares annulus with Hugging Face transformers: files in both directions, logits, losses, gradients, some training.
# Prints a line a check and fails if any is out of its bound. scripts/check_transformers.sh [EXECUTABLE]; without one,
# build/annulus is built. The first call makes a virtual environment (scripts/torch_environment.sh).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

executable=${1:-$root/build/annulus}
[[ $# -gt 0 ]] || "$root/scripts/build.sh"
[[ -x $executable ]] || {
  echo "check_transformers.sh: error: '$executable' is not an executable; name one, or none to have it built" >&2
  exit 1
}
python=$("$root/scripts/torch_environment.sh")
HF_HUB_OFFLINE=1 "$python" "$root/scripts/check_transformers.py" "$(realpath "$executable")"
