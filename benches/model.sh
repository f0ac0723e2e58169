#!/bin/bash
# Predicted against measured on a real card: the lab's four workloads by time-slicing, NVIDIA's MPS and cumux with 1 to 16 programs,
# and a program of the user's, if one is named (ResNet-50: python3 serve.py). Writes benches/results/lab/report.json, report.html and
# model.json, whose "targets" say what must hold. Exit status 1 if an error is larger than its target.
#
#   benches/model.sh [DEVICE] [CMD…]
set -euo pipefail
cd "$(dirname "$0")/.."
device=${1:-cuda:0}
shift || true
case $device in
cuda:*) ;;
*) echo "model.sh: $device is no card: predictions are compared on real cards (cuda:0)" >&2; exit 2 ;;
esac
command -v jq >/dev/null || { echo "model.sh: install jq" >&2; exit 2; }
cargo build --release
out=benches/results/lab
mkdir -p "$out"
target/release/cumux lab --device "$device" --out "$out" -- "$@"
jq '{
  format: "cumux-model", version: 1, made, device, model: {
    median_error: .model.median_error, worst_error: .model.worst_error,
    pairs: [.model.pairs[] | . + {error: (100 * ((.predicted - .measured) | fabs) / .measured)}]
  },
  targets: {median_error: 15, worst_error: 35}
} | .met = (.model.median_error != null and .model.median_error <= .targets.median_error and .model.worst_error <= .targets.worst_error)' \
    "$out/report.json" >"$out/model.json"
jq -r '"median error \(.model.median_error) % (at most \(.targets.median_error)), worst \(.model.worst_error) % (at most \(.targets.worst_error))"' "$out/model.json"
jq -e .met "$out/model.json" >/dev/null
