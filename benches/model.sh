#!/bin/sh
# The whole lab on a real card, with what it predicts beside what it measures: its four workloads
# and ResNet-50, by time-slicing, NVIDIA's MPS and cumux, with 1 to 16 programs.
#   benches/model.sh pack FOLDER             builds, and takes along what the card's machine needs
#   benches/model.sh run FOLDER OUT [CMD…]   on the card; CMD takes the place of ResNet-50, which
#                                            needs PyTorch. Writes the lab's report and model.json,
#                                            whose "targets" say what must hold. Exit status 1 if
#                                            an error is larger than its target.
#   benches/model.sh judge OUT               writes model.json once more, from report.json
# DEVICE=cuda:1 measures another card. MODEL_OPTIONS=--quick is a first look.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/.." && pwd)
case ${1:-} in
pack)
  to=$2
  target=${CARGO_TARGET_DIR:-$root/target}/release
  cargo build --release --manifest-path "$root/Cargo.toml" --package cumux --package cumux-shim --package cumux-compilers
  (cd "$root" && cargo xtask examples)
  "$target/cumux" install --prefix "$to" > /dev/null
  cp "$root/.build/examples/lab_work" "$to/lib/cumux/"
  strip "$to/bin/cumux" && strip --strip-unneeded "$to"/lib/cumux/*.so "$to/lib/cumux/libcuda.so.1"
  cp "$0" "$here/resnet.py" "$to/"
  git -C "$root" rev-parse --short HEAD > "$to/commit"
  ;;
run)
  folder=$(cd "$2" && pwd)
  out=$3
  shift 3
  [ $# -gt 0 ] || set -- python3 "$folder/resnet.py"
  # shellcheck disable=SC2086
  "$folder/bin/cumux" lab --device "${DEVICE:-cuda:0}" ${MODEL_OPTIONS:-} --out "$out" -- "$@"
  exec sh "$0" judge "$out"
  ;;
judge)
  exec python3 - "$2" <<'PYTHON'
import json
import sys
from pathlib import Path

out = Path(sys.argv[1])
report = json.loads((out / "report.json").read_text())
targets, model = {"median_error": 15, "worst_error": 35}, report["model"]
pairs = [pair | {"error": 100 * abs(pair["predicted"] - pair["measured"]) / pair["measured"]} for pair in model["pairs"] if pair["measured"]]
errors = {name: model.get(name) for name in targets}
met = all(errors[name] is not None and errors[name] <= most for name, most in targets.items())
found = {"format": "cumux-model", "version": 1, "made": report["made"], "device": report["device"], "model": errors | {"pairs": pairs}, "targets": targets, "met": met}
(out / "model.json").write_text(json.dumps(found, indent=1) + "\n")
print("; ".join(f"{name.replace('_', ' ')} {errors[name]} % (at most {most})" for name, most in targets.items()))
sys.exit(not met)
PYTHON
  ;;
*)
  sed -n 2,10p "$0"
  exit 2
  ;;
esac
