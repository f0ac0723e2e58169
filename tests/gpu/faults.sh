#!/bin/sh
# Faults beside innocents on a real card.
# tests/gpu/faults.sh pack FOLDER            builds and takes along the programs
# tests/gpu/faults.sh run FOLDER OUT.json …   on the card; options as faults.py says
set -eu
here=$(cd "$(dirname "$0")" && pwd)
case ${1:-} in
pack)
  sh "$here/../../benches/pack.sh" "$2"
  cp "$here/faults.py" "$here/serve_faults.py" "$here/serving.py" "$0" "$2/"
  ;;
run)
  shift
  exec python3 "$here/faults.py" "$@"
  ;;
*)
  sed -n 2,4p "$0"
  exit 2
  ;;
esac
