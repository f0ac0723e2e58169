"""Measures two builds of cumux in turn, in one run on one card: is a difference between two tables the machine's or the code's?

benches/pair.py FOLDER_BEFORE FOLDER_AFTER [ROUNDS]     folders made by benches/pack.sh; both need the same measuring programs
"""

import re
import statistics
import sys
from pathlib import Path

BUILDS = [Path(argument).resolve() for argument in sys.argv[1:3]]
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 5
sys.argv = [sys.argv[0], str(BUILDS[0]), "/dev/null"]
import h200  # noqa: E402  (it reads its arguments when it is loaded)

WORK = {"W1, 16 clients, kernels/s": h200.W1["W1 n=16"]} | {f"W2, 8 clients, N={n}, kernels/s": h200.W2[f"W2 n=8 N={n}"] for n in (1, 16, 100)}


def measure(table):
    with h200.Service("cumux") as service:
        for name, work in WORK.items():
            table.setdefault(name, []).append(h200.share(service, *work).get("rate", 0))
        wait = h200.share(service, *h200.W2["W2 n=1 N=1"])
        table.setdefault("launch and wait, us", []).append(wait.get("p50_us", 0))
        table.setdefault("start of 32 clients, ms", []).append(h200.starts(service, 32)["last_s"] * 1e3)
        for _ in range(3):
            launches = re.search(r"ns per launch (\d+)", service.run("first_kernel", "launches", 100000))
            table.setdefault("CPU a launch, ns", []).append(float(launches[1]))
        pair = [service.start("clients", 64, 16, 256, 20000, 10, 2) for _ in range(2)]
        rates = [float(x) for process in pair for x in re.findall(r"agg (\d+)", process.communicate()[0])]
        table.setdefault("128 clients, kernels/s", []).append(sum(rates))


def main():
    tables = [{}, {}]
    for _ in range(ROUNDS):
        for folder, table in zip(BUILDS, tables):
            h200.FOLDER = folder
            measure(table)
    print(f"{ROUNDS} rounds, each build in turn; median (least to most)\n{'':<32}{'before':>36}{'after':>36}{'after/before':>14}")
    for name in tables[0]:
        cells, middles = [], []
        for table in tables:
            values = table[name]
            middles.append(statistics.median(values))
            cells.append(f"{middles[-1]:.1f} ({min(values):.1f} to {max(values):.1f})")
        print(f"{name:<32}{cells[0]:>36}{cells[1]:>36}{middles[1] / middles[0] if middles[0] else 0:>14.3f}")


main()
