#!/usr/bin/env bash
# Checks and measures Annulus on this machine's GPUs and writes one Markdown report: the device tests, attention and
# products against the roof, training of Qwen3-0.6B's shape on 32,768 tokens, memory against the plan, and the longest
# sequence that fits; on one GPU and on all of them. Takes half an hour to some hours. CUDA_VISIBLE_DEVICES chooses
# GPUs.
# scripts/gpu_check.sh [OUTPUT.md]: build/gpu_check.md unless given. Fails where a part fails, after all others.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
report=${1:-$root/build/gpu_check.md}
work=$root/build/gpu_check
annulus=$root/build/annulus
config=$root/configs/qwen3-0.6b-32k.yaml
on_gpus=(runtime.device=cuda runtime.memory_budget=auto)
length=32768
steps=8     # of which the first two warm up
limit=7200  # seconds for any one run
failed=()

fail() {
  echo "gpu_check.sh: error: $1" >&2
  exit 1
}

show() { # COMMAND...: what is run, as the report says it
  printf '    %s\n\n' "${*//$root\//}"
}

# Writes what FUNCTION prints under a heading of the report, whether it ends well or not; what it says on stderr is in a
# file beside, and its end in the report where the part fails.
part() { # TITLE FUNCTION [ARGUMENT...]
  local name="${*:2}" log status
  log=$work/${name// /_}.log
  echo "$1 ..." >&2
  printf '\n## %s\n\n' "$1" >>"$report"
  set +e
  (
    set -e
    "${@:2}"
  ) >>"$report" 2>"$log"
  status=$?
  set -e
  [[ $status -eq 0 ]] && return
  failed+=("$1")
  printf '\n**FAILED** with exit code %s:\n\n```\n%s\n```\n' "$status" "$(tail -n 20 "$log")" >>"$report"
  echo "$1: FAILED, see $log" >&2
}

count_gpus() {
  if [[ -v CUDA_VISIBLE_DEVICES ]]; then
    tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c .
  else
    nvidia-smi --list-gpus | grep -c '^GPU'
  fi
}

machine() {
  local fields=index,name,memory.total,memory.used,driver_version,power.limit,clocks.max.sm
  echo "| ${fields//,/ | } |"
  echo "|---|---|---|---|---|---|---|"
  nvidia-smi --query-gpu="$fields" --format=csv,noheader | sed 's/, / | /g; s/.*/| & |/'
  echo
  echo "* $(date --utc '+%d %B %Y, %H:%M UTC'); up to $gpus of these GPUs are used"
  echo "* $(sed -n 's/^model name.*: //p' /proc/cpuinfo | sed -n 1p), $(nproc) threads, Linux $(uname -r)"
  echo "* $(awk '/^MemTotal:/ { printf "%.0f GB of memory", $2 * 1024e-9 }' /proc/meminfo)"
  echo "* $("$nvcc" --version | grep release), $(mpirun --version | sed -n 1p)"
  echo "* Annulus at revision $(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown)"
  printf '\n```\n%s\n```\n' "$(nvidia-smi topo --matrix 2>&1 || true)"
}

build() {
  ANNULUS_CMAKE_FLAGS="-DANNULUS_CUDA=ON -DANNULUS_CUDA_ARCHITECTURES=native ${ANNULUS_CMAKE_FLAGS:-}" \
    "$root/scripts/build.sh" annulus gpu_tests kernels_benchmark >&2
  echo "Built for the architecture of these GPUs, $("$annulus" --version)."
}

# A test that finds no GPU is skipped, which is no success here.
device_tests() {
  local output=$work/device_tests.txt
  local command=(ctest --test-dir "$root/build" -L '^gpu$' --output-on-failure --no-tests=error)
  show "${command[@]}"
  "${command[@]}" >"$output" 2>&1 || {
    cat "$output" >&2
    return 1
  }
  grep 'tests passed' "$output"
  ! grep -q 'Skipped' "$output" || {
    echo "tests were skipped, since the CUDA runtime finds no GPU: $output" >&2
    return 1
  }
}

operations() {
  show "$root/build/kernels_benchmark" --device cuda
  "$root/build/kernels_benchmark" --device cuda | tee "$work/operations.txt"
}

number() { # KEY < JSON of `annulus plan`, or a line of metrics.jsonl
  sed -nE "s/^( {2}|.*[{,] ?)\"$1\": ?([0-9.e+-]+).*/\2/p"
}

word() { # KEY < JSON of `annulus plan`
  sed -nE "s/^ {2}\"$1\": \"(.*)\",?$/\1/p"
}

median() { # of numbers, one a line
  sort -g | awk '{ value[NR] = $1 } END {
    if (NR == 0) exit 1
    print (value[int((NR + 1) / 2)] + value[int(NR / 2) + 1]) / 2
  }'
}

roof() { # TFLOP/s, as it was measured; nothing where it was not
  [[ ! -f $work/operations.txt ]] || sed -n 's/^roof: \([0-9.]*\) TFLOP.*/\1/p' "$work/operations.txt"
}

# One document longer than any sequence that is planned, so that attention sees all that its plan counts.
make_text() {
  head -c 2097152 < <(seq 1 1000000) >"$work/text"
}

train() { # RANKS LENGTH STEPS: into $work/run and, what is logged, $work/run.log
  local command=("$annulus" train "$config" "${on_gpus[@]}" data.train="$work/text" data.sequence_length="$2"
    train.steps="$3" output.save_model=false output.directory="$work/run" --ranks "$1")
  show "${command[@]}"
  rm -rf "$work/run"
  NCCL_DEBUG=VERSION timeout "$limit" "${command[@]}" 2>"$work/run.log" || {
    cat "$work/run.log" >&2
    return 1
  }
}

plan() { # RANKS [WORD...]
  "$annulus" plan "$config" runtime.device=cuda "${@:2}" --ranks "$1" --json
}

begin_table() {
  printf '\n| figure | value |\n|---|---|\n'
}

memory_rows() { # of the run in $work/run, as its log has it
  local log=$work/run.log planned rule assumed taken outside
  read -r planned rule < <(sed -n 's/.*memory: \([0-9]*\) bytes of .* a rank, with \(.*\)/\1 \2/p' "$log")
  assumed=$(sed -n 's/.*outside of that: \([0-9]*\) bytes.*/\1/p' "$log")
  read -r taken outside < <(sed -n 's/.*has \([0-9]*\) bytes taken, .* and \([0-9]*\) are not.*/\1 \2/p' "$log")
  echo "| memory settings | $rule |"
  echo "| plan of rank 0, bytes | $planned |"
  echo "| assumed outside of it, bytes | $assumed |"
  echo "| taken of its GPU at the end, bytes | $taken |"
  echo "| outside of the plan, bytes, other processes' included | $outside |"
}

# MFU counts what a step has to compute: the plan's operations where nothing is computed twice.
training() { # RANKS
  local metrics=$work/run/metrics.jsonl seconds rate flops
  train "$1" "$length" "$steps"
  seconds=$(tail -n +3 "$metrics" | number seconds | median)
  rate=$(tail -n +3 "$metrics" | number tokens_per_second | median)
  flops=$(plan 1 memory.recompute=none runtime.memory_budget=1000TB |
    awk -F': ' '/^  "(attention|matmul)_flops"/ { sum += $2 } END { print sum }')
  begin_table
  echo "| tokens/s, median of steps 3 to $steps | $rate |"
  echo "| seconds a step | $seconds |"
  awk -v flops="$flops" -v seconds="$seconds" -v gpus="$1" -v roof="$(roof)" 'BEGIN {
    print "| TFLOP a step | " flops * 1e-12 " |"
    print "| TFLOP/s a GPU | " flops * 1e-12 / seconds / gpus " |"
    if (roof > 0) printf "| MFU, of %s TFLOP/s | %.1f%% |\n", roof, flops * 1e-10 / seconds / gpus / roof
    else print "| MFU | unknown: the roof was not measured |"
  }'
  echo "| loss of steps 1 and $steps | $(number loss <"$metrics" | sed -n '1p;$p' | paste -sd' ') |"
  memory_rows
}

longest() { # RANKS
  local planned=$work/plan_$1.json most bound rounded
  plan "$1" runtime.memory_budget=auto >"$planned"
  most=$(number longest_sequence_length <"$planned")
  bound=$(word longest_bounded_by <"$planned")
  rounded=$((most / 1024 * 1024))
  echo "The plan has room for $most tokens, ${bound:-which is the most that is tried}${bound:+ being what bounds it}."
  [[ $rounded -gt 0 ]] || {
    echo "the plan does not even have room for 1024 tokens" >&2
    return 1
  }
  echo
  train "$1" "$rounded" 1
  begin_table
  echo "| tokens that were trained on in one step | $rounded |"
  echo "| seconds of the step | $(number seconds <"$work/run/metrics.jsonl") |"
  memory_rows
}

[[ $# -le 1 ]] || {
  echo "gpu_check.sh: error: one argument at most, the file to write; there are $#" >&2
  exit 2
}
command -v nvidia-smi >/dev/null || fail "nvidia-smi is missing, so there is no driver of NVIDIA and no GPU to check"
gpus=$(count_gpus) || fail "nvidia-smi finds no GPU that may be used: $(nvidia-smi --list-gpus 2>&1 | sed -n 1p)"
nvcc=$(PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin command -v nvcc) ||
  fail "nvcc is neither in PATH nor in CUDA_HOME nor in /usr/local/cuda; install the CUDA toolkit, 12.4 or newer"

"$root/scripts/install_dependencies.sh"
rm -rf "$work"
mkdir -p "$work"
echo "# Annulus on GPUs" >"$report"
part "Machine" machine
part "Build" build
[[ ${#failed[@]} -eq 0 ]] || fail "without a build there is nothing to measure; the report is $report"
part "Device tests" device_tests
part "Operations" operations
make_text
counts=(1)
[[ $gpus -eq 1 ]] || counts+=("$gpus")
for ranks in "${counts[@]}"; do
  part "Training on $ranks of $gpus GPUs, $length tokens" training "$ranks"
done
for ranks in "${counts[@]}"; do
  part "Longest sequence on $ranks of $gpus GPUs" longest "$ranks"
done
echo "the report is $report" >&2
[[ ${#failed[@]} -eq 0 ]] || fail "failed: $(printf '%s; ' "${failed[@]}")"
