"""The ladder of Python programs: each alone on the card without cumux, then eight different ones at a time through cumux; the numbers have to be the same.

tests/gpu/programs.py FOLDER OUT.json [--only REGEX] [--jobs N] [--limit S] [--device D] [--end S] [--again N] [--copies N] [--keep EARLIER.json] [--page FILE.md] [--with SITE[:SITE…] …]

FOLDER holds cumux and lib/libcuda.so.1 (tests/gpu/faults.sh packs it). Packages that cannot be installed together lie in folders of their own: a program runs with the packages of the machine if they are enough for it, otherwise with those of the first --with that has what it needs. The whole ladder: --with VLLM --with SGLANG:VLLM --with TENSORFLOW --with SITE:TILELANG:MUJOCO --with ENGINES --with ENGINES:LMDEPLOY --with OPEN3D --with LIBRARIES --with RAPIDS --with CHEMISTRY, folders into which the programs' files say what to install (SITE: what programs_carried.py, programs_science.py, programs_inference.py but for vLLM, and programs_frameworks.py but for MuJoCo install). vLLM also needs nvidia/cu13 of the machine's packages in its folder, as a link. Prints a table and writes OUT.json; status 0 if every program that runs without cumux gives the same numbers through it, and none was late.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from importlib import metadata
from pathlib import Path

arguments = argparse.ArgumentParser()
arguments.add_argument("folder", type=Path)
arguments.add_argument("out", type=Path)
arguments.add_argument("--only", default=".")
arguments.add_argument("--jobs", type=int, default=8)
arguments.add_argument("--limit", type=float, default=120, help="seconds for one program")
arguments.add_argument("--end", type=float, default=86400, help="no program starts after so many seconds, and those that run are killed 20 s later: they have no result, and the status is 1")
arguments.add_argument("--device", default="cuda:0")
arguments.add_argument("--again", type=int, default=1, help="times that each program is run through cumux among others; may be 0 with --copies")
arguments.add_argument("--copies", type=int, default=0, help="each program also alone through cumux, and so many of it at the same time")
arguments.add_argument("--keep", type=Path, help="the OUT.json of an earlier run: what is not run now is taken from there")
arguments.add_argument("--page", type=Path, help="writes docs/programs-on-a-card.md there, with --copies docs/programs-eight-at-once.md")
arguments.add_argument("--with", dest="sites", action="append", default=[], metavar="SITE[:SITE…]", help="folders of packages, as in PYTHONPATH, for the programs that need them; may be given several times")
options = arguments.parse_args()
if options.again < 1 and not options.copies:
    arguments.error("--again: nothing would run through cumux; give --copies too, or leave it out")
folder = options.folder.resolve()
# Programs run in a folder of their own.
options.sites = [[Path(part).resolve() for part in site.split(":")] for site in options.sites]
if missing := [str(part) for site in options.sites for part in site if not part.is_dir()]:
    arguments.error(f"--with: there is no folder {', '.join(missing)}")
END = time.monotonic() + options.end
LATE = "no time was left"
CASES = Path(__file__).with_name("programs_run.py")


def environment(mode, room, site=()):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "CUMUX_"))} | {"CUDA_MPS_PIPE_DIRECTORY": str(room / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(room / "log")}
    if site:
        env["PYTHONPATH"] = ":".join([*map(str, site), *filter(None, [os.environ.get("PYTHONPATH")])])
    if mode == "cumux":
        env["LD_LIBRARY_PATH"] = f"{folder / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
    return env


SITES = [[], *options.sites]
"""Folders of packages beside those of the machine."""


def sites_of_programs(room):
    """Each program with the number of its packages in `SITES`. Those of the machine's own packages come last, because they are the short ones."""
    found = {}
    for number, site in enumerate(SITES):
        said = subprocess.run([sys.executable, str(CASES), "--list"], env=environment("native", room, site), cwd=room, capture_output=True, text=True)
        if said.returncode:
            sys.exit(f"the programs cannot be listed with {':'.join(map(str, site)) or 'the packages of this machine'}: {tail(said.stderr, room / 'none')}")
        for name in said.stdout.split():
            found.setdefault(name, number)
    chosen = {name: number for name, number in found.items() if re.search(options.only, name)}
    return dict(sorted(chosen.items(), key=lambda item: not item[1]))


def run(mode, room, site, name, number=0):
    """(numbers or None, seconds, why it failed)."""
    env = environment(mode, room, SITES[site])
    log = room / f"{name}-{number}.log"
    if mode == "cumux":
        env["CUMUX_LOG"] = str(log)
    begun = time.monotonic()
    if begun > END:
        return None, 0.0, LATE
    # Copies of a program write files with the same names.
    home = room / f"{name}-{mode}-{number}"
    home.mkdir()
    # A session of its own, so that processes which the program has started end with it.
    done = subprocess.Popen([sys.executable, "-X", "faulthandler", str(CASES), name], env=env, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        said, errors = done.communicate(timeout=min(options.limit, END + 20 - begun))
    except subprocess.TimeoutExpired:
        os.killpg(done.pid, signal.SIGKILL)
        said, errors = done.communicate()
        seconds = time.monotonic() - begun
        return None, seconds, LATE if seconds < options.limit else f"no end within {options.limit:.0f} s; {tail(errors, log)}"
    seconds = time.monotonic() - begun
    if done.returncode:
        return None, seconds, f"status {done.returncode}; {tail(errors, log)}"
    return [[float(word) for word in line.split()[1:]] for line in said.splitlines() if line.startswith("result ")], seconds, ""


def tail(errors, log):
    lines = [line.strip() for line in errors.splitlines() if line.strip() and not line.startswith(("Extension modules", "  File"))]
    shim = [re.sub(r"^cumux\[\d+\]: ", "", line) for line in (log.read_text(errors="replace").splitlines() if log.exists() else [])]
    shim = [line for line in shim if not re.search("answered (201|400|500|600)|f8cff951|served as session", line)]
    return " | ".join(lines[-3:])[-500:] + (f" || cumux: {' | '.join(shim[-6:])[-500:]}" if shim else "")


def refusals(room):
    """The functions that were refused, with the programs that asked for them."""
    found = {}
    for log in sorted(room.glob("*.log")):
        for function in re.findall(r"\b(cu[A-Z]\w+)(?: is|:) not supported\b", log.read_text(errors="replace")):
            found.setdefault(function, set()).add(re.sub(r"-(\d+|alone|copy-\d+)$", "", log.stem))
    return {function: sorted(programs) for function, programs in sorted(found.items())}


def alike(ours, theirs):
    if len(ours) != len(theirs):
        return "other shapes"
    exact = True
    for (n, product, total), (m, wanted, sum_wanted) in zip(ours, theirs):
        room = 2e-3 * abs(sum_wanted) + 1e-5
        if n != m or not abs(product - wanted) <= room or not abs(total - sum_wanted) <= room:
            return f"WRONG: {product:.6g} for {wanted:.6g}, {total:.6g} for {sum_wanted:.6g}"
        exact = exact and product == wanted and total == sum_wanted
    return "the same numbers" if exact else "the same numbers but for rounding"


def versions(sites):
    """The versions of the packages that programs with these numbers of sites found."""
    found = {}
    for package in ("torch", "triton", "transformers", "cupy-cuda13x", "jax", "flax", "numba-cuda", "torchvision", "torchaudio", "timm", "peft", "accelerate", "pytorch-lightning", "torch-geometric", "gpytorch", "numpyro", "nvidia-nccl-cu13", "nvidia-cublas", "nvidia-cudnn-cu13", "taichi", "bitsandbytes", "cuda-cccl", "liger-kernel", "torchao", "warp-lang", "nvmath-python", "openmm", "xgboost", "cuda-quantum-cu13", "nvidia-cutlass-dsl", "quack-kernels", "onnxruntime-gpu", "vllm", "fla-core", "cutensor-cu13", "tilelang", "nvidia-dali-cuda130", "tinygrad", "mlx", "mujoco-warp", "catboost", "diffusers", "ultralytics", "cuequivariance", "sglang", "sglang-kernel", "cudf-cu13", "rmm-cu13", "cuml-cu13", "cuvs-cu13", "gpu4pyscf-cuda13x", "pyscf", "tensorflow", "keras", "ctranslate2", "faster-whisper", "xllamacpp-cuda12x", "faiss-gpu", "spconv-cu126", "lmdeploy", "xformers", "open3d", "pycuda", "pyvkfft", "cutensornet-cu13", "custatevec-cu13", "nvidia-cudss-cu13", "cvcuda-cu13", "nvidia-nvimgcodec-cu13"):
        def first(path):
            return [one.version for one in metadata.distributions(name=package, path=path) if one.version][:1]
        # A program may take a package from any folder of its site.
        there = [version for site in sites for version in ([one for folder in SITES[site] for one in first([str(folder)])] or first(sys.path))]
        if there:
            found[package] = list(dict.fromkeys(there))
    return found


def united(earlier, now):
    """What two runs have found for each name."""
    return {name: list(dict.fromkeys([*earlier.get(name, []), *now.get(name, [])])) for name in [*earlier, *(name for name in now if name not in earlier)]}


PAGE = """# Python programs on a card

Made by `tests/gpu/programs.sh` on one {card}, commit {commit}, {date}. Each program (in `programs_cases.py`, `programs_packages.py`, `programs_corners.py`, `programs_interfaces.py`, `programs_carried.py`, `programs_science.py`, `programs_inference.py`, `programs_frameworks.py`, `programs_serving.py`, `programs_tables.py`, `programs_chemistry.py`, `programs_tensorflow.py`, `programs_engines.py`, `programs_libraries.py` and `programs_edges.py` of `tests/gpu`) ran without cumux, {jobs} at a time, and then through
cumux, {jobs} different ones at a time; its numbers are compared. The last column is the time from start to end with cumux over that without. Of {all}, {right} give the numbers that they give without cumux. Failed, or with other numbers, through cumux and not without it: {bad}. Without numbers to compare with, because they failed or were late without cumux: {neither}.{kept}

Versions: {versions}. Packages that cannot be installed together lay in folders of their own; where a package has two versions, programs ran with one or the other.

| program | result | time with / without |
|---|---|---|
{rows}
"""


KEPT = " {kept} of them ran in an earlier run, on a machine of the same kind with the same build."
PAGE_OF_COPIES = """# Python programs, {copies} of each at once

Made by `tests/gpu/programs.sh … --copies {copies}` on one {card}, commit {commit}, {date}. Each program ran without cumux, {jobs} different ones at a time. Then it ran alone through cumux, and then {copies} of it at the same time, and all {runs} results are compared with the one without cumux. The times are from start to end; of those at the same time, that of the last to end. Of {all}, {right} give the numbers that they give without cumux, {runs} times of {runs}. Failed, or with other numbers, once or more, through cumux and not without it: {bad}. Without numbers to compare with: {neither}.{kept} [The page of all programs](programs-on-a-card.md) names the versions.

| program | results | alone, s | {copies} at once, s |
|---|---|---|---|
{rows}
"""


def is_right(row):
    return not row["bad"] and "[without cumux: " not in row["result"]


def write_page(path, result):
    rows = result["programs"]
    if copies := result["copies"]:
        page, more = PAGE_OF_COPIES, {"copies": copies, "runs": copies + 1}
        table = [f"| {row['program'].replace('_', ' ')} | {shorten(row['result'])} | {row['alone_s']:.1f} | {max(row['copies_s']):.1f} |" for row in rows]
    else:
        page, more = PAGE, {"versions": ", ".join(f"{name} {' and '.join(there)}" for name, there in result["versions"].items())}
        table = [f"| {row['program'].replace('_', ' ')} | {shorten(row['result'])} | {max(row['cumux_s']) / max(row['native_s'], 0.1):.2f} |" for row in rows]
    path.write_text(page.format(
        **{key: result[key] for key in ("card", "commit", "date", "jobs")}, **more, right=sum(is_right(row) for row in rows), neither=sum(not row["bad"] and not is_right(row) for row in rows),
        bad=sum(row["bad"] for row in rows), kept=KEPT.format(kept=result["kept"]) if result["kept"] else "", all=len(rows), rows="\n".join(table)))


def shorten(text):
    text = text.split(" || ")[0].replace("|", "/").replace("\n", " ")
    return text if len(text) < 120 else text[:117] + "..."


def earlier_run(this):
    """The run whose rows are kept: only one that did the same with the same build."""
    if not options.keep:
        return {"programs": [], "versions": {}, "refused": {}}
    earlier = json.loads(options.keep.read_text())
    differs = [f"{key} was {earlier.get(key)}, is {value}" for key, value in this.items() if earlier.get(key) != value]
    if differs:
        sys.exit(f"--keep: {options.keep} is of another kind of run, so leave it out: {'; '.join(differs)}")
    return earlier


def main():
    card = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip() if options.device.startswith("cuda") else options.device
    commit = (folder / "commit").read_text().strip() if (folder / "commit").exists() else ""
    earlier = earlier_run({"commit": commit, "card": card, "jobs": options.jobs, "copies": options.copies})
    room = Path(tempfile.mkdtemp(prefix="programs"))
    for name in ("pipe", "log"):
        (room / name).mkdir(mode=0o700)
    sites = sites_of_programs(room)
    names = list(sites)
    table = {}
    with ThreadPoolExecutor(options.jobs) as jobs:
        for name, result in zip(names, jobs.map(lambda name: run("native", room, sites[name], name), names)):
            table[name] = {"native": result}
        print(f"{len(names)} programs ran without cumux, {time.monotonic() - END + options.end:.0f} s since the start", flush=True)
        service = environment("service", room)
        subprocess.run([str(folder / "cumux"), "control", "--device", options.device, "-d"], env=service, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60, check=True)
        rounds = [(name, number) for number in range(options.again) for name in names]
        for (name, _), result in zip(rounds, jobs.map(lambda item: run("cumux", room, sites[item[0]], *item), rounds)):
            table[name].setdefault("cumux", []).append(result)
    for name in names if options.copies else []:
        results = table[name].setdefault("cumux", [])
        table[name]["alone"] = run("cumux", room, sites[name], name, "alone")
        with ThreadPoolExecutor(options.copies) as copies:
            table[name]["copies"] = list(copies.map(lambda number: run("cumux", room, sites[name], name, f"copy-{number}"), range(options.copies)))
        results += [table[name]["alone"], *table[name]["copies"]]
        print(f"{time.monotonic() - END + options.end:6.0f} s  {name}: alone {table[name]['alone'][1]:.1f} s, {options.copies} at once {', '.join(f'{seconds:.1f}' for _, seconds, _ in table[name]['copies'])} s", flush=True)
    refused = refusals(room)
    subprocess.run([str(folder / "cumux"), "control"], input="quit -t 2\n", text=True, env=service, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
    late = []
    for name, results in list(table.items()):
        if any(result[2] == LATE for result in [results["native"], *results["cumux"]]):
            late.append(name)
            del table[name]
    bad, rows = 0, []
    for name, results in table.items():
        numbers, native_s, why = results["native"]
        said = []
        for ours, _, failed in results["cumux"]:
            said.append(failed and f"FAILED: {failed}" or ("runs (without cumux it fails)" if numbers is None else alike(ours, numbers)))
        worst = next((text for text in said if text.startswith(("FAILED", "WRONG", "other"))), next((text for text in said if text.endswith("rounding")), said[0]))
        without = "" if numbers is not None else f" [without cumux: {why}]"
        is_bad = numbers is not None and worst.startswith(("FAILED", "WRONG", "other"))
        bad += is_bad
        rows.append({"program": name, "site": sites[name], "result": worst + without, "bad": is_bad, "native_s": round(native_s, 1), "cumux_s": [round(s, 1) for _, s, _ in results["cumux"]], **({"alone_s": round(results["alone"][1], 1), "copies_s": [round(s, 1) for _, s, _ in results["copies"]]} if options.copies else {})})
        print(f"{'BAD ' if is_bad else 'ok  '} {name:<30} {native_s:6.1f} s {max(rows[-1]['cumux_s']):6.1f} s  {worst}{without}", flush=True)
    kept = [row for row in earlier["programs"] if row["program"] not in table]
    rows = kept + rows
    kept_names = {row["program"] for row in kept}
    refused = united({function: [name for name in askers if name in kept_names] for function, askers in earlier["refused"].items()}, refused)
    result = {"date": str(date.today()), "card": card, "commit": commit, "versions": united(earlier["versions"], versions(sorted(set(sites.values())))), "jobs": options.jobs, "copies": options.copies, "kept": len(kept), "refused": refused, "programs": rows}
    options.out.write_text(json.dumps(result, indent=1))
    if options.page:
        write_page(options.page, result)
    print(f"{sum(is_right(row) for row in rows)} of {len(rows)} right, {bad} bad")
    if late:
        print(f"no time was left for {', '.join(late)}")
    for function, askers in refused.items():
        print(f"refused {function}: {', '.join(askers)}")
    said = "".join(path.read_text(errors="replace") for path in (room / "log").glob("control.log*"))
    notable = [line for line in said.splitlines() if re.search("ERROR|WARN|fault|take", line)]
    print("\n".join(notable[-15:]))
    return 1 if bad or late else 0


sys.exit(main())
