#!/bin/sh
# Measures alone, time-slicing, NVIDIA MPS and cumux in one run on a machine with a GPU. Builds nothing: takes a folder made by `benches/pack.sh`.
# [REPEATS=3] [LIMIT=540] benches/h200.sh FOLDER OUT.json
# LIMIT: seconds after which no repetition begins another measurement.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
exec python3 "$here/h200.py" "$@"
