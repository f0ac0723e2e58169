#!/bin/sh
# Puts what benches/h200.sh takes along into a folder: binaries of this commit and the measuring programs, built with the wheels' compiler.
# benches/pack.sh FOLDER     (CARGO_TARGET_DIR is honoured)
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
to=$1
cuda=${CUMUX_CUDA:-$root/.cuda}/nvidia/cu13
target=${CARGO_TARGET_DIR:-$root/target}/release
mkdir -p "$to/lib"
# By name: `cargo build --release` leaves an old library where it is.
cargo build --release --manifest-path "$root/Cargo.toml" --package cumux --package cumux-shim
cp "$target/cumux" "$to/cumux" && strip "$to/cumux"
cp "$target/libcuda.so" "$to/lib/libcuda.so.1" && strip --strip-unneeded "$to/lib/libcuda.so.1"
to=$(cd "$to" && pwd)
# Named from the root: assertions print the name of their file.
cd "$root"
for source in benches/cu/*.cu; do
  "$cuda/bin/nvcc" -cudart static -std=c++17 -gencode arch=compute_90,code=sm_90 -gencode arch=compute_75,code=compute_75 \
    -o "$to/$(basename "$source" .cu)" "$source" -L"$cuda/lib" -L"$target" -lcuda
done
# lanes loads these.
for program in steady culprit; do
  "$cuda/bin/nvcc" -cubin -std=c++17 -arch=sm_90 -o "$to/$program.cubin" "$root/benches/cu/$program.cu"
done
git -C "$root" rev-parse --short HEAD > "$to/commit"
