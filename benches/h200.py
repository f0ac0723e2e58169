"""Runs the measurements of h200.sh and writes one JSON document and one readable table. Standard library only.

Every figure is the median of REPEATS runs with its spread; ratios compare figures of the same run.
"""

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

REPEATS = int(os.environ.get("REPEATS", 3))
SECONDS = "1"
FOLDER = Path(sys.argv[1]).resolve()
OUT = Path(sys.argv[2])
END = time.monotonic() + float(os.environ.get("LIMIT", 9 * 60))


def environment(mode, room):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "CUMUX_"))}
    env["CUDA_MPS_PIPE_DIRECTORY"] = "" if mode == "native" else str(room / "pipe")
    env["CUDA_MPS_LOG_DIRECTORY"] = str(room / "log")
    if mode == "cumux":
        env["LD_LIBRARY_PATH"] = str(FOLDER / "lib")
    return env


class Service:
    """NVIDIA's MPS, cumux, or nothing, in private directories, ended afterwards."""

    def __init__(self, mode):
        self.mode = mode
        self.room = Path(tempfile.mkdtemp(prefix=mode))
        for name in ("pipe", "log"):
            (self.room / name).mkdir()
        self.env = environment(mode, self.room)

    def command(self):
        return ["nvidia-cuda-mps-control"] if self.mode == "mps" else [str(FOLDER / "cumux"), "control"]

    def __enter__(self):
        if self.mode != "native":
            device = ["--device", "cuda:0"] if self.mode == "cumux" else []
            subprocess.run(self.command() + device + ["-d"], env=self.env, check=True)
            self.run("first_kernel")  # the server starts with its first client
        return self

    def __exit__(self, *_):
        if self.mode != "native":
            subprocess.run(self.command(), input="quit\n", text=True, env=self.env, check=False, stdout=subprocess.DEVNULL)

    def start(self, program, *arguments, **options):
        return subprocess.Popen(
            [str(FOLDER / program), *map(str, arguments)],
            env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)

    def run(self, program, *arguments):
        process = self.start(program, *arguments)
        try:
            text, _ = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            text = process.communicate()[0] + "\nTIMEOUT"
        return text


def share(service, clients, *work):
    """One run of `clients`: kernels/s of all, latency of a batch, initialisation."""
    text = service.run("clients", clients, *work)
    found = re.search(r"agg (\d+) kernels/s.*p50 ([\d.]+) us p99max ([\d.]+) us\s+init (\d+) ms", text)
    if not found or "child status" in text:
        return {"failed": text[-300:]}
    return {"rate": float(found[1]), "p50_us": float(found[2]), "p99_us": float(found[3]), "init_ms": float(found[4])}


def starts(service, clients):
    """Seconds from the start of `clients` programs together until each has its first kernel done: median and last."""
    begun = time.monotonic()
    processes = [service.start("first_kernel") for _ in range(clients)]
    ends, failed = [], 0
    for process in processes:
        failed += process.stdout.readline() != "done\n"
        ends.append(time.monotonic() - begun)
        process.communicate()
    return {"median_s": statistics.median(ends), "last_s": max(ends)} | ({"failed": failed} if failed else {})


def card_memory():
    text = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], capture_output=True, text=True).stdout
    return float(text.split()[0])


def idle_memory(service, clients=8):
    before = card_memory()
    held = [service.start("first_kernel", "hold", stdin=subprocess.PIPE) for _ in range(clients)]
    for process in held:
        process.stdout.readline()
    used = (card_memory() - before) / clients
    for process in held:
        process.communicate("")
    return used


def neighbours(service):
    table = {}
    for third in ("", "long"):
        for other in ("", "alloc", "register", "pinned", "load", "kernel", "local"):
            beside = [service.start("neighbour", what, 2.5) for what in (other, third) if what]
            for process in beside:
                process.stdout.readline()
            text = service.run("neighbour", "victim", 1)
            for process in beside:
                process.communicate()
            found = re.search(r"p50 ([\d.]+) p99 ([\d.]+) max ([\d.]+)", text)
            name = f"{other or 'nothing'}{' + 20 ms kernel' if third else ''}"
            table[name] = {"p50_us": float(found[1]), "p99_us": float(found[2]), "max_us": float(found[3])} if found else {"failed": text[-200:]}
    return table


W1 = {f"W1 n={n}": (n, 16, 256, 20000, 10, SECONDS) for n in (1, 8, 16, 32)}
W2 = {f"W2 n={n} N={batch}": (n, 1, 32, 0, batch, SECONDS, 1) for n in (1, 8) for batch in (1, 4, 16, 100)}


def median(values, key):
    good = [v[key] for v in values if key in v]
    return statistics.median(good) if good else None


def main():
    raw = {mode: {} for mode in ("native", "mps", "cumux")}
    single = {mode: {} for mode in raw}
    for repeat in range(REPEATS):
        for mode in raw:
            with Service(mode) as service:
                for name, work in {**W1, **W2}.items():
                    if repeat > 0 and time.monotonic() > END - 120:
                        break
                    # Time-slicing is slow and steady: once is enough for many clients.
                    if mode == "native" and work[0] > 8 and repeat > 0:
                        continue
                    raw[mode].setdefault(name, []).append(share(service, *work))
                for clients in (1, 32):
                    single[mode].setdefault(f"start n={clients}", []).append(starts(service, clients))
                launches = re.search(r"ns per launch (\d+)", service.run("first_kernel", "launches", 100000))
                single[mode].setdefault("ns per launch", []).append(float(launches[1]) if launches else None)
                if repeat == 0:
                    single[mode]["MiB per idle client"] = idle_memory(service)
                    if mode == "cumux":
                        single[mode]["neighbours"] = neighbours(service)
                        pair = [service.start("clients", 64, 16, 256, 20000, 10, 2) for _ in range(2)]
                        texts = [process.communicate()[0] for process in pair]
                        rates = [float(x) for text in texts for x in re.findall(r"agg (\d+)", text)]
                        single[mode]["128 clients"] = {"rate": sum(rates), "all served": len(rates) == 2 and "child status" not in "".join(texts)}

    figures = {
        mode: {name: {key: median(runs, key) for key in ("rate", "p50_us", "p99_us", "init_ms")} | {"spread": [min((r.get("rate", 0) for r in runs)), max((r.get("rate", 0) for r in runs))]}
               for name, runs in table.items()}
        for mode, table in raw.items()
    }
    targets = []

    def target(name, ratio, wanted, more=True):
        met = ratio is not None and (ratio >= wanted if more else ratio <= wanted)
        targets.append({"name": name, "ratio": None if ratio is None else round(ratio, 3), "target": f"{'at least' if more else 'at most'} {wanted}", "met": met})

    def against(name, base="mps", alone=None):
        top, bottom = figures["cumux"].get(name, {}).get("rate"), figures[base].get(alone or name, {}).get("rate")
        return top / bottom if top and bottom else None

    target("W1, 8 clients / MPS", against("W1 n=8"), 0.97)
    target("W1, 16 clients / MPS", against("W1 n=16"), 1.0)
    for batch, wanted in ((100, 2.0), (16, 1.3), (4, 0.85), (1, 0.5)):
        target(f"W2 N={batch}, 8 clients / MPS", against(f"W2 n=8 N={batch}"), wanted)
    target("W2 N=100, 1 client / alone", against("W2 n=1 N=100", "native"), 1.5)
    waits = [figures[m]["W2 n=1 N=1"]["p50_us"] for m in ("cumux", "native")]
    target("launch and wait, us over alone", waits[0] - waits[1], 5.0, more=False)
    begin = {m: median(single[m]["start n=32"], "last_s") for m in raw}
    target("start of 32 clients, MPS / cumux", begin["mps"] / begin["cumux"], 10.0)
    target("MiB per idle client", single["cumux"]["MiB per idle client"], 8.0, more=False)
    cost = [x for x in single["cumux"]["ns per launch"] if x]
    target("us of CPU per asynchronous launch", statistics.median(cost) / 1000 if cost else None, 0.5, more=False)
    table = single["cumux"]["neighbours"]
    calm = {"": table["nothing"].get("p99_us"), " + 20 ms kernel": table["nothing + 20 ms kernel"].get("p99_us")}
    worst = max((v.get("p99_us", 1e9) / calm[" + 20 ms kernel" if "20 ms" in k else ""] for k, v in table.items()), default=None)
    target("neighbour's p99 / its p99 alone, worst case", worst, 2.0, more=False)
    many, sixteen = single["cumux"]["128 clients"], figures["cumux"]["W1 n=16"]["rate"]
    target("128 clients / 16 clients", many["rate"] / sixteen if many["all served"] else None, 0.9)

    driver = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()
    commit = (FOLDER / "commit").read_text().strip() if (FOLDER / "commit").exists() else "unknown"
    OUT.write_text(json.dumps({"date": str(date.today()), "commit": commit, "driver": driver, "repeats": REPEATS, "figures": figures, "single": single, "targets": targets}, indent=1))
    print(f"{driver}, commit {commit}, medians of {REPEATS}\n")
    print(f"{'kernels/s':<18}" + "".join(f"{m:>12}" for m in figures) + f"{'cumux/MPS':>12}")
    for name in {**W1, **W2}:
        rates = [figures[m].get(name, {}).get("rate") or 0 for m in figures]
        print(f"{name:<18}" + "".join(f"{r:>12.0f}" for r in rates) + f"{rates[2] / rates[1] if rates[1] else 0:>12.2f}")
    print()
    for name in ("start n=1", "start n=32"):
        print(f"{name + ' last, ms':<34}" + "".join(f"{(median(single[m][name], 'last_s') or 0) * 1e3:>12.1f}" for m in figures))
    print(f"{'MiB of the card per idle client':<34}" + "".join(f"{single[m]['MiB per idle client']:>12.1f}" for m in figures))
    print(f"{'ns of CPU per launch':<34}" + "".join(f"{statistics.median([x for x in single[m]['ns per launch'] if x] or [0]):>12.0f}" for m in figures))
    print("\nneighbour's launch and wait through cumux, us" + "".join(f"\n  {k:<28} {v}" for k, v in table.items()))
    print(f"\n128 clients: {many}\n")
    for t in targets:
        print(f"{'met ' if t['met'] else 'OPEN'} {t['name']:<48} {t['ratio']} ({t['target']})")


if __name__ == "__main__":
    main()
