#!/bin/sh
# Fuzzes on many processors at once, with nothing but this folder.
#   run SECONDS [PROCESSES [TARGET...]]
# New inputs go into corpus/, inputs that show a finding into findings/, all that was said into logs/.
set -u
cd "$(dirname "$0")" || exit 2
seconds=${1:?give the seconds that all targets have, side by side: run SECONDS [PROCESSES [TARGET...]]}
processes=${2:-$(nproc)}
[ $# -gt 2 ] && shift 2 || set -- $(ls bin)

# The targets with a whole world in them reach the most, and are the slowest.
weight() { case $1 in packets | ring) echo 4 ;; *) echo 1 ;; esac; }
options() { case $1 in packets | ring) echo OF_WORLDS ;; esac; }
count() { find "$1" -type f | wc -l; }

# One process after the other until the time is over: a finding ends a process. They learn of each other by their common corpus.
work() {
    while left=$((end - $(date +%s))) && [ "$left" -gt 0 ]; do
        "bin/$1" "corpus/$1" -max_total_time="$left" OPTIONS $(options "$1") -artifact_prefix="findings/$1/" >>"logs/$1.$2.txt" 2>&1
        case $? in 0 | 126 | 127) return ;; esac
        sleep 1
    done
}

all=0
for target in "$@"; do
    [ -x "bin/$target" ] || { echo "there is no fuzz target \"$target\": name some of" $(ls bin) >&2; exit 2; }
    all=$((all + $(weight "$target")))
done
rm -rf logs tmp
mkdir logs tmp
export TMPDIR="$PWD/tmp"
end=$(($(date +%s) + seconds))
for target in "$@"; do
    mkdir -p "corpus/$target" "findings/$target"
    count "corpus/$target" >"logs/$target.before"
    own=$((processes * $(weight "$target") / all))
    [ "$own" -ge 1 ] || own=1
    while [ "$own" -gt 0 ]; do
        work "$target" "$own" &
        own=$((own - 1))
    done
done
wait
rm -rf tmp

found=0
printf '%-10s %12s %8s %8s %8s  %s\n' target executions edges inputs new findings
for target in "$@"; do
    runs=$(cat logs/"$target".*.txt | awk '/^stat::number_of_executed_units:/ { runs += $2 } END { printf "%d", runs }')
    edges=$(cat logs/"$target".*.txt | awk '/^#/ { for (i = 1; i < NF; i++) if ($i == "cov:" && $(i + 1) > edges) edges = $(i + 1) } END { printf "%d", edges }')
    inputs=$(count "corpus/$target")
    # A slow input is no finding.
    findings=$(find "findings/$target" -type f ! -name 'slow-unit-*' | wc -l)
    found=$((found + findings))
    printf '%-10s %12s %8s %8s %8s  %s\n' "$target" "$runs" "$edges" "$inputs" $((inputs - $(cat "logs/$target.before"))) "$findings"
    [ "$runs" -gt 0 ] || { echo "$target did not run: see logs/$target.1.txt" >&2; found=$((found + 1)); }
done
[ "$found" -eq 0 ] && exit 0
echo "To repeat a finding: bin/TARGET findings/TARGET/FILE"
find findings -type f ! -name 'slow-unit-*'
exit 1
