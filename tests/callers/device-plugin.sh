#!/bin/sh
# What the Kubernetes device plugin does for a resource with four replicas of one GPU: directories, daemon, limits, health, a pod, stop.
# Its programs get no environment but the two directories (and, here, the software GPU's name and a path to the drop-in).
set -eu
root=$1 client=$2
control() { env -i PATH="$PATH" CUMUX_DEVICE="$CUMUX_DEVICE" CUDA_MPS_PIPE_DIRECTORY="$root/pipe" CUDA_MPS_LOG_DIRECTORY="$root/log" nvidia-cuda-mps-control "$@"; }
mkdir -p "$root/pipe" "$root/log"
control -d
# No line end, as the plugin writes it.
test -z "$(printf 'set_default_device_pinned_mem_limit 0 35788M' | control)"
test "$(printf 'set_default_active_thread_percentage 25' | control)" = 25.0
touch "$root/.ready"
printf get_default_active_thread_percentage | control >/dev/null
# A pod: the directories are mounted, the library found first.
said=$(CUDA_MPS_PIPE_DIRECTORY="$root/pipe" "$client" 40000 </dev/null)
echo "$said" | grep -qx 'multiprocessors 32'
echo "$said" | grep -qx 'alloc cudaErrorMemoryAllocation'
grep -q 'Active Threads Percentage set to 25.0' "$root/log/server.log"
grep -q 'Device pinned memory limit for device 0 set to 0x8bcc00000 bytes' "$root/log/server.log"
printf quit | control
rm "$root/.ready"
if printf get_default_active_thread_percentage | control >/dev/null 2>&1; then exit 1; fi
