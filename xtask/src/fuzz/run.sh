#!/bin/sh
# Fuzzes on many processors at once, with nothing but this folder.
#   ./run SECONDS [PROCESSES [TARGET...]]
# New inputs go into corpus/, inputs that show a finding into findings/, all that was said into logs/.
set -u
cd "$(dirname "$0")" || exit 2
seconds=${1:?give the seconds that all targets have, side by side: ./run SECONDS [PROCESSES [TARGET...]]}
processes=${2:-$(nproc)}
[ $# -gt 2 ] && shift 2 || set -- $(ls bin)

# The targets with a whole world in them reach the most, and are the slowest.
weight() { case $1 in packets | ring) echo 4 ;; *) echo 1 ;; esac; }
count() { find "$1" -type f | wc -l; }

all=0
for target in "$@"; do
    [ -x "bin/$target" ] || { echo "there is no fuzz target \"$target\": name some of" $(ls bin) >&2; exit 2; }
    all=$((all + $(weight "$target")))
done
export TMPDIR="$PWD/tmp"
mkdir -p "$TMPDIR" logs
for target in "$@"; do
    mkdir -p "corpus/$target" "findings/$target"
    count "corpus/$target" >"tmp/$target.before"
    own=$((processes * $(weight "$target") / all))
    [ "$own" -ge 1 ] || own=1
    "bin/$target" "corpus/$target" -fork="$own" -ignore_crashes=1 -ignore_timeouts=1 -ignore_ooms=1 \
        -max_total_time="$seconds" OPTIONS -artifact_prefix="findings/$target/" >"logs/$target.txt" 2>&1 &
done
wait

found=0
printf '%-10s %12s %8s %8s %8s  %s\n' target executions edges inputs new findings
for target in "$@"; do
    # "#12345: cov: 406 ft: 470 corp: 132 exec/s: 4263 oom/timeout/crash: 0/0/0 time: 9s ..."
    last=$(grep -a '^#[0-9]*: cov: ' "logs/$target.txt" | tail -n 1)
    runs=$(echo "$last" | sed -n 's/^#\([0-9]*\):.*/\1/p')
    edges=$(echo "$last" | sed -n 's/.* cov: \([0-9]*\) .*/\1/p')
    inputs=$(count "corpus/$target")
    findings=$(count "findings/$target")
    found=$((found + findings))
    printf '%-10s %12s %8s %8s %8s  %s\n' "$target" "${runs:-?}" "${edges:-?}" "$inputs" $((inputs - $(cat "tmp/$target.before"))) "$findings"
done
rm -rf tmp
[ "$found" -eq 0 ] && exit 0
echo "To run a finding again: bin/TARGET findings/TARGET/FILE"
find findings -type f
exit 1
