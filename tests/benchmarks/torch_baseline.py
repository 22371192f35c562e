"""Trains a Qwen3 model with PyTorch and transformers, as a user would: SDPA attention, bfloat16, AdamW, one sequence a
step. Prints one JSON object.

torch_baseline.py MODEL DOCUMENTS --steps N [--threads N] [--recompute]. MODEL: a Hugging Face directory with weights.
DOCUMENTS: JSONL of {"input_ids": [...]}, one sequence a line. On the first GPU where there is one, else on the CPU.
"""

import argparse
import json
import resource
import time
from itertools import cycle, islice
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("documents", type=Path)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, help="CPU threads")
    parser.add_argument("--recompute", action="store_true", help="keep each layer's input alone")
    return parser.parse_args()


def peak_bytes(device):
    if device == "cuda":
        return torch.cuda.max_memory_reserved()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main():
    args = arguments()
    if args.threads:
        torch.set_num_threads(args.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16, attn_implementation="sdpa").to(device)
    model.train()
    model.config.use_cache = False
    if args.recompute:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), fused=True)
    documents = [json.loads(line)["input_ids"] for line in args.documents.read_text().splitlines()]

    losses, seconds = [], []
    for tokens in islice(cycle(documents), args.steps):
        begin = time.perf_counter()
        ids = torch.tensor([tokens], device=device)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begin)
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    print(json.dumps({"losses": losses, "seconds": seconds, "tokens": len(documents[0]), "peak_bytes": peak_bytes(device),
                      "state_bytes": 4 * weights, "versions": f"torch {torch.__version__}"}))


if __name__ == "__main__":
    main()
