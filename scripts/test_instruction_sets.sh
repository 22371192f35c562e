#!/usr/bin/env bash
# Runs all tests once for each instruction set of this CPU, the others forbidden (docs/instruction_sets.md), and prints a
# line for each. Takes several times as long as scripts/test.sh. Arguments go to ctest:
# scripts/test_instruction_sets.sh -L kernels
set -euo pipefail
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$scripts/../build

cpu_has() { # FLAG...: all of them
  local flag
  for flag in "$@"; do
    grep -qwm1 "$flag" /proc/cpuinfo || return 1
  done
}
values=()
! cpu_has avx512_bf16 || values+=(avx512_bf16)
! cpu_has avx512f avx512bw avx512cd avx512dq avx512vl || values+=(avx512)
! cpu_has avx2 fma bmi1 bmi2 || values+=(avx2)
values+=(plain)

"$scripts/install_dependencies.sh" tests
"$scripts/build.sh" all

failed=()
for value in "${values[@]}"; do
  log=$build/test_$value.log
  begin=$SECONDS
  if ANNULUS_MAX_ISA=$value ctest --test-dir "$build" --output-on-failure --no-tests=error -j 2 "$@" >"$log" 2>&1; then
    result=$(grep 'tests passed' "$log")
  else
    failed+=("$value")
    result="FAILED, see $(realpath "$log")"
  fi
  echo "ANNULUS_MAX_ISA=$value: $result, $((SECONDS - begin)) s"
done
[[ ${#failed[@]} -eq 0 ]] || {
  echo "test_instruction_sets.sh: error: tests fail with ${failed[*]}" >&2
  exit 1
}
