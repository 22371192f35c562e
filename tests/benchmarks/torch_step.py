"""Annulus and PyTorch side by side on the same weights and tokens; scripts/compare_torch.sh starts it.

torch_step.py EXECUTABLE MODEL LENGTH [ROUNDS]. MODEL: a directory with a config.json; weights are random, made once
and given to both. The two run by turns; the first step of each run warms up and is not timed. Prints a Markdown table. Where
PyTorch finds no memory without recomputation, the table says so.
"""

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS = 4
THREADS = len(os.sched_getaffinity(0))


def run(words, may_lack_memory=False):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    lacked_memory = done.returncode == -signal.SIGKILL or "OutOfMemoryError" in done.stderr
    if done.returncode != 0 and not (may_lack_memory and lacked_memory):
        sys.exit(f"{' '.join(map(str, words))} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done


def annulus(executable, folder, model, length, **settings):
    keys = dict(model__path=model, data__train=folder / "documents.jsonl", data__sequence_length=length,
                data__packing="none", data__shuffle="false", optimizer__learning_rate=1e-4,
                optimizer__schedule="constant", train__steps=STEPS, train__global_batch_size=1,
                output__directory=folder / "run", output__save_model="false") | settings
    (folder / "config.yaml").write_text("{}\n")
    done = run([executable, "train", folder / "config.yaml", *(f"{k.replace('__', '.')}={v}" for k, v in keys.items())])
    steps = [json.loads(line) for line in (keys["output__directory"] / "metrics.jsonl").read_text().splitlines()]
    occupied = int(done.stderr.split("this process occupied ")[1].split()[0])
    return dict(losses=[s["loss"] for s in steps], seconds=[s["seconds"] for s in steps], peak_bytes=occupied)


def torch(folder, model, recompute):
    """None if it found no memory."""
    script = Path(__file__).with_name("torch_baseline.py")
    words = [sys.executable, script, model, folder / "documents.jsonl", "--steps", STEPS, "--threads", THREADS]
    done = run([*words, "--recompute"] if recompute else words, may_lack_memory=not recompute)
    return json.loads(done.stdout) if done.returncode == 0 else None


def main():
    executable, model, length = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generator = random.Random(1)
        tokens = [[generator.randrange(min(vocabulary, 256)) for _ in range(length)] for _ in range(STEPS)]
        (folder / "documents.jsonl").write_text("".join(json.dumps({"input_ids": t}) + "\n" for t in tokens))
        annulus(executable, folder, model, length, model__init="random", optimizer__learning_rate=0,
                optimizer__weight_decay=0, train__steps=1, output__save_model="true", output__directory=folder / "start")
        start = folder / "start" / "model"
        results = {}
        for _ in range(rounds):
            for recompute in (True, False):
                rule = "layer" if recompute else "none"
                ours = annulus(executable, folder, start, length, memory__recompute=rule)
                theirs = torch(folder, start, recompute)
                if theirs is not None:
                    versions, parameter_bytes = theirs["versions"], theirs["state_bytes"] // 4
                results.setdefault(("Annulus", rule), []).append(ours | {"state_bytes": 9 * parameter_bytes})
                results.setdefault((versions, rule), []).append(theirs)
    print(f"{model.name}, {length} tokens, bfloat16, {THREADS} threads, {rounds} rounds by turns\n")
    print("| | recomputed | tokens/s | first loss | peak, GB | of it weights, gradients, optimiser |")
    print("|---|---|---|---|---|---|")
    for (who, rule), runs in sorted(results.items(), key=lambda item: item[0][1], reverse=True):
        if None in runs:
            print(f"| {who} | {rule} | found no memory | | | |")
            continue
        speed = statistics.median(length * (STEPS - 1) / sum(r["seconds"][1:]) for r in runs)
        peak = max(r["peak_bytes"] for r in runs)
        print(f"| {who} | {rule} | {speed:.1f} | {runs[0]['losses'][0]:.5f} | {peak / 1e9:.2f} | "
              f"{runs[0]['state_bytes'] / 1e9:.2f} |")


if __name__ == "__main__":
    main()
