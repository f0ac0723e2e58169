#!/bin/sh
# Several real cards in one daemon, beside NVIDIA's MPS and beside programs alone, on a machine with two cards.
# benches/cards.sh pack FOLDER                    builds the folder (with `cargo test --release --no-run -p cumux-device-cuda`
#                                                 before it, the device contract goes along); CARGO_TARGET_DIR is honoured
# benches/cards.sh run FOLDER OUT [PART,PART,…]   on the machine: writes OUT/cards.json, OUT/cards.txt and OUT/cards.log, within six minutes
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
case ${1:-} in
pack)
  sh "$here/pack.sh" "$2"
  # Two packages have a test called card: the one for real cards names its variable.
  for test in $(ls -t "${CARGO_TARGET_DIR:-$root/target}"/release/deps/card-* 2>/dev/null | grep -v '\.d$'); do
    if grep -q CUMUX_TEST_CUDA "$test"; then cp "$test" "$2/card" && strip "$2/card" && break; fi
  done
  cp "$here/cards.sh" "$here/cards.py" "$2/"
  ;;
run)
  shift
  exec python3 "$here/cards.py" "$@"
  ;;
*)
  sed -n '2,6s/^# //p' "$0"
  exit 2
  ;;
esac
