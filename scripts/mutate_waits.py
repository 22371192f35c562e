#!/usr/bin/env python3
"""Shows that no wait of the ring, the gathering and reducing of parameters or the offloading can be left out unnoticed:
for each in turn, the hosted CUDA tests have to fail without it (tests/hosted_cuda/README.md).

    scripts/mutate_waits.py [FILE...]    the waits of these files; of all unless given

Works on a copy of the tree in build-mutants, where every wait asks whether it is the one that is left out, so that one
build under clang's ThreadSanitizer serves them all. Prints each wait with what noticed that it was missing; the exit
status is 1 where nothing did, 2 where the tests fail with every wait in its place.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
COPY = ROOT / "build-mutants"
BUILD = COPY / "build"

TRANSFERS = ("hosted_parallel_tests", "NcclTransport.EveryRankHears*:RingAttention.KeepsSixteen*:"
             "*ShardedParametersAt.*/1:*ShardedParametersAt.*/2")
RUNS = ("hosted_runtime_tests", "*Overlap.*")

# Where a GPU's streams are made to wait, and the tests that should notice where one is not, the quicker ones first.
FILES = {
    "parallel/nccl_transport.cpp": [TRANSFERS, RUNS],
    "parallel/ring_attention.cpp": [TRANSFERS, RUNS],
    "parallel/sharded_parameters.cpp": [TRANSFERS, RUNS],
    "parallel/held_transport.cpp": [RUNS],
    "parallel/timed_transport.cpp": [RUNS],
    "parallel/shard_windows.cpp": [RUNS],
    "kernels/cuda/storage.cpp": [RUNS],
    "runtime/checkpoint.cpp": [RUNS],
    "runtime/trainer.cpp": [RUNS],
    "runtime/model/layer_checkpoints.cpp": [RUNS],
}

CUDA_WAIT = re.compile(r"ANNULUS_CUDA_CHECK\((cudaStreamWaitEvent|cudaEventSynchronize)\([^;]*\)\);")
CALL = re.compile(r"(\.?)\b(wait|wait_received|finish|finish_reduction|finish_gradients)\((stream_?|\{\})\);")
MENTION = re.compile(r"cudaStreamWaitEvent\(|cudaEventSynchronize\(|\bwait(_received)?\((?!Stream )")

HEADER = """#include <cstdlib>
inline const int left_out = std::getenv("LEFT_OUT") == nullptr ? -1 : std::atoi(std::getenv("LEFT_OUT"));
"""


class Wait:
    def __init__(self, file, text, match):
        self.file = file
        self.begin, self.end = match.span()
        self.object = None
        if match.re is CALL and match[1]:
            self.begin = object_begin(text, match.start())
            self.object = text[self.begin:match.start()]
        self.call = text[match.start():match.end()]
        self.line = text.count("\n", 0, match.start()) + 1
        self.code = text[text.rfind("\n", 0, match.start()) + 1:match.end()].strip()

    def leavable(self, number):
        """The statement, with a wait that happens unless it is the one left out. Its object is made in any case."""
        if self.object is None:
            return f"{{ if (left_out != {number}) {self.call} }}"
        return f"{{ if (auto&& object = {self.object}; left_out != {number}) object{self.call} }}"


def object_begin(text, end):
    """Where the expression begins whose member is called at `end`."""
    depth = 0
    for begin in range(end - 1, -1, -1):
        character = text[begin]
        if character in ")]":
            depth += 1
        elif character in "([":
            depth -= 1
        elif depth == 0 and not (character.isalnum() or character in "_.:>-"):
            return begin + 1
    raise ValueError("an expression without a beginning")


def waits_of(file):
    text = (ROOT / file).read_text()
    matches = sorted([*CUDA_WAIT.finditer(text), *CALL.finditer(text)], key=lambda match: match.start())
    for mention in MENTION.finditer(text):
        if not any(match.start() <= mention.start() < match.end() for match in matches):
            line = text.count("\n", 0, mention.start()) + 1
            sys.exit(f"mutate_waits.py: error: {file}:{line} waits in a way this script does not know; teach it")
    return [Wait(file, text, match) for match in matches]


def copy_tree(waits):
    for name in ("cmake", "docs", "kernels", "launcher", "parallel", "runtime", "scripts", "tests"):
        shutil.rmtree(COPY / name, ignore_errors=True)
        shutil.copytree(ROOT / name, COPY / name)  # with its times, so that only what has changed is compiled
    shutil.copy2(ROOT / "CMakeLists.txt", COPY)
    (COPY / "left_out.h").write_text(HEADER)
    for file in FILES:
        text = (ROOT / file).read_text()
        for number, wait in reversed(list(enumerate(waits))):
            if wait.file == file:
                text = text[:wait.begin] + wait.leavable(number) + text[wait.end:]
        (COPY / file).write_text(f'#include "left_out.h"\n#line 1\n{text}')


def build():
    subprocess.run(["cmake", "-S", COPY, "-B", BUILD, "-G", "Ninja", "-DCMAKE_C_COMPILER=clang",
                    "-DCMAKE_CXX_COMPILER=clang++", "-DANNULUS_SANITIZE=thread",
                    *os.environ.get("ANNULUS_CMAKE_FLAGS", "").split()], check=True)
    subprocess.run(["cmake", "--build", BUILD, "--target", TRANSFERS[0], RUNS[0]], check=True)


def noticed(tests, number, limit):
    """What the tests say, each at its first failure, or nothing where they pass."""
    program, selection = tests
    environment = os.environ | {"LEFT_OUT": str(number), "ANNULUS_HOSTED_SEED": "1", "TSAN_OPTIONS": "halt_on_error=1"}
    try:
        run = subprocess.run([BUILD / program, f"--gtest_filter={selection}", "--gtest_fail_fast"], env=environment,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                             timeout=limit)
    except subprocess.TimeoutExpired:
        return f"{program} does not end"
    if run.returncode == 0:
        return None
    test = (re.findall(r"\[ RUN      \] (\S+)", run.stdout) or [program])[-1]
    report = re.search(r"WARNING: (ThreadSanitizer: [\w -]+?) \(", run.stdout)
    failure = re.search(r"(?:Failure|thrown in the test body\.|description) ?\n?(.*)", run.stdout)
    return f"{test}: {report[1] if report else failure[1].strip() if failure else f'exit status {run.returncode}'}"


def main():
    files = sys.argv[1:] or list(FILES)
    for file in files:
        if file not in FILES:
            sys.exit(f"mutate_waits.py: error: '{file}' is none of {', '.join(FILES)}")
    waits = [wait for file in FILES for wait in waits_of(file)]
    COPY.mkdir(exist_ok=True)
    copy_tree(waits)
    build()
    limits = {}
    for tests in (TRANSFERS, RUNS):
        begin = time.monotonic()
        if why := noticed(tests, -1, None):
            print(f"mutate_waits.py: error: with every wait in its place: {why}", file=sys.stderr)
            return 2
        limits[tests] = 60 + 10 * (time.monotonic() - begin)
    survivors = 0
    for number, wait in enumerate(waits):
        if wait.file not in files:
            continue
        why = next(filter(None, (noticed(tests, number, limits[tests]) for tests in FILES[wait.file])), None)
        survivors += why is None
        print(f"{'killed  ' if why else 'SURVIVED'}  {wait.file}:{wait.line}  {wait.code}  {why or ''}", flush=True)
    print(f"{survivors} survived")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
