#!/bin/sh
# The wheel in an environment of its own: wheel.sh PYTHON WHEEL FOLDER VECTOR_ADD
set -eux
python=$1 wheel=$2 folder=$3 vector_add=$4
"$python" -m venv "$folder/environment"
"$folder/environment/bin/pip" install --quiet --no-index "$wheel"
export PATH="$folder/environment/bin:/usr/bin:/bin"
cumux --version
python -m cumux --version
cat >"$folder/app.py" <<'END'
import ctypes, subprocess, sys
cuda = ctypes.CDLL("libcuda.so.1")
count, name = ctypes.c_int(), ctypes.create_string_buffer(100)
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
device = ctypes.c_int()
assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0 and cuda.cuDeviceGetName(name, 100, device) == 0
print(count.value, name.value.decode())
subprocess.run([sys.argv[1], "1"], check=True)
END
cumux run --device sim:h200 -- python "$folder/app.py" "$vector_add" | tee "$folder/said"
grep -q '^1 NVIDIA H200' "$folder/said"
grep -q PASS "$folder/said"
python -c 'import cumux, os; assert os.path.exists(cumux.library_folder() + "/libcuda.so.1"), cumux.library_folder()'
pip uninstall --quiet --yes cumux
test ! -e "$folder/environment/bin/cumux" && test ! -e "$folder/environment/lib/cumux/libcuda.so.1"
echo "the wheel was installed, used and removed"
