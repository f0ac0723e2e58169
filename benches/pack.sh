#!/bin/sh
# Puts what benches/h200.sh takes along into a folder: binaries of this commit and the measuring programs, built with the wheels' compiler.
# benches/pack.sh FOLDER SHARE_BENCH.cu     (after `cargo build --release`)
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
to=$1
cuda=${CUMUX_CUDA:-$root/.cuda}/nvidia/cu13
mkdir -p "$to/lib"
cp "$root/target/release/cumux" "$to/cumux" && strip "$to/cumux"
cp "$root/target/release/libcuda.so" "$to/lib/libcuda.so.1" && strip --strip-unneeded "$to/lib/libcuda.so.1"
for source in "$root/benches/cu/first_kernel.cu" "$root/benches/cu/neighbour.cu" "$2"; do
  "$cuda/bin/nvcc" -cudart static -std=c++17 -gencode arch=compute_90,code=sm_90 -gencode arch=compute_75,code=compute_75 \
    -o "$to/$(basename "$source" .cu)" "$source" -L"$cuda/lib" -L"$root/target/release" -lcuda
done
git -C "$root" rev-parse --short HEAD > "$to/commit"
