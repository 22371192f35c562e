#!/usr/bin/env bash
# How much of the CUDA device and of what carries messages between GPUs the hosted CUDA tests run
# (tests/hosted_cuda/README.md): a table of the files with the lines that no test runs. Fails where less than 95% of all
# lines are run. Builds in build-coverage. Arguments go to ctest: scripts/coverage_hosted_cuda.sh -R NcclTransport
# ANNULUS_CMAKE_FLAGS: more flags for CMake.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build-coverage
read -r -a flags <<<"${ANNULUS_CMAKE_FLAGS:-}"

"$root/scripts/install_dependencies.sh" tests
cmake -S "$root" -B "$build" -G Ninja -DANNULUS_CUDA=OFF -DANNULUS_HOSTED_COVERAGE=ON "${flags[@]}"
cmake --build "$build" --target hosted_cuda_all
find "$build" -name '*.gcda' -delete
ctest --test-dir "$build" --output-on-failure --no-tests=error -j 2 --timeout 1800 -L hosted_cuda "$@"

find "$build/tests/hosted_cuda" -name '*.gcno' -print0 | xargs -0 gcov --json-format --stdout | python3 -c '
import json, pathlib, sys

least = 95  # percent
root, build = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])

# Not ptx.cuh, which no CPU runs and the double replaces, nor no_cuda.cpp, which is for builds without CUDA.
measured = set((root / "kernels/cuda").iterdir()) - {root / "kernels/cuda/ptx.cuh", root / "kernels/cuda/no_cuda.cpp"}
measured |= {root / f"parallel/{name}.cpp" for name in ("nccl_transport", "nccl_library", "staged_transport")}

counts = {path: {} for path in measured}  # a line has run where any instance of a template, in any file, has run it
for report in sys.stdin:
    for file in json.loads(report)["files"]:
        path = (build / file["file"]).resolve()
        for line in file["lines"] if path in counts else []:
            number = line["line_number"]
            counts[path][number] = counts[path].get(number, 0) + line["count"]

def row(name, lines, run, percent, missed):
    print(f"{name:36} {lines:>6} {run:>6} {percent:>7}  {missed}")

def percentage(lines):
    return f"{100 * sum(count > 0 for count in lines) / len(lines):.1f}"

row("file", "lines", "run", "percent", "not run")
for path, lines in sorted(counts.items()):
    name = str(path.relative_to(root))
    if lines:
        missed = " ".join(str(number) for number in sorted(lines) if lines[number] == 0)
        row(name, len(lines), sum(count > 0 for count in lines.values()), percentage(lines.values()), missed)
    elif path.suffix in (".cpp", ".cu"):
        sys.exit(f"coverage_hosted_cuda.sh: error: {name} is not compiled into the hosted tests")
everything = [count for lines in counts.values() for count in lines.values()]
run = sum(count > 0 for count in everything)
row("all", len(everything), run, percentage(everything), "")
if 100 * run < least * len(everything):
    sys.exit(f"coverage_hosted_cuda.sh: error: the hosted tests run less than {least}% of these lines")
' "$root" "$build"
