#!/bin/sh
# What the pod of the DRA driver for one claim runs: the daemon with the claim's device by UUID, limits by UUID, a file that says it is up, and the log.
set -eu
root=$1 client=$2
export CUDA_MPS_PIPE_DIRECTORY="$root/pipe" CUDA_MPS_LOG_DIRECTORY="$root/log"
mkdir -p "$root/pipe" "$root/log"
uuid=GPU-0248be0e-a92b-8af7-806d-000000000000
export CUDA_VISIBLE_DEVICES=$uuid
rm -f "$root/log/startup.log"
nvidia-cuda-mps-control -d
echo set_default_active_thread_percentage 50 | nvidia-cuda-mps-control
echo "set_default_device_pinned_mem_limit $uuid 10240M" | nvidia-cuda-mps-control
echo "startup complete" > "$root/log/startup.log"
head -n 1 "$root/log/control.log" | grep -q 'Starting control daemon using socket'
# A container of the claim: only the directory is told to it.
said=$(unset CUDA_VISIBLE_DEVICES; "$client" 11000 </dev/null)
echo "$said" | grep -qx 'multiprocessors 66'
echo "$said" | grep -qx 'alloc cudaErrorMemoryAllocation'
# The pod is deleted: its processes get a TERM.
kill "$(cat "$root/pipe/nvidia-cuda-mps-control.pid")"
while echo get_server_list | nvidia-cuda-mps-control >/dev/null 2>&1; do :; done
# The last line is written when nobody is answered any more.
until tail -n 1 "$root/log/control.log" | grep -q 'Exit with status'; do sleep 0.01; done
