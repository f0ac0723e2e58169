#!/bin/sh
# The whole lab on a real card, with what it predicts beside what it measures: its four workloads
# and ResNet-50, by time-slicing, NVIDIA's MPS and cumux, with 1 to 16 programs.
#   benches/model.sh pack FOLDER             builds, and takes along what the card's machine needs
#   benches/model.sh run FOLDER OUT [CMD…]   on the card; CMD takes the place of ResNet-50, which
#                                            needs PyTorch. Writes the lab's report and model.json,
#                                            whose "targets" say what must hold. Exit status 1 if
#                                            an error is larger than its target.
#   benches/model.sh judge OUT               writes model.json once more, from report.json
#   benches/model.sh overhead FOLDER OUT.json [CMD…]
#                                            what `cumux record` costs: programs through cumux,
#                                            recorded and not, in turn. Exit status 1 if it is
#                                            more than 5 %.
# DEVICE=cuda:1 measures another card. MODEL_OPTIONS=--quick is a first look.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/.." && pwd)
case ${1:-} in
pack)
  to=$2
  target=${CARGO_TARGET_DIR:-$root/target}/release
  cargo build --release --manifest-path "$root/Cargo.toml" --package cumux --package cumux-shim --package cumux-compilers --package cumux-nvml
  (cd "$root" && cargo xtask examples)
  "$target/cumux" install --prefix "$to" > /dev/null
  cp "$root/.build/examples/lab_work" "$to/lib/cumux/"
  strip "$to/bin/cumux" && strip --strip-unneeded "$to"/lib/cumux/*.so* "$to"/lib/cumux/software/*.so*
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
overhead)
  folder=$(cd "$2" && pwd)
  out=$3
  shift 3
  [ $# -gt 0 ] || set -- python3 "$folder/resnet.py" 2
  exec python3 - "$folder" "$out" "${DEVICE:-cuda:0}" "$@" <<'PYTHON'
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS, MOST = int(os.environ.get("ROUNDS", 5)), 5.0
folder, out, device, own = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4:]
cumux, work = str(folder / "bin/cumux"), str(folder / "lib/cumux/lab_work")
programs = {kind: [work, "load", kind, "1", "1", "now"] for kind in ("tiny",)} | {"yours": own}


def rate(command):
    """Requests a second, as the program's last line of JSON says them."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not said:
        sys.exit(f"{' '.join(command)} ended with status {done.returncode}: {(done.stderr or done.stdout)[-600:]}")
    return said[-1]["requests"] / said[-1]["seconds"]


table = {}
with tempfile.TemporaryDirectory() as scratch:
    ways = {"plain": [cumux, "run", "--device", device, "--"], "recorded": [cumux, "record", "--device", device, "-o", scratch + "/profile.json", "--"]}
    for name, command in programs.items():
        rates = {way: [] for way in ways}
        # The first of each warms files and compilers up.
        for _ in range(ROUNDS + 1):
            for way, prefix in ways.items():
                rates[way].append(rate(prefix + command))
        plain, recorded = (statistics.median(rates[way][1:]) for way in ways)
        table[name] = {"plain": round(plain, 1), "recorded": round(recorded, 1), "overhead_percent": round(100 * (1 - recorded / plain), 2)}
        print(f"{name}: {plain:.1f} requests/s, recorded {recorded:.1f}: {table[name]['overhead_percent']} % fewer", flush=True)
worst = max(row["overhead_percent"] for row in table.values())
out.write_text(json.dumps({"format": "cumux-record-overhead", "version": 1, "device": device, "programs": table, "targets": {"overhead_percent": MOST}, "worst": worst, "met": worst <= MOST}, indent=1) + "\n")
print(f"worst {worst} % (at most {MOST:.0f})")
sys.exit(worst > MOST)
PYTHON
  ;;
*)
  sed -n 2,14p "$0"
  exit 2
  ;;
esac
