#!/bin/sh
# What Skyward's mps plugin does from 0.11 on, inside the worker: the directories, the daemon before its variables are set, then the variables; processes of the
# worker find the daemon, and nobody ends it. It has fixed directories, so this runs in a mount namespace in which nobody else uses them.
set -eu
if [ "${CUMUX_STORY_INSIDE-}" != 1 ]; then
    CUMUX_STORY_INSIDE=1 exec unshare --mount "$0" "$@"
fi
root=$1 client=$2
folder=$(dirname "$root")
# The program may lie below /tmp, which is hidden now.
cp "$client" "$root/program"
client=$root/program
mount --make-rprivate /
mount --bind "$folder" /mnt
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /var/log
mkdir -p "$folder"
mount --move /mnt "$folder"

mkdir -p /tmp/nvidia-mps /tmp/nvidia-mps-log
nvidia-cuda-mps-control -d
export CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps CUDA_MPS_LOG_DIRECTORY=/tmp/nvidia-mps-log
export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=12 CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2G
trap 'echo quit -t 0 | nvidia-cuda-mps-control' EXIT
# The daemon knows nothing of the limits: each process brings its own.
test "$(echo get_default_active_thread_percentage | nvidia-cuda-mps-control)" = 100.0
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
# A second worker on the node finds the daemon there; the plugin takes no notice of the refusal.
nvidia-cuda-mps-control -d && exit 1
"$client" 3000 </dev/null | grep -qx 'multiprocessors 14'
