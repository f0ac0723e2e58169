#!/bin/sh
# Installs Python packages as pip installs them, outside the tree, runs what uses them on a software GPU, and writes
# docs/programs.md. Needs Python 3.11 or newer with venv, a network, and a release build.
#
#   tests/programs/run.sh FOLDER [DEVICE]
set -eu
folder=${1:?say where to install: tests/programs/run.sh FOLDER [DEVICE]}
device=${2:-sim:h200}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
page=$root/docs/programs.md

[ -x "$folder/bin/python" ] || python3 -m venv "$folder"
"$folder/bin/pip" install --quiet --requirement "$here/requirements.txt"
version() { "$folder/bin/pip" show "$1" 2>/dev/null | sed -n 's/^Version: //p'; }

# Nothing that an earlier run or another device has compiled.
HOME=$(mktemp -d)
export HOME
trap 'rm -rf "$HOME"' EXIT
unset CUDA_MPS_PIPE_DIRECTORY CUPY_CACHE_DIR CUPY_ACCELERATORS || true

rows() {
    CUDA_MPS_PIPE_DIRECTORY=/nonexistent/cumux "$root/target/release/cumux" run --device "$device" -- \
        "$folder/bin/python" -W ignore "$here/$1" 2>/dev/null | sed -n "s/^\([a-z_]*\): \(.*\)$/\1|\2/p" | while IFS='|' read -r name result; do
        printf '| %s | %s | %s | %s | %s |\n' "$2" "$(version "$2")" "$(echo "$name" | tr _ ' ')" "$(echo "$result" | sed 's/|/\\|/g')" "$(date +%F)"
    done
}

{
    cat <<END
# Programs that were tried

Made by \`tests/programs/run.sh\` on \`$device\`: packages as pip installs them (versions in [requirements.txt](../tests/programs/requirements.txt)), started with \`cumux run\` and nothing
set by hand. What is tried is in [tests/programs](../tests/programs); every result is compared with what NumPy finds.

| package | version | what | result | date |
|---|---|---|---|---|
END
    rows cupy_basics.py cupy-cuda13x
    rows numba_basics.py numba-cuda
} > "$page.new"
mv "$page.new" "$page"
cat "$page"
