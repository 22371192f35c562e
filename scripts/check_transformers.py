"""Compares annulus with Hugging Face transformers; scripts/check_transformers.sh starts it.

All models are random and tiny. The reference is transformers' own Qwen3ForCausalLM with eager attention on the same
files, in float64 as far as it goes: its norms, softmax and rotary angles are float32 whatever the model's dtype.
"""

import json
import random
import subprocess
import sys
import tempfile
from collections import namedtuple
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging

SHAPE = dict(vocab_size=61, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16, max_position_embeddings=512)  # head_dim is not 48 / 4
SLIDING = dict(use_sliding_window=True, sliding_window=5, max_window_layers=1)  # the first layer sees all
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
# Relative to transformers: the loss, the norm of the gradient, each gradient tensor.
BOUNDS = {"float32": (2e-6, 1e-5, 2e-5), "bfloat16": (1e-3, 1e-2, 6e-2)}
LOG_PROBABILITY_BOUND = 1e-4  # absolute

failures = 0


def report(check, measured, bound, more=""):
    global failures
    passed = measured <= bound  # false for NaN
    failures += not passed
    print(f"{'ok    ' if passed else 'FAILED'} {check}: {measured:.2g} (bound {bound:g}{more})", flush=True)


def relative(ours, theirs):
    return abs(ours - theirs) / abs(theirs)


# ---- annulus

Document = namedtuple("Document", "tokens labels")  # labels[i]: the answer at token i; -100: none
Run = namedtuple("Run", "metrics gradients model")  # per step; of step 1, float64 tensors by name; the saved directory


def random_document(length, generator):
    tokens = [generator.randrange(SHAPE["vocab_size"]) for _ in range(length)]
    labels = [generator.randrange(SHAPE["vocab_size"]) if generator.random() < 0.8 else -100 for _ in range(length)]
    return Document(tokens, labels)


def train(executable, folder, model, documents, ranks=1, **settings):
    """One run of annulus in `folder`; settings are keys with __ for the dot. Unless they say otherwise, one step on all
    documents that changes no weight."""
    folder.mkdir(parents=True)
    lines = [json.dumps({"input_ids": d.tokens, "labels": d.labels}) + "\n" for d in documents]
    (folder / "documents.jsonl").write_text("".join(lines))
    keys = dict(model__path=model, model__dtype="float32", data__train=folder / "documents.jsonl",
                data__sequence_length=max(len(d.tokens) for d in documents), data__packing="none",
                data__shuffle="false", optimizer__learning_rate=0, optimizer__weight_decay=0,
                optimizer__schedule="constant", train__steps=1, train__global_batch_size=len(documents),
                output__directory=folder, debug__save_gradients="true") | settings
    (folder / "config.yaml").write_text("{}\n")
    words = [f"{key.replace('__', '.')}={value}" for key, value in keys.items()]
    done = subprocess.run([executable, "train", folder / "config.yaml", *words, "--ranks", str(ranks)],
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"annulus ended with {done.returncode}: {done.stderr}{' '.join(words)}")
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    gradients = {name: tensor.double() for name, tensor in load_file(folder / "gradient.safetensors").items()}
    return Run(metrics, gradients, folder / "model")


# ---- transformers


def open_model(directory):
    """The model, and how many tensors transformers missed, did not expect or could not fit."""
    model, info = AutoModelForCausalLM.from_pretrained(directory, dtype="auto", attn_implementation="eager",
                                                       output_loading_info=True)
    return model, sum(len(info[kind]) for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))


def make_model(directory, dtype, shard_size, **config):
    """A random model as transformers saves it; norms are not 1 and weights large enough for uneven probabilities."""
    torch.manual_seed(3)
    rope = {"rope_type": "default", "rope_theta": 5e4}
    model = Qwen3ForCausalLM(Qwen3Config(**SHAPE, rope_parameters=rope, **config))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(1, 0.3) if parameter.dim() == 1 else parameter.normal_(0, 0.15)
    model.to(DTYPES[dtype]).save_pretrained(directory, max_shard_size=shard_size)
    return directory


def write_hub_config(directory, tied, dtype):
    """As the Hub's Qwen3 files spell it, which differs from what transformers writes today."""
    directory.mkdir(parents=True)
    config = dict(architectures=["Qwen3ForCausalLM"], model_type="qwen3", attention_bias=False, attention_dropout=0.0,
                  hidden_act="silu", initializer_range=0.15, rms_norm_eps=1e-6, rope_scaling=None, rope_theta=1e6,
                  sliding_window=None, use_sliding_window=False, max_window_layers=3, tie_word_embeddings=tied,
                  torch_dtype=dtype, **SHAPE)
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def loss_of(model, documents):
    """Mean over all answers, each document alone."""
    total, answers = 0, 0
    for document in documents:
        logits = model(torch.tensor([document.tokens])).logits[0]
        labels = torch.tensor(document.labels[1:], dtype=torch.long)
        total = total + F.cross_entropy(logits[:-1].double(), labels, reduction="sum", ignore_index=-100)
        answers += int((labels != -100).sum())
    return total / answers


def gradient_of(model, documents):
    """(loss, norm, gradients by name)"""
    loss = loss_of(model, documents)
    loss.backward()
    gradients = {name: parameter.grad.double() for name, parameter in model.named_parameters()}
    return loss.item(), torch.nn.utils.get_total_norm(gradients.values()).item(), gradients


def errors(ours, theirs):
    """Of loss, norm and the worst gradient tensor."""
    gradients = float("inf")  # where names differ
    if ours[2].keys() == theirs[2].keys():
        gradients = max(float((ours[2][name] - g).norm() / g.norm()) for name, g in theirs[2].items())
    return relative(ours[0], theirs[0]), relative(ours[1], theirs[1]), gradients


def compare_gradients(check, run, directory, documents, dtype="float32"):
    exact = gradient_of(open_model(directory)[0].double(), documents)
    ours = errors((run.metrics[0]["loss"], run.metrics[0]["grad_norm"], run.gradients), exact)
    theirs = errors(gradient_of(open_model(directory)[0], documents), exact)
    for what, error, reference, bound in zip(("loss", "grad_norm", "worst gradient"), ours, theirs, BOUNDS[dtype]):
        report(f"{check}: {what}", error, bound, f"; transformers in {dtype}: {reference:.2g}")


def tensors_of(directory):
    return {name: tensor for file in directory.glob("*.safetensors") for name, tensor in load_file(file).items()}


def compare_weights(check, saved, source, dtype):
    """Counts tensors that are not, byte for byte, those of `source` rounded to `dtype`."""
    ours, theirs = tensors_of(saved), {name: t.to(DTYPES[dtype]) for name, t in tensors_of(source).items()}
    same = [n for n in ours.keys() & theirs.keys()
            if ours[n].dtype == theirs[n].dtype and ours[n].shape == theirs[n].shape
            and torch.equal(ours[n].view(torch.uint8), theirs[n].view(torch.uint8))]
    report(f"{check}: tensors that changed", len(ours.keys() | theirs.keys()) - len(same), 0)


def compare_opening(check, directory, dtype, sharded):
    """Tensors that do not fit, another dtype, one file for several or the reverse."""
    model, problems = open_model(directory)
    problems += model.dtype != DTYPES[dtype]
    problems += (len(list(directory.glob("*.safetensors"))) > 1) != sharded
    report(f"{check}: problems when transformers opens it", problems, 0)


# ---- checks


def check_models_of_annulus(executable, folder, documents, tied, dtype):
    name = f"annulus' model, {'tied' if tied else 'untied'}, {dtype}"
    source = write_hub_config(folder / "source", tied, dtype)
    single = train(executable, folder / "single", source, documents, model__init="random", model__dtype=dtype,
                   optimizer__learning_rate=1e-2, train__steps=5).model
    compare_opening(name, single, dtype, sharded=False)
    run = train(executable, folder / "sharded", single, documents, model__dtype=dtype, output__max_shard_size="20KB")
    compare_opening(f"{name}, sharded", run.model, dtype, sharded=True)
    compare_weights(f"{name}, sharded", run.model, single, dtype)
    compare_gradients(name, run, run.model, documents, dtype)


def check_models_of_transformers(executable, folder, documents, tied, dtype):
    name = f"transformers' model, {'tied' if tied else 'untied'}, {dtype}"
    sharded = make_model(folder / "source-sharded", dtype, "20KB", tie_word_embeddings=tied)
    single = make_model(folder / "source", dtype, "5GB", tie_word_embeddings=tied)
    run = train(executable, folder / "run-sharded", sharded, documents, model__dtype=dtype)
    compare_weights(f"{name}, sharded", run.model, sharded, dtype)
    compare_gradients(f"{name}, sharded", run, sharded, documents, dtype)
    for other in DTYPES:
        run = train(executable, folder / f"run-{other}", single, documents, model__dtype=other)
        compare_weights(f"{name}, saved in {other}", run.model, single, other)
        compare_opening(f"{name}, saved in {other}", run.model, other, sharded=False)


def check_logits(executable, folder, length, name, **config):
    """Every log-probability at every position: one document, one answer, one step each."""
    source = make_model(folder / "source", "float32", "5GB", **config)
    tokens = random_document(length, random.Random(5)).tokens
    documents = [Document(tokens, [-100] * (p + 1) + [label] + [-100] * (length - p - 2))
                 for p in range(length - 1) for label in range(SHAPE["vocab_size"])]
    run = train(executable, folder / "run", source, documents, train__steps=len(documents),
                train__global_batch_size=1, output__save_model="false")
    ours = -torch.tensor([step["loss"] for step in run.metrics], dtype=torch.float64).view(length - 1, -1)
    with torch.no_grad():
        theirs = open_model(source)[0].double()(torch.tensor([tokens])).logits[0, :-1].log_softmax(-1)
    report(f"log-probabilities, {name}, {ours.numel()} of {theirs.min():.1f} to {theirs.max():.2f}",
           float((ours - theirs).abs().max()), LOG_PROBABILITY_BOUND)


def check_packing(executable, folder, documents, name, ranks=1, **config):
    """Documents packed, and cut at the end of a sequence, against each piece alone."""
    source = make_model(folder / "source", "float32", "5GB", **config)
    length = 64
    pieces, filled = [], 0
    for document in documents:
        begin = 0
        while begin < len(document.tokens):
            end = min(len(document.tokens), begin + length - filled % length)
            pieces.append(Document(document.tokens[begin:end], document.labels[begin:end]))
            filled += end - begin
            begin = end
    sequences = -(-filled // length)
    run = train(executable, folder / "run", source, documents, ranks, data__packing="concat",
                data__sequence_length=length, train__global_batch_size=sequences)
    compare_gradients(f"{len(documents)} documents in {sequences} sequences, {name}", run, source, pieces)


def check_window_setting(executable, folder, documents):
    ours = make_model(folder / "ours", "float32", "5GB")
    theirs = make_model(folder / "theirs", "float32", "5GB", **(SLIDING | {"max_window_layers": 0}))
    run = train(executable, folder / "run", ours, documents, attention__sliding_window=SLIDING["sliding_window"])
    compare_gradients("attention.sliding_window=5", run, theirs, documents)


def check_training(executable, folder, documents):
    """AdamW, decay of matrices alone, clipping: against torch's."""
    steps = 10
    source = make_model(folder / "source", "float32", "5GB", tie_word_embeddings=True)
    run = train(executable, folder / "run", source, documents, optimizer__learning_rate=3e-3, optimizer__eps=1e-6,
                optimizer__weight_decay=0.1, optimizer__max_grad_norm=1.0, train__steps=steps,
                train__global_batch_size=2)
    model = open_model(source)[0].double()
    groups = [dict(params=[p for p in model.parameters() if p.dim() == dimensions], weight_decay=decay)
              for dimensions, decay in ((2, 0.1), (1, 0))]
    optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95), eps=1e-6)
    worst_loss = worst_norm = 0
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, [documents[(2 * step + i) % len(documents)] for i in range(2)])
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        worst_loss = max(worst_loss, relative(run.metrics[step]["loss"], loss.item()))
        worst_norm = max(worst_norm, relative(run.metrics[step]["grad_norm"], norm.item()))
    report(f"{steps} steps of AdamW: worst loss", worst_loss, BOUNDS["float32"][0])
    report(f"{steps} steps of AdamW: worst grad_norm", worst_norm, BOUNDS["float32"][1])
    start, ours, theirs = tensors_of(source), tensors_of(run.model), model.state_dict()
    moved = {n: float((ours[n].double() - theirs[n]).norm() / (theirs[n] - start[n].double()).norm()) for n in ours}
    report(f"{steps} steps of AdamW: worst weights, of the way they went", max(moved.values()), 1e-3)


def main():
    executable = sys.argv[1]
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    generator = random.Random(1)  # the same documents in every run
    documents = [random_document(length, generator) for length in (57, 1, 23, 90, 2, 64, 11, 40)]
    combinations = [(tied, dtype) for tied in (True, False) for dtype in DTYPES]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for number, (tied, dtype) in enumerate(combinations):
            check_models_of_annulus(executable, folder / f"a{number}", documents, tied, dtype)
            check_models_of_transformers(executable, folder / f"b{number}", documents, tied, dtype)
        check_logits(executable, folder / "c0", 12, "full attention")
        check_logits(executable, folder / "c1", 12, "sliding window of 5 in layers 1 and 2", **SLIDING)
        check_packing(executable, folder / "d0", documents, "full attention")
        check_packing(executable, folder / "d1", documents, "sliding window of 5, 2 ranks", ranks=2, **SLIDING)
        check_window_setting(executable, folder / "e", documents)
        check_training(executable, folder / "f", documents)
    print(f"{failures} failed" if failures else "all passed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
