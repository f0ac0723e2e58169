#!/bin/sh
# Installs Python packages as pip installs them, outside the tree, runs what uses them on software GPUs, and writes the first
# table of docs/programs.md; the rest of that page is written there. Needs Python 3.11 or newer with venv, a network, and a
# release build.
#
#   tests/programs/run.sh FOLDER
set -eu
folder=${1:?say where to install: tests/programs/run.sh FOLDER}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
page=$root/docs/programs.md

# Nothing that an earlier run or another device has compiled.
HOME=$(mktemp -d)
export HOME
trap 'rm -rf "$HOME"' EXIT
unset CUDA_MPS_PIPE_DIRECTORY CUPY_CACHE_DIR CUPY_ACCELERATORS TORCHINDUCTOR_CACHE_DIR TRITON_CACHE_DIR || true

# rows SET PACKAGE DEVICE PROGRAM [VARIABLE=VALUE]
rows() {
    python=$folder/$1/bin/python
    [ -x "$python" ] || python3 -m venv "$folder/$1"
    "$python" -m pip install --quiet --requirement "$here/requirements-$1.txt"
    version=$("$python" -m pip show "$2" 2>/dev/null | sed -n 's/^Version: //p')
    # shellcheck disable=SC2086
    env CUDA_MPS_PIPE_DIRECTORY=/nonexistent/cumux ${5:-} "$root/target/release/cumux" run --device "$3" -- \
        "$python" -W ignore "$here/$4" 2>/dev/null | sed -n "s/^\([a-z0-9_]*\): \(.*\)$/\1|\2/p" | while IFS='|' read -r name result; do
        printf '| %s | %s | `%s` | %s | %s | %s |\n' "$2" "$version" "$3" "$(echo "$name" | tr _ ' ')" "$(echo "$result" | sed 's/|/\\|/g')" "$(date +%F)"
    done
}

{
    cat <<END
# Programs that were tried

Made by \`tests/programs/run.sh\`: packages as pip installs them (versions in [tests/programs](../tests/programs)), started with \`cumux run\` on the device named, with nothing set by hand but
\`XLA_FLAGS=--xla_gpu_enable_libnvptxcompiler=false\` for JAX. What is tried is in the same folder; every result is compared with what NumPy or PyTorch finds on the processor.

| package | version | device | what | result | date |
|---|---|---|---|---|---|
END
    rows cupy cupy-cuda13x sim:h200 cupy_basics.py
    rows cupy numba-cuda sim:h200 numba_basics.py
    for device in sim:h200 sim:rtx-pro-6000; do
        rows triton triton "$device" triton_basics.py
        rows jax jax "$device" jax_basics.py XLA_FLAGS=--xla_gpu_enable_libnvptxcompiler=false
    done
    # What is written by hand begins with the first heading of the second level.
    printf '\n'
    sed -n '/^## /,$p' "$page"
} > "$page.new"
mv "$page.new" "$page"
sed -n '1,/^## /p' "$page"
