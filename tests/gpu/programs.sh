#!/bin/sh
# Python programs through cumux on a real card: the same numbers as without it?
# tests/gpu/programs.sh pack FOLDER            builds and takes along the programs
# tests/gpu/programs.sh run FOLDER OUT.json …   on the card; options as programs.py says
set -eu
here=$(cd "$(dirname "$0")" && pwd)
case ${1:-} in
pack)
  sh "$here/../../benches/pack.sh" "$2"
  cp "$here"/programs*.py "$here"/*_of_*.py "$0" "$2/"
  ;;
run)
  shift
  exec python3 "$here/programs.py" "$@"
  ;;
*)
  sed -n 2,4p "$0"
  exit 2
  ;;
esac
