#!/usr/bin/env bash
# Feeds damaged and invented files to everything that reads files (docs/sanitizers.md): builds the fuzz targets in
# build/fuzz, or in ANNULUS_FUZZ_BUILD where that is set, and runs the named ones, or all, one after the other.
# scripts/fuzz.sh [TARGET...] [-runs=N]: N executions each, ten million unless given. Needs clang.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
fuzz=$root/tests/fuzz
build=${ANNULUS_FUZZ_BUILD:-$root/build/fuzz}

fail() {
  echo "fuzz.sh: error: $1" >&2
  exit 1
}

all=()
for source in "$fuzz"/*.cpp; do
  all+=("$(basename "$source" .cpp)")
done
runs=10000000
targets=()
for word in "$@"; do
  if [[ $word =~ ^-runs=([0-9]+)$ ]]; then
    runs=${BASH_REMATCH[1]}
  elif [[ " ${all[*]} " == *" $word "* ]]; then
    targets+=("$word")
  else
    fail "'$word' is neither -runs=N nor one of the targets ${all[*]}"
  fi
done
[[ ${#targets[@]} -gt 0 ]] || targets=("${all[@]}")

for tool in cmake ninja clang++; do
  command -v "$tool" >/dev/null || fail "$tool is missing; run scripts/install_dependencies.sh tests first"
done
cmake -S "$fuzz" -B "$build" -G Ninja -DCMAKE_CXX_COMPILER=clang++ >/dev/null
cmake --build "$build" --target "${targets[@]}"

# Inputs are a few hundred bytes, so whoever takes more than these limits (MiB) has been made to by an input. For the same
# reason a small quarantine of freed memory is enough, and faster; so is a report that names one caller of malloc or
# free, since repeating a finding without these options names all.
export ASAN_OPTIONS=quarantine_size_mb=1:malloc_context_size=1${ASAN_OPTIONS:+:$ASAN_OPTIONS}
options=(-max_len=768 -timeout=60 -rss_limit_mb=512 -malloc_limit_mb=64 -print_final_stats=1 -verbosity=1)
mkdir -p "$build/findings"
for target in "${targets[@]}"; do
  corpus=$build/corpus/$target log=$build/$target.log
  mkdir -p "$corpus"
  begin=$SECONDS
  "$build/$target" "${options[@]}" -dict="$fuzz/$target.dict" -artifact_prefix="$build/findings/$target-" -runs="$runs" \
    "$corpus" "$fuzz/seeds/$target" >"$log" 2>&1 || {
    tail -n 60 "$log" >&2
    fail "$target found a defect; the input is in $build/findings, run '$build/$target FILE' on it again"
  }
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  echo "$target: $executions executions in $((SECONDS - begin)) s, no finding"
done
