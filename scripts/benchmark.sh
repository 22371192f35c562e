#!/usr/bin/env bash
# Measures Annulus on this machine's CPU and writes Markdown: every operation against the roof measured beside it, one
# thread against all, a decoder layer, the ring exchange, training on one rank against several, and with a window at
# growing lengths. Takes about an hour on a few cores, which nothing else should use meanwhile; docs/performance.md
# holds what it has measured. scripts/benchmark.sh [PART...]: operations, threads, layer, exchange, ranks, windows, or
# all of them.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build
cores=$(nproc)
all=(operations threads layer exchange ranks windows)

fail() {
  echo "benchmark.sh: error: $1" >&2
  exit 1
}

show() { # COMMAND...: runs it and says so
  printf '    %s\n\n' "${*//$root\//}"
  "$@"
  echo
}

machine() {
  echo "* $(sed -n 's/^model name.*: //p' /proc/cpuinfo | sed -n 1p), $cores cores, $(awk '/^MemTotal:/ { printf "%.0f GB of memory", $2 * 1024e-9 }' /proc/meminfo)"
  echo "* $(date --utc '+%d %B %Y'), Annulus at revision $(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown)"
}

on_cpu=(--device cpu --products 1024 2048 4096)

operations() {
  show "$build/kernels_benchmark" "${on_cpu[@]}" --threads "$cores" --masks causal full window --tokens 4096 16384 --rows 4096
  show "$build/kernels_benchmark" "${on_cpu[@]}" --threads "$cores" --dtypes float32 --masks causal --tokens 4096 --rows 4096
}

threads() {
  show "$build/kernels_benchmark" "${on_cpu[@]}" --threads 1 --tokens 4096 --rows 4096
}

layer() {
  show "$build/layer_benchmark" "${on_cpu[@]}" --threads "$cores" --tokens 4096
}

exchange() {
  show mpirun --oversubscribe -n 2 "$build/exchange_benchmark"
}

# One document of bytes, longer than any sequence that is cut from it.
make_text() {
  text=$build/benchmark/text
  mkdir -p "$build/benchmark"
  head -c 2097152 < <(seq 1 1000000) >"$text"
}

compare() { # LENGTH [WORD...]: a model of 25 million parameters, at one rank and at two
  show "$build/annulus" compare "$root/configs/byte-1m.yaml" "data.train=$text" "data.sequence_length=$1" train.steps=3 \
    output.save_model=false "output.directory=$build/benchmark/run" "${@:2}" --ranks 1,2
}

ranks() {
  make_text
  compare 4096 attention.sliding_window=none
  compare 32768 attention.sliding_window=none
}

windows() {
  make_text
  for length in 8192 32768 131072 262144; do
    compare "$length"
  done
}

for part in "$@"; do
  [[ " ${all[*]} " == *" $part "* ]] || fail "'$part' is none of ${all[*]}"
done
[[ $# -gt 0 ]] || set -- "${all[@]}"
"$root/scripts/install_dependencies.sh" >&2
"$root/scripts/build.sh" annulus kernels_benchmark layer_benchmark exchange_benchmark >&2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
machine
for part in "$@"; do
  printf '\n## %s\n\n' "${part^}"
  "$part"
done
