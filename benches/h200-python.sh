#!/bin/sh
# Measures PyTorch workers alone, through NVIDIA's MPS and through cumux in one run on a machine with a GPU. Builds nothing: takes a folder made by
# `benches/pack.sh`. Needs PyTorch and torchvision, transformers for gpt2; no network. Ends within nine minutes.
# benches/h200-python.sh FOLDER OUT.json [--only resnet,gpt2,ready,priority,kill,start,vllm] [--seconds S] [--repeats N] [--limit S]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
exec python3 "$here/h200_python.py" "$@"
