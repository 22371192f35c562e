#!/usr/bin/env bash
# Compares with PyTorch on this machine's CPU or GPU and prints a Markdown table. The first call makes a virtual
# environment (scripts/torch_environment.sh).
#
#   compare_torch.sh [step [LENGTH [MODEL]]]  trains the same model on the same tokens, by turns: tokens per second, the
#                                             first loss, peak memory; 4096 tokens of Qwen3-0.6B's shape unless given
#   compare_torch.sh attention [LENGTH...]    times attention on the CPU, causal, at 8192 and 32768 tokens unless given
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
benchmarks=$root/tests/benchmarks
part=${1:-step}
shift || true

prepare() { # TARGET...
  "$root/scripts/install_dependencies.sh"
  "$root/scripts/build.sh" "$@"
  python=$("$root/scripts/torch_environment.sh")
}

case $part in
  step)
    prepare annulus
    HF_HUB_OFFLINE=1 "$python" "$benchmarks/torch_step.py" "$root/build/annulus" \
      "${2:-$root/configs/models/qwen3-0.6b}" "${1:-4096}"
    ;;
  attention)
    prepare kernels_benchmark
    [[ $# -gt 0 ]] || set -- 8192 32768
    "$python" "$benchmarks/torch_attention.py" "$root/build/kernels_benchmark" "$@"
    ;;
  *)
    echo "compare_torch.sh: error: '$part' is neither step nor attention" >&2
    exit 1
    ;;
esac
