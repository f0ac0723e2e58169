"""Makes a Python wheel of an installation: `wheel.py STAGED VERSION PLATFORM OUT`.

The program goes to the environment's bin and the libraries to its lib/cumux, where the program looks for them. The module `cumux` says where they are,
for Python programs that start others. Only the standard library is used, and the same files give the same wheel.
"""

import base64
import hashlib
import pathlib
import sys
import zipfile

MODULE = '''"""Where the cumux of this environment is. `cumux run -- python app.py` runs a program through it."""

import os
import sys
import sysconfig

__version__ = "{version}"


def program():
    """The path of the program `cumux`."""
    return os.path.join(sysconfig.get_path("scripts"), "cumux")


def library_folder():
    """The folder with our libcuda.so.1: first in LD_LIBRARY_PATH of programs that are to be served."""
    return os.path.join(sysconfig.get_path("data"), "lib", "cumux")


def main():
    """`python -m cumux` is `cumux`."""
    os.execv(program(), ["cumux", *sys.argv[1:]])
'''

METADATA = """Metadata-Version: 2.1
Name: cumux
Version: {version}
Summary: Many CUDA programs share one GPU, and one that crashes takes nobody with it
License: MIT OR Apache-2.0
Requires-Python: >=3.8
Classifier: Operating System :: POSIX :: Linux
Description-Content-Type: text/markdown

A Multi-Process Service for GPUs: `cumux run -- python app.py` runs a program with a service of its own, `cumux control -d` starts one for all.
On a machine without a GPU both use a software GPU.
"""


def main():
    staged, version, platform, out = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4])
    info, data = f"cumux-{version}.dist-info", f"cumux-{version}.data"
    files = {
        "cumux/__init__.py": (MODULE.format(version=version).encode(), 0o644),
        "cumux/__main__.py": (b"from cumux import main\n\nmain()\n", 0o644),
        f"{info}/METADATA": (METADATA.format(version=version).encode(), 0o644),
        f"{info}/WHEEL": (f"Wheel-Version: 1.0\nGenerator: cumux\nRoot-Is-Purelib: false\nTag: py3-none-{platform}\n".encode(), 0o644),
        f"{data}/scripts/cumux": ((staged / "usr/bin/cumux").read_bytes(), 0o755),
    }
    for name in ["LICENSE-MIT", "LICENSE-APACHE"]:
        files[f"{info}/licenses/{name}"] = ((staged / "usr/share/doc/cumux" / name).read_bytes(), 0o644)
    for path in sorted((staged / "usr/lib/cumux").iterdir()):
        if path.is_file():
            files[f"{data}/data/lib/cumux/{path.name}"] = (path.read_bytes(), 0o755)
    files[f"{data}/data/lib/cumux/software/libnvidia-ml.so.1"] = ((staged / "usr/lib/cumux/software/libnvidia-ml.so.1").read_bytes(), 0o755)
    # A wheel has no links: the stand-in for NVIDIA's assembler is a script here.
    script = b'#!/bin/sh\nexec "$(dirname "$0")/../../../../bin/cumux" ptxas "$@"\n'
    files[f"{data}/data/lib/cumux/software/bin/ptxas"] = (script, 0o755)
    for path in sorted((staged / "usr/share/man/man1").iterdir()):
        files[f"{data}/data/share/man/man1/{path.name}"] = (path.read_bytes(), 0o644)
    digest = lambda content: base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    record = "".join(f"{name},sha256={digest(content)},{len(content)}\n" for name, (content, _) in files.items()) + f"{info}/RECORD,,\n"
    files[f"{info}/RECORD"] = (record.encode(), 0o644)
    wheel = out / f"cumux-{version}-py3-none-{platform}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (content, mode) in files.items():
            entry = zipfile.ZipInfo(name, date_time=(2020, 1, 1, 0, 0, 0))
            entry.external_attr, entry.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    print(wheel)


main()
