"""What benches/h200_mps.sh runs: limits of NVIDIA's MPS and of cumux, one after the other, on one machine. Standard library only.

Writes OUT.json with everything that was said and OUT.txt with a table. DEVICE=sim:h200 in the environment runs cumux alone on the software GPU, to try
the script where there is no card. Every program has a time limit, and the whole ends within five minutes.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

FOLDER = Path(sys.argv[1]).resolve()
OUT = Path(sys.argv[2])
DEVICE = os.environ.get("DEVICE", "cuda:0")
SIMULATED = DEVICE.startswith("sim:")
END = time.monotonic() + 270

PERCENTAGES = "1 2 3 5 7 10 12 12.5 15 20 25 30 33 33.3 40 50 60 66 70 75 80 90 99 100 0 -5 150 abc".split()
RECORDED = [8, 8, 8, 8, 8, 12, 14, 16, 18, 26, 32, 38, 42, 42, 52, 66, 78, 86, 92, 98, 104, 118, 130, 132, 132, 132, 132, 132]
AFFINITIES = "1 5 8 10 17 64 132 200".split()


class Service:
    """NVIDIA's MPS or cumux in private directories, ended afterwards."""

    def __init__(self, mode, **daemon):
        self.mode = mode
        self.daemon = daemon
        self.room = Path(tempfile.mkdtemp(prefix=mode))
        for name in ("pipe", "log"):
            (self.room / name).mkdir()
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "CUMUX_"))}
        self.env |= {"CUDA_MPS_PIPE_DIRECTORY": str(self.room / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(self.room / "log")}
        if mode == "cumux":
            self.env["LD_LIBRARY_PATH"] = str(FOLDER / "lib")

    def command(self):
        return ["nvidia-cuda-mps-control"] if self.mode == "mps" else [str(FOLDER / "cumux"), "control"]

    def control(self, line):
        done = subprocess.run(self.command(), input=line + "\n", text=True, env=self.env, capture_output=True, timeout=30)
        return done.stdout.strip()

    def __enter__(self):
        device = ["--device", DEVICE] if self.mode == "cumux" else []
        subprocess.run(self.command() + device + ["-d"], env=self.env | self.daemon, check=True, timeout=60)
        return self

    def settle(self):
        """Waits until the standby of cumux is up: another context that is being made takes the card's and the driver's time from everybody."""
        self.run("view")
        end = time.monotonic() + 20
        while self.mode == "cumux" and time.monotonic() < end:
            done = subprocess.run([str(FOLDER / "cumux"), "status", "--json"], env=self.env, text=True, capture_output=True, timeout=30)
            if any(server["standby"] for server in json.loads(done.stdout or "[]")):
                return
            time.sleep(0.1)

    def __exit__(self, *_):
        try:
            self.control("quit -t 5")
        except subprocess.TimeoutExpired:
            pass

    def start(self, program, *arguments, **variables):
        return subprocess.Popen(
            [str(FOLDER / program), *map(str, arguments)], env=self.env | variables, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, program, *arguments, **variables):
        return self.end(self.start(program, *arguments, **variables))

    @staticmethod
    def end(process, timeout=30):
        try:
            return process.communicate("", timeout=timeout)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            return process.communicate()[0] + "\nTIMEOUT"


def line_of(text, word):
    found = re.findall(rf"^{word} (.*)$", text, re.M)
    return found[-1].split() if found else []


def wait_line(process, wanted):
    for line in process.stdout:
        if line.startswith(wanted):
            return True
    return False


def count(text, word="used"):
    return len(line_of(text, word))


def percentages(service):
    table = {}
    for percent in PERCENTAGES:
        text = service.run("shares", "where", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=percent)
        seen = line_of(text, "multiprocessors")
        table[percent] = {"seen": int(seen[0]) if seen else None, "used": count(text), "mps": line_of(text, "mps")}
        if not seen:
            table[percent]["said"] = text[-300:]
    return table


def affinities(service):
    table = {}
    for asked in AFFINITIES:
        text = service.run("shares", "affinity", asked)
        created = re.search(r"create \S+ (\w+)", text)
        granted = re.search(r"granted \S+ (\d+)", text)
        table[asked] = {"create": created and created[1], "granted": granted and int(granted[1]), "used": count(text, "used0")}
    capped = service.run("shares", "affinity", 66, 100, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="50")
    together = service.run("shares", "affinity", 16, 32, 64)
    sets = [set(line_of(together, f"used{i}")) for i in range(3)]
    contexts = service.run(
        "shares", "contexts", "12.5", "50", "100", CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING="1", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="25")
    return {
        "alone": table,
        "capped at 50 %": re.findall(r"create \S+ \w+|granted \S+ \d+", capped),
        "16, 32 and 64 at once": {"used": [len(s) for s in sets], "distinct": len(set().union(*sets)), "said": together[-200:] if not all(sets) else ""},
        "contexts of 12.5, 50 and 100 %": {"seen": [line_of(contexts, f"multiprocessors{i}") for i in range(3)], "used": [count(contexts, f"used{i}") for i in range(3)]},
    }


def caps(service):
    """Several clients with different caps at once: where each runs, and how many multiprocessors they have in common."""
    wanted = ["25", "12.5", "50", "10"]
    clients = [service.start("shares", "where", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=percent) for percent in wanted]
    sets = []
    for client in clients:
        text = ""
        for line in client.stdout:
            text += line
            if line.startswith("ready"):
                break
        sets.append(set(line_of(text, "used")))
    for client in clients:
        service.end(client)
    return {"caps": wanted, "used": [len(s) for s in sets], "distinct": len(set().union(*sets))}


def memory(service):
    exact = service.run("limits", "exact", 1024, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=1G")
    racers = [service.start("limits", "race", 1024, 300, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=1G") for _ in range(2)]
    for racer in racers:
        wait_line(racer, "ready")
    said = [service.end(racer, 60).strip().splitlines()[-1:] for racer in racers]
    return {"exact": exact.strip().splitlines(), "race": said}


def terminate(service):
    """One of two clients is terminated; what each of them is told by its next call."""
    victim, other = service.start("view"), service.start("view")
    ready = [wait_line(client, "ready") for client in (victim, other)]
    server = service.control("get_server_list").split()[-1:]
    answer = service.control(f"terminate_client {server[0]} {victim.pid}") if server else "no server"
    said = []
    for client in (victim, other):
        try:
            said.append(client.communicate("\n", timeout=30)[0].strip().splitlines()[-1:])
        except subprocess.TimeoutExpired:
            client.kill()
            said.append(["TIMEOUT"])
    return {"ready": ready, "answer": answer, "victim": said[0], "other": said[1]}


def priority(service):
    """The wait of a normal client for a kernel of 50 us while another streams kernels of 0.5 ms that fill the card."""
    blocks = 2 if SIMULATED else 4224
    table = {"alone": service.run("priority", "wait", 500, 50).strip()}
    for name, level in (("beside a normal client, stream priority -3", "0"), ("beside one below normal, stream priority -3", "1")):
        hog = service.start("priority", "hog", blocks, 500, -3, CUDA_MPS_CLIENT_PRIORITY=level)
        if wait_line(hog, "ready"):
            table[name] = service.run("priority", "wait", 500, 50).strip()
        service.end(hog)
    return table


def set_share(service):
    client = service.start("shares", "where")
    pieces = []
    for percent in (None, *"12.5 50 100 25 50 12.5 66 33 40 75 80 90 20".split()):
        answer = ""
        if percent:
            done = subprocess.run([str(FOLDER / "cumux"), "set-share", str(client.pid), percent, "--json"], env=service.env, text=True, capture_output=True, timeout=30)
            answer = (done.stdout or done.stderr).strip()
            client.stdin.write("\n")
            client.stdin.flush()
        text = ""
        for line in client.stdout:
            text += line
            if line.startswith("ready"):
                break
        pieces.append({"percent": percent, "answer": answer, "seen": line_of(text, "multiprocessors"), "used": count(text)})
    service.end(client)
    return pieces


STEPS = {"percentages": percentages, "affinities": affinities, "caps": caps, "memory": memory, "terminate_client": terminate, "priority": priority}


def measure(mode):
    found = {}
    steps = STEPS if mode == "mps" else STEPS | {"set-share": set_share}
    for name, step in steps.items():
        begun = time.monotonic()
        if begun > END:
            found[name] = {"left out": "no time"}
            continue
        try:
            with Service(mode) as service:
                service.settle()
                found[name] = step(service)
        except (subprocess.SubprocessError, OSError, IndexError, KeyError, ValueError) as error:
            found[name] = {"failed": f"{type(error).__name__}: {error}"}
        print(f"{mode:6} {name:18} {time.monotonic() - begun:6.1f} s", file=sys.stderr)
    return found


def table(results):
    lines = [f"Limits on {DEVICE}, {date.today()}, commit {results['commit']}", "", "percent   recorded  " + "".join(f"{m + ' seen/used':>18}" for m in results["modes"])]
    different = 0
    for percent, recorded in zip(PERCENTAGES, RECORDED):
        cells = ""
        for mode in results["modes"]:
            row = results[mode]["percentages"].get(percent, {})
            cells += f"{row.get('seen')!s:>12}/{row.get('used')!s:<5}"
            different += mode == "cumux" and (row.get("seen") != recorded or (row.get("used") or 999) > recorded)
        lines.append(f"{percent:<10}{recorded:<10}{cells}")
    lines.append(f"rows of cumux that differ from the recording: {different}")
    for name in [*STEPS, "set-share"]:
        if name != "percentages":
            for mode in results["modes"]:
                if name in results[mode]:
                    lines += ["", f"{name}, {mode}:", json.dumps(results[mode][name], indent=1)]
    return "\n".join(lines) + "\n"


def main():
    modes = ["cumux"] if SIMULATED else ["mps", "cumux"]
    commit = (FOLDER / "commit").read_text().strip()
    results = {"commit": commit, "date": str(date.today()), "device": DEVICE, "modes": modes} | {mode: measure(mode) for mode in modes}
    OUT.with_suffix(".json").write_text(json.dumps(results, indent=1))
    OUT.with_suffix(".txt").write_text(table(results))
    print(table(results).split("\n\naffinities")[0])


if __name__ == "__main__":
    main()
