"""Attention of Annulus and PyTorch's scaled_dot_product_attention side by side; scripts/compare_torch.sh starts it.

torch_attention.py BENCHMARK LENGTH...: BENCHMARK is kernels_benchmark. Causal, bfloat16, 16 query heads of 128 on 8 of keys
and values, forward and backward, one sequence of each length, all CPU cores. PyTorch gets keys and values repeated for
every query head beforehand: that is not timed, and not all of its kernels take fewer. Medians of five repetitions each.
Prints a Markdown table.
"""

import os
import re
import statistics
import subprocess
import sys
import time

import torch

HEADS, KV_HEADS, HEAD_DIM = 16, 8, 128
THREADS = len(os.sched_getaffinity(0))
REPETITIONS = 5


def annulus(benchmark, length):
    words = [benchmark, "--device", "cpu", "--threads", THREADS, "--masks", "causal", "--tokens", length, "--rows", 16,
             "--products", 64]
    table = subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout
    row = r"\| attention {}, causal \| bfloat16 \| \d+ \| ([\d.]+) \|"
    return [float(re.search(row.format(part), table).group(1)) / 1e3 for part in ("forward", "backward")]


def pytorch(length):
    numbers = lambda heads: torch.randn(1, heads, length, HEAD_DIM, dtype=torch.bfloat16)
    query = numbers(HEADS).requires_grad_()
    key, value = (numbers(KV_HEADS).repeat_interleave(HEADS // KV_HEADS, 1).requires_grad_() for _ in range(2))
    gradient = numbers(HEADS)
    forward, backward = [], []
    for _ in range(REPETITIONS):
        begin = time.perf_counter()
        output = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        middle = time.perf_counter()
        output.backward(gradient)
        forward.append(middle - begin)
        backward.append(time.perf_counter() - middle)
    return statistics.median(forward), statistics.median(backward)


def main():
    torch.set_num_threads(THREADS)
    print(f"attention, causal, bfloat16, {HEADS}/{KV_HEADS} heads of {HEAD_DIM}, {THREADS} threads, torch {torch.__version__}\n")
    print("| tokens | | Annulus, s | PyTorch, s | times as fast |")
    print("|---|---|---|---|---|")
    for length in map(int, sys.argv[2:]):
        for part, ours, theirs in zip(("forward", "backward"), annulus(sys.argv[1], length), pytorch(length)):
            print(f"| {length} | {part} | {ours:.3f} | {theirs:.3f} | {theirs / ours:.2f} |", flush=True)


if __name__ == "__main__":
    main()
