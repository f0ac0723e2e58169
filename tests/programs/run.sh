#!/bin/sh
# Installs Python packages as pip installs them, outside the tree, runs what uses them on a software GPU, and writes
# docs/programs.md; the second half of that page is written here. Needs Python 3.11 or newer with venv, a network, and a release build.
#
#   tests/programs/run.sh FOLDER [DEVICE]
set -eu
folder=${1:?say where to install: tests/programs/run.sh FOLDER [DEVICE]}
device=${2:-sim:h200}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
page=$root/docs/programs.md

[ -x "$folder/bin/python" ] || python3 -m venv "$folder"
"$folder/bin/pip" install --quiet --requirement "$here/requirements.txt"
version() { "$folder/bin/pip" show "$1" 2>/dev/null | sed -n 's/^Version: //p'; }

# Nothing that an earlier run or another device has compiled.
HOME=$(mktemp -d)
export HOME
trap 'rm -rf "$HOME"' EXIT
unset CUDA_MPS_PIPE_DIRECTORY CUPY_CACHE_DIR CUPY_ACCELERATORS || true

rows() {
    CUDA_MPS_PIPE_DIRECTORY=/nonexistent/cumux "$root/target/release/cumux" run --device "$device" -- \
        "$folder/bin/python" -W ignore "$here/$1" 2>/dev/null | sed -n "s/^\([a-z_]*\): \(.*\)$/\1|\2/p" | while IFS='|' read -r name result; do
        printf '| %s | %s | %s | %s | %s |\n' "$2" "$(version "$2")" "$(echo "$name" | tr _ ' ')" "$(echo "$result" | sed 's/|/\\|/g')" "$(date +%F)"
    done
}

{
    cat <<END
# Programs that were tried

Made by \`tests/programs/run.sh\` on \`$device\`: packages as pip installs them (versions in [requirements.txt](../tests/programs/requirements.txt)), started with \`cumux run\` and nothing
set by hand. What is tried is in [tests/programs](../tests/programs); every result is compared with what NumPy finds.

| package | version | what | result | date |
|---|---|---|---|---|
END
    rows cupy_basics.py cupy-cuda13x
    rows numba_basics.py numba-cuda
    cat <<'END'

## What does not run, and why

- *cuRAND's default generator in CUDA 13.5* (CuPy's `cupy.random`): the library has this kernel as machine code alone, for each card, and no PTX of it. No software GPU can run that. What a user sees is
  `CURAND_STATUS_INITIALIZATION_FAILED`, and under `cumux run` a line that the image contains only machine code. The library of CUDA 13.0 has PTX of all its generators and runs: `pip install nvidia-curand==10.4.0.35`.
  `cupy.random.default_rng` needs no library and runs with either.
- *CuPy's sorting and `default_rng`* come as machine code for the cards of their time and as PTX for compute capability 12.0. On `sim:h200` that PTX stands in for the machine code that an H200 would run.

## NVIDIA's samples that launch from the device

Built outside the tree from NVIDIA/cuda-samples at c94ff366, with nvcc 13.0.88 as `nvcc -O2 -std=c++17 -rdc=true -gencode arch=compute_75,code=compute_75 … -lcudadevrt`, started with `cumux run --device sim:h200`
on 2026-11-23. A sample passes if it says so itself, or where it compares nothing, if it ends without an error.

| sample | result | time |
|---|---|---|
| cdpSimplePrint | passes | 1.1 s |
| cdpSimpleQuicksort | passes (128 elements) | 0.9 s |
| cdpAdvancedQuicksort | passes (1,000,000 elements) | 6.0 s |
| cdpQuadtree | passes | 1.1 s |
| cdpBezierTessellation | ends without an error | 0.9 s |

## Other samples of NVIDIA

Of the same commit, `-gencode arch=compute_80,code=compute_80`, 40 s each, machine busy, on the same day. End with success: warpAggregatedAtomicsCG, binaryPartitionCG, newdelete, StreamPriorities, simpleCudaGraphs, graphConditionalNodes,
graphMemoryNodes, jacobiCudaGraphs, simpleAWBarrier, clock, fp16ScalarProduct. Not done in that time: globalToShmemAsyncCopy, immaTensorCoreGemm.
END
} > "$page.new"
mv "$page.new" "$page"
cat "$page"
