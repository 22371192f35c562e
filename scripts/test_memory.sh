#!/usr/bin/env bash
# Compares what a process really occupies with its plan: one training step each of models that plan more than 2 GB. The
# process must stay between 100 MB below the plan, which says that what is planned is used, and 300 MB above it.
# scripts/test_memory.sh [NAME...]: the named ones, or small_* (minutes). The others need up to an hour of two cores, and
# qwen3_4b_disk 70 GB of free disk. ANNULUS_DISK: a folder for what goes to disk. Figures: docs/memory.md.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
disk=${ANNULUS_DISK:-$root/build/disk}
output=$root/build/test_memory

fail() {
  echo "test_memory.sh: error: $1" >&2
  exit 1
}

config=$root/configs/qwen3-0.6b-32k.yaml
shape=$root/configs/models
on_disk="memory.offload_gradients=disk memory.offload_optimizer=disk"
declare -A runs=(
  [small_all]="$config data.sequence_length=256"
  [small_disk]="$config data.sequence_length=512 $on_disk"
  [small_all_disk]="$config data.sequence_length=1024 $on_disk memory.offload_checkpoints=disk memory.offload_parameters=disk memory.recompute=none memory.mlp_tile=0"
  [small_float32]="$config data.sequence_length=300 model.dtype=float32 memory.recompute=keep_attention"
  [qwen3_0.6b_32k]="$config"
  [qwen3_0.6b_32k_disk]="$root/configs/qwen3-0.6b-32k-disk.yaml"
  [qwen3_1.7b_disk]="$root/configs/qwen3-4b-2k-disk.yaml model.path=$shape/qwen3-1.7b"
  [qwen3_4b_disk]="$root/configs/qwen3-4b-2k-disk.yaml"
)
names=("$@")
[[ ${#names[@]} -gt 0 ]] || names=(small_all small_disk small_all_disk small_float32)

"$root/scripts/install_dependencies.sh"
"$root/scripts/build.sh" annulus
for name in "${names[@]}"; do
  [[ -n ${runs[$name]:-} ]] || fail "'$name' is none of ${!runs[*]}"
  read -ra words <<<"${runs[$name]}"
  words+=(train.steps=1 output.save_model=false "output.directory=$output/$name" "memory.directory=$disk")
  begin=$SECONDS
  "$root/build/annulus" train "${words[@]}" >"$output.log" 2>&1 || { cat "$output.log" >&2; fail "$name failed"; }
  read -r process plan < <(sed -n 's/.*occupied \([0-9]*\) bytes.*plan has \([0-9]*\);.*/\1 \2/p' "$output.log")
  grep -o 'with memory\..*' "$output.log"
  echo "$name: plan $plan bytes, process $process ($(((process - plan) / 1000000)) MB more), $((SECONDS - begin)) s"
  [[ $plan -gt 2000000000 ]] || fail "$name plans less than 2 GB, so it says nothing"
  ((process > plan - 100000000 && process < plan + 300000000)) || fail "$name: the process is too far from its plan"
done
