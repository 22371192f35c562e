#!/usr/bin/env bash
# Trains the same model on the same tokens with annulus and with PyTorch, by turns, and prints a Markdown table: tokens
# per second, the first loss, peak memory. scripts/compare_torch.sh [LENGTH [MODEL]]: 4096 tokens of Qwen3-0.6B's shape
# unless given. The first call makes a virtual environment (scripts/torch_environment.sh).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
length=${1:-4096} model=${2:-$root/configs/models/qwen3-0.6b}

"$root/scripts/install_dependencies.sh"
"$root/scripts/build.sh"
python=$("$root/scripts/torch_environment.sh")
HF_HUB_OFFLINE=1 "$python" "$root/tests/benchmarks/compare_torch.py" "$root/build/annulus" "$model" "$length"
