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

## NVIDIA's samples

Of the same commit with `-gencode arch=compute_80,code=compute_80` (those that launch from the device: 75), linked with the libraries of CUDA 13.0, started on `sim:h200` on 2026-11-23 beside other work that kept all
processors busy; those that need two cards on `sim:h200,sim:h200`. Programs that draw are run with the arguments of the samples' own `test_args.json`, with which they compare with a picture and need no window.

| group | pass | of | the others |
|---|---|---|---|
| 0_Introduction | 39 | 46 | do not end in 60 s: matrixMul_nvrtc (matrixMul does, in 34 s), simplePitchLinearTexture, simpleStreams; decline by themselves: simpleAttributes (persisting L2), simpleCUDA2GL (a window); MPI: simpleMPI; cuBLAS: UnifiedMemoryStreams |
| 1_Utilities | 3 | 3 | |
| 2_Concepts_and_Techniques | 26 | 32 | do not end in 60 s: convolutionTexture, radixSortThrust, scan, imageDenoising (three of four runs do); EGL: two |
| 3_CUDA_Features | 17 | 24 | do not end in 60 s: globalToShmemAsyncCopy, five of tensor cores; declines by itself: cudaCompressibleMemory |
| 4_CUDA_Libraries | 8 | 34 | see below |
| 5_Domain_Specific | 19 | 36 | binomialOptions in 144 s; do not end in 60 s: BlackScholes (also with NVRTC), HSOpticalFlow, MonteCarloMultiGPU, NV12toBGRandResize, Mandelbrot, bilateralFilter, volumeFiltering, volumeRender; a window: fluidsGL, postProcessGL; Vulkan and Direct3D: three each |
| 6_Performance | 4 | 5 | does not end in 60 s: UnifiedMemoryPerf |
| together | 116 | 180 | of the 64 others 23 are slow, and 41 need something that no software GPU has or that was not there |

- *Slow*: the kernels of globalToShmemAsyncCopy pass with matrices of 256 × 256 (`-wA=256 -hA=256 -wB=256 -hB=256 -kernel=0` to `6`; 0.1 to 0.8 s each); its own size takes 125 times as long, a hundred times.
- *Tensor cores*: with 16 tiles along each axis in place of 256 to 1,024 and their own comparison with the host (`-DCPU_DEBUG=1`), every kernel of immaTensorCoreGemm (1), cudaTensorCoreGemm (1), tf32TensorCoreGemm (3) and
  dmmaTensorCoreGemm (4) and two of the three of bf16TensorCoreGemm give the host's numbers. The third (`-kernel=2`) addresses its second matrix as if it were transposed and differs for that reason; with the address put right it gives them, too.
- *Libraries of machine code*: cuBLAS, cuSOLVER, cuSPARSE, NPP and nvJPEG have most kernels as machine code alone. What a user sees is `CUBLAS_STATUS_EXECUTION_FAILED` or the like, and under `cumux run` "the image contains only machine code
  for sm_90; the software GPU runs PTX". cuFFT and cuRAND of CUDA 13.0 have PTX: simpleCUFFT, oceanFFT and MersenneTwisterGP11213 pass. cufftXtSetCallback is not in cuFFT's shared library (simpleCUFFT_callback). randomFog compares with
  a file that was not there.

## Instructions compared with the host

Programs written for this alone, built by nvcc 13.0.88 and compared with the host value by value on 2026-11-23: no wrong number was found. Each operation had 4,096 inputs, with the ends of the numbers among them.

| what | operations | built as |
|---|---|---|
| integers of 8 to 128 bits, their conversions, bits, dot products, SIMD in a word | 488 | `-O3`, `-G` |
| float and double arithmetic in four roundings, conversions, mathematical functions within the errors that CUDA documents | 211 | `-O3`, `-G`, `-use_fast_math` |
| half, bfloat16, and 8, 6 and 4-bit floats | 164 | `-O3`, `-G`; also for `sim:rtx-pro-6000` |
| PTX that nvcc does not make by itself: carries, `lop3`, `prmt`, `bfe`, `szext`, saturating conversions, `set` and `setp` with predicates | 423 | `-O3` |
| C++ on the device: virtual and indirect calls, recursion, bit fields, unions, `__int128`, local arrays | 24 programs | `-O3`, `-O1`, `-G` |
| shuffles, votes, matches, reductions, atomics, cooperative groups | 1 program | `-O3`, `-G` |
| pipelines, barriers, `cuda::atomic`, clusters, copies in two and three dimensions, `printf` | 1 program | `-O2`, `-G` |
| CUB: sort, scan, reduce, select, partition, histogram, segments (6 types, up to 50,000 elements) | 15 algorithms | `-O3` |

`lop3` with a predicate was refused before, and is executed now.

## ZLUDA's PTX tests

vosen/ZLUDA at 8a7931be (`ptx/src/test/spirv_run`), each with the values that its table expects: 182 of 182 (2026-11-23). Of these 178 on `sim:h200`; two are for compute capability 12.0 and pass on `sim:rtx-pro-6000`; two read or
write behind their buffers with 64 threads in place of 32, and pass on `sim:h200:granule`.

## Test suites of Python packages

| package | version | tests | device | passed | failed | date |
|---|---|---|---|---|---|---|
| numba-cuda | 0.30.4 | its own, one process, up to `test_sm.py` | `sim:h200:granule` | 1,696 | 8 | 2026-11-23 |
| numba-cuda | 0.30.4 | the 43 files from `test_sm.py` on, those of documentation, `nrt`, `nocuda` and `core`; 5 skipped | `sim:h200:granule` | 322 | 1 | 2026-11-23 |
| cupy-cuda13x | 14.2.0 | `tests/cupy_tests`, every 60th | `sim:h200:granule` | 339 | 37 | 2026-11-23 |
| warp-lang | 1.16.0 | those for a CUDA device, in the order of its runner until 18 minutes were over, of 5,254 | `sim:h200:granule` | 882 | 0 | 2026-11-23 |
| warp-lang | 1.16.0 | those for a CUDA device of 57 files, one process each; 20 skipped | `sim:h200:granule` | 1,286 | 1 | 2026-11-23 |

- *numba-cuda*: test_dispatcher_cpointer_arguments reads behind its arrays, and a vector load may end behind the shared memory that a launch asked for: hence `:granule`. Not tried: two tests of managed memory that fill 70 GB. Fail:
  one that needs `tensormap.replace` ("the software GPU does not execute tensormap.replace…"), one of 5.7 thousand million threads (too slow), three of IPC for which cuda-bindings 13.5 has no field `reserved`, two that count files
  of a cache, one that asks CuPy for random numbers (cuRAND, above). In the second row
  `test_nrt_detect_linked_ptx_file`: PTX calls a function of code that is linked as intermediate code, and nvJitLink, which makes PTX of that code alone, leaves out what only the PTX calls. What a user sees is
  "Undefined reference to 'NRT_Allocate'".
- *CuPy*: nvidia-curand 10.4.0.35. 32 of the 37 are of cuFFT, cuBLAS and cuSPARSE, which were not installed; eleven files that import these were left out. Two did not end in 120 s while NVRTC compiled, two were not looked at. One, which asks the default stream
  whether it captures beside a relaxed capture, was mended afterwards.
- *Warp 1.16*: the one that fails compares the times of streams of two priorities (`test_stream_priority_timings`). Four more files did not end in 150 s, with 993 tests passed until then and none failed (`test_async`, `test_tile`, `test_large`,
  `test_copy`, which fills 8 GB). Two of `test_graph` were left out: 275 billion turns of a loop, and a hundred kernels of 67 million threads.
- *Warp 1.19* has CUDA 13.4 inside, and compiles to machine code by itself where the driver is older, whatever `warp.config.cuda_output` says. What a user sees is "the image contains only machine code for sm_90; the software GPU runs
  PTX". Warp 1.16 (CUDA 12.9 inside) runs as pip installs it.
END
} > "$page.new"
mv "$page.new" "$page"
cat "$page"
