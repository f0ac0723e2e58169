"""Nobody suffers from a neighbour: programs of many kinds, each checking itself, beside clients that fault, are killed, or never end.

tests/gpu/faults.py FOLDER OUT.json [--faults N] [--classes A,B,...] [--copies N] [--mps-faults N] [--gap S] [--extremes N]
                    [--endless] [--endless-rounds N] [--executor-kills N]

FOLDER holds cumux, lib/libcuda.so.1, steady and culprit (tests/gpu/faults.sh packs it). Standard library only. Prints a table, writes OUT.json with
`targets`, and ends with status 0 if all are met. DEVICE is the device of cumux (cuda:0).
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

KINDS = "vector reduce stencil atomics graph streams copies sets constant variable printf tiny long_kernel longer_kernel".split()
# The class, and the errors that CUDA's documents allow its maker to be told.
CLASSES = {"store": (700,), "load": (700,), "atomic": (700,), "null": (700,), "misaligned": (716,), "trap": (719,), "assert": (710,), "stack": (700, 719, 714), "shared": (700, 717), "invalid_pc": (718, 700, 719, 715), "illegal": (715,), "many": (700,), "many_traps": (719,), "storm": (700,)}
# A thousand blocks that fault, or threads that do so over and over: measured apart from the others.
EXTREMES = ("many", "many_traps", "storm")

arguments = argparse.ArgumentParser()
arguments.add_argument("folder", type=Path)
arguments.add_argument("out", type=Path)
arguments.add_argument("--faults", type=int, default=200)
arguments.add_argument("--mps-faults", type=int, default=10)
arguments.add_argument("--copies", type=int, default=1, help="of each kind of innocent")
arguments.add_argument("--classes", default=",".join([*(name for name in CLASSES if name not in EXTREMES), "kill"]))
arguments.add_argument("--extremes", type=int, default=0, help=f"so many faults of {', '.join(EXTREMES)}, in a daemon of their own")
arguments.add_argument("--kinds", default=",".join(KINDS))
arguments.add_argument("--gap", type=float, default=1.5, help="seconds from one fault to the next, on average")
arguments.add_argument("--seed", type=int, default=1)
arguments.add_argument("--limit", type=float, default=480, help="seconds for everything")
arguments.add_argument("--executor-kills", type=int, default=0, help="SIGKILLs of the serving executor, with eight programs at work")
arguments.add_argument("--endless", action="store_true", help="also programs beside a kernel that does not end")
arguments.add_argument("--endless-rounds", type=int, default=0, help="so many short rounds of that, each with a daemon of its own and newcomers at another moment; "
                       "where a program hangs, OUT-hang-N.txt has all that can be seen of the processes")
options = arguments.parse_args()
folder = options.folder.resolve()
chance = random.Random(options.seed)
END = time.monotonic() + options.limit


class Program:
    """One of our programs, with its output in files: what it has said can be read at any time, and nothing is lost between two readers."""

    def __init__(self, env, command):
        self.files = [tempfile.TemporaryFile("w+") for _ in range(2)]
        self.process = subprocess.Popen(command, env=env, stdout=self.files[0], stderr=self.files[1])

    def text(self, which=0):
        self.files[which].seek(0)
        return self.files[which].read()

    def is_ready(self, seconds=60):
        """Waits for its first line."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if "\n" in self.text():
                return self.text().startswith("ready\n")
            if self.process.poll() is not None:
                break
            time.sleep(0.002)
        return self.text().startswith("ready\n")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Service:
    def __init__(self, mode):
        self.mode, self.room = mode, Path(tempfile.mkdtemp(prefix=mode))
        for name in ("pipe", "log"):
            (self.room / name).mkdir(mode=0o700)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "CUMUX_"))} | {
            "CUDA_MPS_PIPE_DIRECTORY": "" if mode == "native" else str(self.room / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(self.room / "log")}
        if mode == "cumux":
            self.env["LD_LIBRARY_PATH"] = str(folder / "lib")
        self.env |= {k: v for k, v in os.environ.items() if k.startswith("CUMUX_") and mode == "cumux"}

    def control(self, *more, text=None):
        command = ["nvidia-cuda-mps-control"] if self.mode == "mps" else [str(folder / "cumux"), "control"]
        return subprocess.run(command + list(more), input=text, text=True, env=self.env, capture_output=True, timeout=60)

    def __enter__(self):
        if self.mode == "native":
            return self
        # A daemon keeps what it inherits: it gets no pipe of ours.
        command = ["nvidia-cuda-mps-control", "-d"] if self.mode == "mps" else [str(folder / "cumux"), "control", "--device", os.environ.get("DEVICE", "cuda:0"), "-d"]
        subprocess.run(command, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60, check=True)
        return self

    def __exit__(self, *_):
        if self.mode == "native":
            return
        try:
            self.control(text="quit -t 2\n")
        except subprocess.TimeoutExpired:
            pass

    def start(self, program, *words):
        return Program(self.env, [str(folder / program), *map(str, words)])

    def log(self):
        """What the service has said. The server's lines are in control.log, too, so server.log is not read."""
        return "".join(path.read_text(errors="replace") for path in sorted((self.room / "log").glob("control.log*"), reverse=True))


def finish(process, seconds):
    """Its output and errors; None for a program that hangs."""
    try:
        process.process.wait(timeout=seconds)
        return process.text(), process.text(1)
    except subprocess.TimeoutExpired:
        process.kill()
        return None, process.text(1)


def innocents(service, seconds):
    started = [(kind, service.start("steady", kind, seconds)) for kind in options.kinds.split(",") for _ in range(options.copies)]
    patience = 60
    for kind, process in started:
        if not process.is_ready(patience):
            print(f"  {kind} did not start: {process.text()[-200:].strip()} {process.text(1)[-300:]}", flush=True)
            # The others have had their time.
            patience = 1
    return started


def judge(started, seconds, table, after=None):
    """`after`: the class of the last fault, if it is known."""
    for kind, process in started:
        out, errors = finish(process, max(5, seconds - time.monotonic()))
        last = (out or "").strip().splitlines()[-1:] or [""]
        found = re.match(r"right \S+ rounds (\d+) longest ([\d.]+) pauses ?([\d.,]*)", last[0])
        table["innocents"] += 1
        if found:
            table["rounds"] += int(found[1])
            table["longest"].append(float(found[2]))
            table["pauses"] += [float(x) for x in found[3].split(",") if x and not last[0].startswith("right longer_kernel")]
        else:
            key = "hung" if out is None else "wrong" if last[0].startswith("WRONG") else "hurt"
            table[key] += 1
            if after:
                table["hurt_by"][after] = table["hurt_by"].get(after, 0) + 1
            table["stories"].append(f"{kind}: {'hung' if out is None else last[0] or 'no output'} {f'(after {after}) ' if after else ''}{errors.strip()[-300:]}")


def replace_ended(service, started, until, table, after):
    """Who has ended is judged, and another one of its kind starts: the next fault has as many beside it."""
    for at, (kind, process) in enumerate(started):
        if process.process.poll() is not None and time.monotonic() < until - 3:
            judge([(kind, process)], 0, table, after)
            started[at] = (kind, service.start("steady", kind, until - time.monotonic()))


def misbehave(service, kind, table):
    """One fault. The culprit has to be told an error of its class, and nothing else counts as told."""
    if kind in ("kill", "endless"):
        process = service.start("steady", "long_kernel", 60) if kind == "kill" else service.start("culprit", "endless")
        process.is_ready()
        time.sleep(chance.uniform(0.01, 0.3) if kind == "kill" else 2.0)
        process.kill()
        table["faults"][kind] = table["faults"].get(kind, 0) + 1
        return
    process = service.start("culprit", kind)
    begun = time.monotonic()
    out, errors = finish(process, 30)
    table["faults"][kind] = table["faults"].get(kind, 0) + 1
    found = re.search(r"told \S+ (\d+) (\S+)", out or "")
    if found and int(found[1]) in CLASSES[kind]:
        table["told"] += 1
    else:
        table["untold"] += 1
        table["stories"].append(f"culprit {kind}: {(out or 'hung').strip()[-200:]} {errors.strip()[-300:]}")
    table["told_ms"].append((time.monotonic() - begun) * 1e3)
    if kind == "assert" and "Assertion `x == 0` failed" not in errors and "Assertion `x==0` failed" not in errors + (out or ""):
        table["stories"].append("the assertion's text did not reach its client")


def fresh():
    return {"innocents": 0, "rounds": 0, "hurt": 0, "wrong": 0, "hung": 0, "hurt_by": {}, "told": 0, "untold": 0, "faults": {}, "longest": [], "pauses": [], "told_ms": [], "stories": []}


def run_cumux(table, faults, kinds, suffix=""):
    with Service("cumux") as service:
        seconds = min(faults * (options.gap + (3 if suffix else 0.6)) + 5, END - time.monotonic() - 25)
        started = innocents(service, seconds)
        until = time.monotonic() + seconds
        for number in range(faults):
            if time.monotonic() > until - 6:
                break
            kind = kinds[number % len(kinds)] if number < len(kinds) or suffix else chance.choice(kinds)
            misbehave(service, kind, table)
            time.sleep(chance.uniform(0.3, 1.7) * options.gap)
            replace_ended(service, started, until, table, kind)
        judge(started, until + 20, table)
        log = service.log()
        takeovers = [float(x) for x in re.findall(r"has taken over as generation \d+ after ([\d.]+) ms", log)]
        table["takeover_ms"] = takeovers
        table["rules"] = {rule: len(re.findall(text, log)) for rule, text in {
            "code": "the core dump names the kernel$|the core dump names the kernel\\b(?!, and)", "code and stillness": "the core dump names the kernel, and",
            "stillness": "its stream alone stood still", "unfinished": "all other clients' work was completed", "cannot tell": "the card does not say whose kernel"}.items()}
        (options.out.parent / (options.out.stem + suffix + ".log")).write_text(log[-3_000_000:])
        (options.out.parent / (options.out.stem + suffix + "-server.log")).write_text((service.room / "log" / "server.log").read_text(errors="replace")[-3_000_000:])


def run_mps(table):
    kinds = [kind for kind in options.classes.split(",") if kind in CLASSES or kind == "kill"]
    for number in range(options.mps_faults):
        if time.monotonic() > END - 20:
            break
        with Service("mps") as service:
            started = innocents(service, 3)
            misbehave(service, kinds[number % len(kinds)], table)
            judge(started, time.monotonic() + 15, table)


def run_endless(mode, table):
    """Small programs beside a kernel that does not end: some run already, others start beside it. How long each takes from start to end."""
    with Service(mode) as service:
        early = innocents(service, 15)
        culprit = service.start("culprit", "endless")
        culprit.is_ready()
        time.sleep(0.5)
        begun = time.monotonic()
        late = innocents(service, 3)
        table["late_ready_s"] = round(time.monotonic() - begun, 2)
        judge(late, time.monotonic() + 30, table)
        table["late_done_s"] = round(time.monotonic() - begun, 2)
        culprit.kill()
        judge(early, time.monotonic() + 30, table)
        again = innocents(service, 3)
        judge(again, time.monotonic() + 30, table)
        table["faults"]["endless"] = 1
        if mode == "cumux":
            (options.out.parent / (options.out.stem + "-endless.log")).write_text(service.log()[-300_000:])


# When newcomers start, in seconds after the kernel that does not end.
MOMENTS = (0.5, 0.0, 0.2, 0.05)


def look_at(service, what, number):
    """Writes down what the processes do: for whoever has to find out why a program hangs."""
    text = [what]
    try:
        text.append(subprocess.run([str(folder / "cumux"), "status", "--json"], env=service.env, capture_output=True, text=True, timeout=10).stdout)
    except subprocess.TimeoutExpired:
        text.append("the daemon does not answer")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if "cumux" not in command and str(folder) not in command:
                continue
            text.append(f"== {process.name} {command}")
            for task in sorted((process / "task").glob("*")):
                text.append("  ".join([task.name, *((task / name).read_text(errors="replace").strip() for name in ("comm", "wchan", "syscall"))]))
            if shutil.which("cuda-gdb") and " executor " in f" {command}":
                text.append(subprocess.run(["cuda-gdb", "-batch", "-p", process.name, "-ex", "thread apply all backtrace 16", "-ex", "info cuda kernels", "-ex", "info cuda sms"],
                                           stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60).stdout)
        except (OSError, subprocess.TimeoutExpired) as error:
            text.append(str(error))
    for name in ("control.log", "server.log"):
        for path in sorted((service.room / "log").glob(name + "*"), reverse=True):
            text.append(f"== {path.name}\n" + path.read_text(errors="replace")[-60_000:])
    (options.out.parent / f"{options.out.stem}-hang-{number}.txt").write_text("\n".join(text))


def run_endless_rounds(table):
    """Early programs, a kernel that does not end, newcomers: again and again. Nobody may need longer than twelve seconds to be ready."""
    os.environ.setdefault("CUMUX_LOG", "debug")
    hangs = 0
    for number in range(options.endless_rounds):
        if time.monotonic() > END - 40 or hangs == 3:
            break
        with Service("cumux") as service:
            programs, why = [], None

            def start(kinds, seconds):
                started = [(kind, service.start("steady", kind, seconds)) for kind in kinds]
                programs.extend(started)
                until = time.monotonic() + 12
                return next((kind for kind, process in started if not process.is_ready(max(0.1, until - time.monotonic()))), None)

            late = start(options.kinds.split(","), 3)
            why = f"{late}, which was there before, is not ready" if late else None
            culprit = service.start("culprit", "endless")
            if not why and not culprit.is_ready(12):
                why = "the program with the kernel that does not end is not ready"
            if not why:
                time.sleep(MOMENTS[number % len(MOMENTS)])
                late = start(options.kinds.split(","), 1.5)
                why = f"{late}, a newcomer, is not ready" if late else None
            if why:
                hangs += 1
                table["stories"].append(f"round {number}: {why}")
                look_at(service, why, number)
                table["hung"] += 1
            else:
                until = time.monotonic() + 10
                while time.monotonic() < until and any(process.process.poll() is None for _, process in programs):
                    time.sleep(0.01)
                if any(process.process.poll() is None for _, process in programs):
                    hangs += 1
                    look_at(service, f"round {number}: still at work: {[kind for kind, process in programs if process.process.poll() is None]}", number)
                before = table["wrong"] + table["hurt"]
                judge(programs, time.monotonic() + 1, table)
                if table["wrong"] + table["hurt"] > before:
                    look_at(service, f"round {number}: {table['stories'][-1]}", number)
            culprit.kill()
            for _, process in programs:
                if process.process.poll() is None:
                    process.kill()
        table["faults"]["endless"] = table["faults"].get("endless", 0) + 1


def executor_of(service, other_than=None, seconds=30):
    """The executor that serves, once it is another one than the one named and the next one stands by; None if that takes too long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            said = subprocess.run([str(folder / "cumux"), "status", "--json"], env=service.env, capture_output=True, text=True, timeout=30).stdout
        except subprocess.TimeoutExpired:
            return None
        servers = json.loads(said) if said.strip().startswith("[") else []
        if servers and servers[0]["executor"] not in (0, other_than) and servers[0]["standby"]:
            return servers[0]["executor"]
        time.sleep(0.02)
    return None


def run_executor_kills(table):
    """The serving executor is killed from outside, again and again. Whoever had a kernel on the card may be told an error (decision 0111) and is
    started again; nobody gets a wrong result, and nobody waits for ever."""
    kinds = "vector reduce stencil graph streams copies tiny variable".split()
    table |= {"told_an_error": 0, "kills": 0, "unharmed": 0, "at_work": []}
    kills = []

    def settle(kind, process, seconds):
        out, errors = finish(process, seconds)
        last = (out or "").strip().splitlines()[-1:] or [""]
        found = re.match(r"right \S+ rounds (\d+)", last[0])
        table["innocents"] += 1
        if found:
            table["rounds"] += int(found[1])
            table["unharmed"] += 1
        elif re.match(r"error \S+ 719 ", last[0]):
            table["told_an_error"] += 1
        else:
            table["hung" if out is None else "wrong" if last[0].startswith("WRONG") else "hurt"] += 1
            table["stories"].append(f"{kind}: {'hung' if out is None else last[0] or 'no output'} {errors.strip()[-300:]}")

    with Service("cumux") as service:
        started = [(kind, service.start("steady", kind, 6)) for kind in kinds]
        for _, process in started:
            process.is_ready()
        executor = executor_of(service)
        while table["kills"] < options.executor_kills and executor and time.monotonic() < END - 15:
            # A server whose executors end five times within ten seconds gives up, and rightly so.
            recent = [at for at in kills[-4:] if at > time.monotonic() - 10.3]
            time.sleep(recent[0] + 10.3 - time.monotonic() if len(recent) == 4 else 0)
            # Who has ended is judged and starts anew, so that eight are at work at each kill.
            for at, (kind, process) in enumerate(started):
                if process.process.poll() is not None:
                    settle(kind, process, 1)
                    started[at] = (kind, service.start("steady", kind, 6))
                    started[at][1].is_ready()
            time.sleep(chance.uniform(0.0, 1.0))
            table["at_work"].append(sum(process.process.poll() is None for _, process in started))
            try:
                os.kill(executor, signal.SIGKILL)
                kills.append(time.monotonic())
                table["kills"] += 1
            except ProcessLookupError:
                table["stories"].append(f"executor {executor} had gone before it was killed")
            executor = executor_of(service, other_than=executor)
        if not executor:
            table["hung"] += 1
            table["stories"].append(f"no executor within 30 s after kill {table['kills']}")
        for kind, process in started:
            settle(kind, process, 30)
        (options.out.parent / (options.out.stem + "-kills.log")).write_text(service.log()[-2_000_000:])


def quantile(values, q):
    return round(sorted(values)[min(len(values) - 1, int(q * len(values)))], 1) if values else None


def main():
    tables = {}
    if options.faults:
        run_cumux(tables.setdefault("cumux", fresh()), options.faults, options.classes.split(","))
    if options.extremes:
        run_cumux(tables.setdefault("cumux, extremes", fresh()), options.extremes, EXTREMES, "-extremes")
    if options.endless:
        run_endless("cumux", tables.setdefault("cumux, endless", fresh()))
        run_endless("native", tables.setdefault("native, endless", fresh()))
    if options.endless_rounds:
        run_endless_rounds(tables.setdefault("cumux, endless, rounds", fresh()))
    if options.mps_faults:
        run_mps(tables.setdefault("mps", fresh()))
    if options.executor_kills:
        run_executor_kills(tables.setdefault("cumux, executor killed", fresh()))
    names = ("cumux", "cumux, endless", "cumux, endless, rounds", "cumux, executor killed", "cumux, extremes")
    ours, beside, rounds, killed, extremes = (tables.get(name, fresh()) for name in names)
    bad = {key: sum(table[key] for table in (ours, beside, rounds, killed, extremes)) for key in ("hurt", "wrong", "hung")}
    # A pause counts once for each innocent and fault. The kind with 20 ms kernels always waits a
    # little, so pauses up to 40 ms do not count, and none of the kind with 300 ms kernels.
    pauses = [pause for pause in ours["pauses"] if pause > 40]
    targets = [
        {"name": "innocents hurt", "value": bad["hurt"], "target": 0, "met": bad["hurt"] == 0},
        {"name": "wrong results", "value": bad["wrong"], "target": 0, "met": bad["wrong"] == 0},
        {"name": "hangs", "value": bad["hung"], "target": 0, "met": bad["hung"] == 0},
        {"name": "kills of the executor that were not made", "value": options.executor_kills - killed.get("kills", 0), "target": 0, "met": killed.get("kills", 0) >= options.executor_kills},
        {"name": "pause p50, ms", "value": quantile(pauses, 0.5), "target": 200, "met": not pauses or quantile(pauses, 0.5) <= 200},
        {"name": "pause p99, ms", "value": quantile(pauses, 0.99), "target": 500, "met": not pauses or quantile(pauses, 0.99) <= 500},
    ]
    told, untold = (ours[key] + extremes[key] for key in ("told", "untold"))
    if told + untold:
        targets.append({"name": "culprits told their error, share", "value": round(told / (told + untold), 3), "target": 0.95, "met": told >= 0.95 * (told + untold)})
    rules = ours.get("rules", {})
    if sum(rules.values()):
        alone = 1 - rules["cannot tell"] / sum(rules.values())
        targets.append({"name": "culprits named alone, share", "value": round(alone, 3), "target": 0.95, "met": alone >= 0.95})
    natively = tables.get("native, endless", {}).get("late_done_s")
    if natively and "late_done_s" in beside:
        ratio = beside["late_done_s"] / natively
        targets.append({"name": "programs beside an endless kernel, time / beside one of another process", "value": round(ratio, 2), "target": 3, "met": ratio <= 3})
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    driver = subprocess.run(query, capture_output=True, text=True).stdout.strip() if shutil.which(query[0]) else "no card"
    commit = (folder / "commit").read_text().strip() if (folder / "commit").exists() else "unknown"
    options.out.write_text(json.dumps({"date": str(date.today()), "commit": commit, "driver": driver, "targets": targets, "tables": tables}, indent=1))
    print(f"{driver}, commit {commit}, {date.today()}")
    for mode, table in tables.items():
        print(f"{mode}: {sum(table['faults'].values())} faults {table['faults']}; {table['innocents']} innocents, {table['rounds']} rounds checked: "
              f"{table['hurt']} hurt, {table['wrong']} wrong, {table['hung']} hung; culprits told {table['told']}, not told {table['untold']}"
              + (f", after {statistics.median(table['told_ms']):.0f} ms (median)" if table["told_ms"] else ""))
        if table["hurt_by"]:
            print(f"    hurt, by the class of the fault before: {table['hurt_by']}")
        if "kills" in table:
            print(f"    the serving executor was killed {table['kills']} times, with {min(table['at_work'], default=0)} to {max(table['at_work'], default=0)} programs at work; "
                  f"{table['unharmed']} programs noticed nothing, {table['told_an_error']} were told error 719")
        if "late_ready_s" in table:
            print(f"    programs started beside it: ready after {table['late_ready_s']} s, done after {table['late_done_s']} s (3 s of work)")
        for story in table["stories"][:30]:
            print("   ", story)
    if ours.get("takeover_ms"):
        print(f"takeovers: {len(ours['takeover_ms'])}, {quantile(ours['takeover_ms'], 0.5)} ms median, {max(ours['takeover_ms'])} ms most; decided by {ours['rules']}")
    for target in targets:
        print("met " if target["met"] else "OPEN", target["name"], target["value"], f"(at most {target['target']})" if "share" not in target["name"] else f"(at least {target['target']})")
    sys.exit(0 if all(target["met"] for target in targets) else 1)


main()
