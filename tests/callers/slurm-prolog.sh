#!/bin/sh
# What a prolog for Slurm's gres/mps does as root: a daemon for each device in directories of its own, once; and when the device changes, the old one ends.
# The job has a percentage in its environment, the daemon must not.
set -eu
root=$1 client=$2
prolog() {
    CUDA_VISIBLE_DEVICES=0 CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=20
    export CUDA_VISIBLE_DEVICES CUDA_MPS_ACTIVE_THREAD_PERCENTAGE
    unset CUDA_MPS_ACTIVE_THREAD_PERCENTAGE
    export CUDA_MPS_PIPE_DIRECTORY="$root/mps_$1" CUDA_MPS_LOG_DIRECTORY="$root/log_$1"
    # Is it there? A list of servers is an answer, also an empty one.
    if ! echo get_server_list | nvidia-cuda-mps-control >/dev/null 2>&1; then
        nvidia-cuda-mps-control -d
    fi
}
job() { CUDA_VISIBLE_DEVICES=0 CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=20 CUDA_MPS_PIPE_DIRECTORY="$root/mps_$1" "$client" </dev/null | grep -qx 'multiprocessors 26'; }
(prolog 0); job 0
before=$(cat "$root/mps_0/nvidia-cuda-mps-control.pid")
(prolog 0); job 0
test "$before" = "$(cat "$root/mps_0/nvidia-cuda-mps-control.pid")"
(prolog 1); job 1
for device in 0 1; do
    echo quit | CUDA_MPS_PIPE_DIRECTORY="$root/mps_$device" nvidia-cuda-mps-control
    test ! -e "$root/mps_$device/control"
done
