#!/bin/sh
# Limits beside NVIDIA's MPS in one run on a machine with a GPU: percentages, affinities, where kernels run, memory limits, terminate_client, priority.
# benches/h200_mps.sh pack FOLDER        builds the folder (CARGO_TARGET_DIR is honoured)
# benches/h200_mps.sh run FOLDER OUT     on the card: writes OUT.json and OUT.txt, within five minutes
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
case ${1:-} in
pack)
  to=$2
  target=${CARGO_TARGET_DIR:-$root/target}/release
  cuda=${CUMUX_CUDA:-$root/.cuda}/nvidia/cu13
  mkdir -p "$to/lib"
  cp "$target/cumux" "$to/cumux" && strip "$to/cumux"
  library=$target/libcuda.so
  [ "$target/deps/libcuda.so" -nt "$library" ] && library=$target/deps/libcuda.so
  cp "$library" "$to/lib/libcuda.so.1" && strip --strip-unneeded "$to/lib/libcuda.so.1"
  for name in shares limits priority view; do
    "$cuda/bin/nvcc" -cudart static -std=c++17 -O3 -gencode arch=compute_90,code=sm_90 -gencode arch=compute_75,code=compute_75 \
      -o "$to/$name" "$root/tests/cu/$name.cu" -L"$cuda/lib"
  done
  cp "$here/h200_mps.sh" "$here/h200_mps.py" "$to/"
  git -C "$root" rev-parse --short HEAD > "$to/commit"
  ;;
run) exec python3 "$here/h200_mps.py" "$2" "$3" ;;
*) sed -n '2,4s/^# //p' "$0"; exit 2 ;;
esac
