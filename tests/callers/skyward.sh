#!/bin/sh
# What Skyward's mps plugin does: variables for the whole instance, directories, one daemon in the background; workers are processes that find it.
set -eu
root=$1 client=$2
export CUDA_MPS_PIPE_DIRECTORY="$root/nvidia-mps" CUDA_MPS_LOG_DIRECTORY="$root/nvidia-mps-log"
export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=12 CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2G
mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
nvidia-cuda-mps-control -d
test "$(echo get_default_active_thread_percentage | nvidia-cuda-mps-control)" = 12.0
test "$(echo get_default_device_pinned_mem_limit 0 | nvidia-cuda-mps-control)" = 2G
workers=
for worker in 1 2 3; do
    "$client" 3000 </dev/null >"$root/worker$worker" &
    workers="$workers $!"
done
for worker in $workers; do wait "$worker"; done
for worker in 1 2 3; do
    grep -qx 'multiprocessors 14' "$root/worker$worker"
    grep -qx 'alloc cudaErrorMemoryAllocation' "$root/worker$worker"
done
echo quit | nvidia-cuda-mps-control
