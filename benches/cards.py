"""What `benches/cards.sh run` runs: one daemon over all cards of a machine, NVIDIA's MPS, and programs alone. Standard library only; workers use PyTorch.

Each part stands alone: one that fails leaves its reason in the result and the log lines that explain it, and the next one is run. Every program has a time
limit, and everything ends within LIMIT seconds. DEVICE=sim:h200,sim:h200 in the environment runs cumux alone on software GPUs, to try the script.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from datetime import date
from pathlib import Path

if sys.argv[1:2] != ["--worker"]:
    FOLDER = Path(sys.argv[1]).resolve()
    OUT = Path(sys.argv[2])
    WANTED = sys.argv[3].split(",") if len(sys.argv) > 3 else None
DEVICE = os.environ.get("DEVICE", "all")
SIMULATED = DEVICE.startswith("sim:")
LIMIT = float(os.environ.get("LIMIT", 350))
OPTIONS = dict(option.split("=", 1) for option in os.environ.get("OPTIONS", "").split(";") if option)
BEGUN = time.monotonic()
END = BEGUN + LIMIT
# NVLink multicast stays off, whoever starts the program.
ALWAYS = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1", "PYTHONUNBUFFERED": "1"}
# Who sees one card alone has a server of that card.
PER_CARD = ("--per-card",)
# The class, and the errors that CUDA's documents allow its maker to be told.
CLASSES = {"store": (700,), "misaligned": (716,), "trap": (719,), "assert": (710,)}


class Service:
    """NVIDIA's MPS, cumux over all cards, or nothing, in private directories, ended afterwards."""

    def __init__(self, mode, device=DEVICE, words=(), **variables):
        self.mode, self.device, self.words = mode, device, words
        self.room = Path(tempfile.mkdtemp(prefix=mode))
        for name in ("pipe", "log"):
            (self.room / name).mkdir(mode=0o700)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "CUMUX_"))} | ALWAYS | {
            "CUDA_MPS_PIPE_DIRECTORY": "" if mode == "native" else str(self.room / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(self.room / "log")}
        if mode == "cumux":
            self.env["LD_LIBRARY_PATH"] = ":".join(filter(None, [str(FOLDER / "lib"), os.environ.get("LD_LIBRARY_PATH")]))
        self.env |= variables | (OPTIONS if mode == "cumux" else {})

    def command(self):
        return ["nvidia-cuda-mps-control"] if self.mode == "mps" else [str(FOLDER / "cumux"), "control"]

    def control(self, line, seconds=20):
        done = subprocess.run(self.command(), input=line + "\n", text=True, env=self.env, capture_output=True, timeout=seconds)
        return (done.stdout + done.stderr).strip()

    def status(self):
        done = subprocess.run([str(FOLDER / "cumux"), "status", "--json"], env=self.env, text=True, capture_output=True, timeout=20)
        return json.loads(done.stdout or "[]")

    def __enter__(self):
        if self.mode != "native":
            device = ["--device", self.device, *self.words] if self.mode == "cumux" else []
            # A daemon keeps what it inherits: it gets no pipe of ours.
            with open(self.room / "start", "w") as said:
                done = subprocess.run([*self.command(), *device, "-d"], env=self.env, stdin=subprocess.DEVNULL, stdout=said, stderr=said, timeout=60)
            if done.returncode:
                raise RuntimeError(f"the daemon does not start: {(self.room / 'start').read_text()[-500:]}")
        return self

    def settle(self):
        """Waits for the standby: another context that is being made takes time from everybody."""
        self.run("first_kernel", seconds=40)
        end = time.monotonic() + 15
        while self.mode == "cumux" and time.monotonic() < end and not any(server["standby"] for server in self.status()):
            time.sleep(0.1)

    def __exit__(self, *_):
        if self.mode != "native":
            try:
                self.control("quit -t 3", 20)
            except subprocess.TimeoutExpired:
                pass

    def start(self, *command, visible=None, **variables):
        env = self.env | variables | ({"CUDA_VISIBLE_DEVICES": visible} if visible is not None else {})
        return Program(command if "/" in str(command[0]) else [str(FOLDER / command[0]), *command[1:]], env)

    def run(self, *command, seconds=60, visible=None, **variables):
        return self.start(*command, visible=visible, **variables).finish(seconds)

    def log(self):
        """What the service has said."""
        files = sorted((self.room / "log").glob("*.log*"))
        return "".join(f"== {path.name}\n{path.read_text(errors='replace')}" for path in files)


class Program:
    """A program with its output in files: what it has said can be read at any time."""

    def __init__(self, command, env):
        self.files = [tempfile.TemporaryFile("w+") for _ in range(2)]
        self.process = subprocess.Popen([str(word) for word in command], env=env, stdin=subprocess.DEVNULL, stdout=self.files[0], stderr=self.files[1], start_new_session=True)

    def text(self, which=0):
        self.files[which].seek(0)
        return self.files[which].read()

    def wait_line(self, line, seconds=40):
        until = time.monotonic() + seconds
        while time.monotonic() < until and line + "\n" not in self.text():
            if self.process.poll() is not None:
                break
            time.sleep(0.005)
        return line + "\n" in self.text()

    def finish(self, seconds):
        """Its output, and its errors behind that; says so where it hangs."""
        hung = ""
        try:
            self.process.wait(timeout=max(0.1, min(seconds, END + 20 - time.monotonic())))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            hung = "\nHUNG"
        errors = self.text(1).strip()
        return self.text() + hung + (f"\nSTDERR {errors[:3000]}\n…\n{errors[-1500:]}" if errors else "")


def own(script, *words):
    return [sys.executable, __file__, "--worker", script, *words]


# ---- the parts


def machine(_):
    ask = lambda *command: subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.strip()
    return {"cards": ask("nvidia-smi", "--query-gpu=index,name,uuid,driver_version,compute_mode,memory.total", "--format=csv,noheader").splitlines(),
            "links": ask("nvidia-smi", "topo", "-m").splitlines()[:12], "processors": os.cpu_count()}


def answers(keep):
    """What the daemon knows of the cards, and how limits and visible devices of each hold."""
    found = {}
    with Service("cumux") as service:
        found["device_query before any server"] = service.control("device_query --csv").splitlines()
        begun = time.monotonic()
        found["first program"] = service.run("twocards", "info").splitlines()
        found["first program, s"] = round(time.monotonic() - begun, 2)
        for visible in ("1", "1,0", "0"):
            found[f"CUDA_VISIBLE_DEVICES={visible}"] = [line for line in service.run("twocards", "info", visible=visible).splitlines() if line.startswith("device")]
        uuid = next((row.split(",")[2] for row in found["device_query before any server"] if ",GPU-" in row), None)
        if uuid:
            found["by the beginning of a UUID"] = service.run("twocards", "info", visible=uuid.strip()[:12]).splitlines()[:2]
        found["limits 0=2G,1=3G"] = service.run("twocards", "info", CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=2G,1=3G").splitlines()
        found["percentage 25"] = service.run("twocards", "info", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="25").splitlines()
        beside = service.start("twocards", "steady", 4)
        beside.wait_line("ready")
        found["ps"] = service.control("ps").splitlines()
        found["get_device_client_list"] = service.control("get_device_client_list").splitlines()
        found["steady"] = beside.finish(30).strip().splitlines()[-1:]
        keep(service)
    if not SIMULATED:
        with Service("cumux", device="cuda:1,cuda:0") as service:
            found["--device cuda:1,cuda:0"] = service.run("twocards", "info").splitlines()
            keep(service)
        with Service("cumux", CUDA_VISIBLE_DEVICES="1") as service:
            found["daemon with CUDA_VISIBLE_DEVICES=1"] = service.run("twocards", "info", visible="0").splitlines()
            keep(service)
    return found


W1 = (8, 16, 256, 20000, 10, "2")


def rate(text):
    found = re.search(r"agg (\d+) kernels/s", text)
    return float(found[1]) if found else None


def both_cards(mode, keep, words=()):
    """W1 on one card, on both at once, and on the other one: kernels a second."""
    work = W1 if not SIMULATED else (2, 1, 32, 0, 10, "1")
    table = {}
    with Service(mode, words=words) as service:
        service.settle()
        for name, visible in (("card 0", ["0"]), ("both", ["0", "1"]), ("card 1", ["1"]), ("card 0 again", ["0"]), ("both again", ["0", "1"])):
            programs = [service.start("clients", *work, visible=card) for card in visible]
            texts = [program.finish(40) for program in programs]
            rates = [rate(text) for text in texts]
            table[name] = rates if all(rates) else {"failed": [text[-400:] for text in texts]}
        keep(service)
    good = lambda name: table[name] if isinstance(table[name], list) else [0]
    ones = [good("card 0")[0], good("card 0 again")[0]]
    table["both / one"] = round(max(sum(good("both")), sum(good("both again"))) / max(ones), 3) if max(ones) else None
    return table


def peers(mode, keep):
    with Service(mode) as service:
        text = service.run("twocards", "copy", 4 if SIMULATED else 256, 2 if SIMULATED else 20, seconds=90)
        keep(service)
    found = {f"{kind}{f' access {access}' if access else ''} {way}": float(number) for kind, access, way, number in re.findall(r"^(copy|read)(?: access (\d))? (?:from|by) (\d) GB/s ([\d.]+)", text, re.M)}
    found["wrong"] = sum(int(n) for n in re.findall(r"wrong (\d+)", text))
    found["call, us"] = re.findall(r"call access (\d) from (\d) us ([\d.]+)", text)
    if "error" in text or "HUNG" in text or "STDERR" in text or not re.search("read by 1", text):
        found["said"] = text[-800:]
    return found


def torch(mode, keep, script, *words, ranks=1, **variables):
    # What a call is refused for is said on standard error.
    variables = {"NCCL_DEBUG": "WARN"} | ({"CUMUX_VERBOSE": "1"} if mode == "cumux" else {}) | variables
    with Service(mode) as service:
        port = str(20000 + os.getpid() % 20000 + int(time.monotonic()) % 1000)
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks)} | variables
        seconds = 45
        programs = [service.start(*own(script, *words), RANK=str(rank), LOCAL_RANK=str(rank), **shared) for rank in range(ranks)]
        texts = [program.finish(seconds) for program in programs]
        keep(service)
    results = [json.loads(line[7:]) for text in texts for line in text.splitlines() if line.startswith("RESULT ")]
    if len(results) == ranks:
        return results[0]
    told = [line[:300] for text in texts for line in text.splitlines() if line.startswith("cumux:") or "NCCL WARN" in line]
    return {"failed": [text[-700:] for text in texts], "told": told[:24]}


def nccl(keep):
    """All-reduce over both cards inside one process."""
    modes = ["native", "cumux"] if not SIMULATED else ["cumux"]
    return {mode: torch(mode, keep, "allreduce") for mode in modes}


def ddp(keep):
    """DistributedDataParallel with two ranks for 20 steps: the losses."""
    table = {"native": torch("native", keep, "ddp", ranks=2)}
    table["cumux"] = torch("cumux", keep, "ddp", ranks=2)
    if "failed" in table["cumux"]:
        # Without memory of the other process: what travels through the host.
        table["cumux, NCCL_P2P_DISABLE=1"] = torch("cumux", keep, "ddp", ranks=2, NCCL_P2P_DISABLE="1", NCCL_DEBUG="WARN")
    losses = table["native"].get("losses")
    for mode, result in table.items():
        if losses and "losses" in result:
            result["equal"] = result["losses"] == losses
            result["largest difference"] = max(abs(a - b) for a, b in zip(result["losses"], losses))
    return table


def fault_example(mode, keep, kinds, with_d, words=()):
    """A on card 0 makes a fault; B works on 0 and 1, C on 1; D on card 1 in one kernel of seconds. Who was hurt."""
    table = {"faults": 0, "told": 0, "hurt": [], "longest pause, ms": {}, "culprits": []}
    seconds = 2.5 + 2.2 * len(kinds)
    with Service(mode, words=words) as service:
        service.settle()
        programs = {
            "B, cards 0 and 1": service.start("twocards", "steady", seconds), "C, card 1": service.start("steady", "vector", seconds, visible="1"),
            "C2, card 1, streams": service.start("steady", "streams", seconds, visible="1"), "E, card 0": service.start("steady", "vector", seconds, visible="0"),
        }
        if with_d:
            programs["D, card 1, one kernel of 8 s"] = service.start("twocards", "long", 8, visible="1")
        ready = {name: program.wait_line("running" if "one kernel" in name else "ready", 30) for name, program in programs.items()}
        for kind in kinds:
            time.sleep(1.0)
            out = service.run("culprit", kind, seconds=30, visible="0")
            told = re.search(r"told \S+ (\d+)", out)
            table["faults"] += 1
            table["told"] += bool(told and int(told[1]) in CLASSES[kind])
            table["culprits"].append(f"{kind}: {out.strip().splitlines()[-1][:120] if out.strip() else 'silent'}")
            time.sleep(0.8)
        for name, program in programs.items():
            said = program.finish(25)
            last = [line for line in said.splitlines() if line.startswith(("right", "WRONG", "error"))][-1:]
            found = re.match(r"right \S+ rounds (\d+) longest ([\d.]+)", last[0] if last else "")
            if found and ready[name]:
                table["longest pause, ms"][name] = float(found[2])
            else:
                table["hurt"].append(f"{name}: {last[0] if last else said[-300:]}")
        log = service.log()
        table["takeovers, ms"] = re.findall(r"has taken over as generation \d+ after ([\d.]+) ms", log)[:20]
        table["verdicts"] = [line[-260:] for line in log.splitlines() if "to be torn down" in line or "Client {PID" in line and "encountered" in line][:16]
        if table["hurt"] or table["told"] < table["faults"]:
            keep(service, always=True)
        else:
            keep(service)
    table["count hurt"] = len(table["hurt"])
    return table


def faults(keep):
    kinds = ["store", "trap", "misaligned", "assert"] if not SIMULATED else ["store"]
    table = {"cumux": fault_example("cumux", keep, kinds, False)}
    table["cumux, with D"] = fault_example("cumux", keep, kinds[:2], True)
    table["cumux --per-card"] = fault_example("cumux", keep, kinds[:2], True, PER_CARD)
    return table


def faults_mps(keep):
    # MPS ends after a fault what it served: one fault each.
    return {kind: fault_example("mps", keep, [kind], kind == "store") for kind in ("store", "trap")}


def contract(keep):
    """The device contract on the second card, if its tests are in the folder."""
    program = FOLDER / "card"
    if not program.exists():
        return {"left out": "no test program in the folder"}
    names = [line[:-6] for line in subprocess.run([program, "--list"], capture_output=True, text=True, timeout=20).stdout.splitlines() if line.endswith(": test")]
    table = {"passed": 0, "failed": {}}
    for name in names:
        if time.monotonic() > END - 10:
            table["left out"] = len(names) - table["passed"] - len(table["failed"])
            break
        env = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "CUMUX_"))} | ALWAYS | {"CUMUX_TEST_CUDA": "cuda:1"}
        try:
            done = subprocess.run([program, "--exact", name], env=env, capture_output=True, text=True, timeout=40)
            good, said = done.returncode == 0, done.stdout + done.stderr
        except subprocess.TimeoutExpired:
            good, said = False, "HUNG"
        table["passed"] += good
        if not good:
            table["failed"][name] = said[-400:]
    return table


def start_of_cards(keep):
    """From the start of the daemon to the end of the first program, with one card and with all."""
    table = {}
    for name, device in (("one", "sim:h200" if SIMULATED else "cuda:0"), ("all", DEVICE)):
        times = []
        for _ in range(2):
            begun = time.monotonic()
            with Service("cumux", device=device) as service:
                service.run("first_kernel")
                times.append(round(time.monotonic() - begun, 2))
                keep(service)
        table[name] = times
    return table


PARTS = {
    "machine": machine, "answers": answers, "peers, native": lambda keep: peers("native", keep), "peers, cumux": lambda keep: peers("cumux", keep),
    "faults, cumux": faults, "W1, cumux": lambda keep: both_cards("cumux", keep), "W1, cumux --per-card": lambda keep: both_cards("cumux", keep, PER_CARD), "NCCL": nccl, "DDP": ddp, "start": start_of_cards,
    "W1, native": lambda keep: both_cards("native", keep), "W1, MPS": lambda keep: both_cards("mps", keep), "faults, MPS": faults_mps, "contract on cuda:1": contract,
}
ALONE = ("machine", "peers, native", "W1, native", "W1, MPS", "faults, MPS", "contract on cuda:1")


def targets(results):
    """What is wanted of the result: name, value, wanted, met."""
    get = lambda *keys: __import__("functools").reduce(lambda found, key: found.get(key) if isinstance(found, dict) else None, keys, results)
    rows = []

    def row(name, value, wanted, met):
        rows.append({"name": name, "value": value, "wanted": wanted, "met": bool(met)})

    ratio = get("W1, cumux", "both / one")
    row("W1 on both cards / on one", ratio, "at least 1.95", ratio and ratio >= 1.95)
    ratio = get("W1, cumux --per-card", "both / one")
    row("W1 on both cards / on one, --per-card", ratio, "at least 1.95", ratio and ratio >= 1.95)
    for key in ("copy access 1 0", "copy access 1 1", "read 0", "read 1", "copy access 0 0"):
        ours, alone = get("peers, cumux", key), get("peers, native", key)
        value = round(ours / alone, 3) if ours and alone else None
        row(f"{key}, cumux / alone", value, "at least 0.95", value and value >= 0.95)
    row("wrong bytes in copies between cards", get("peers, cumux", "wrong"), 0, get("peers, cumux", "wrong") == 0)
    for example in ("cumux", "cumux, with D", "cumux --per-card"):
        row(f"innocents hurt, {example}", get("faults, cumux", example, "count hurt"), 0, get("faults, cumux", example, "count hurt") == 0)
        row(f"culprits told, {example}", get("faults, cumux", example, "told"), get("faults, cumux", example, "faults"), get("faults, cumux", example, "told") == get("faults, cumux", example, "faults"))
    row("NCCL inside one process", get("NCCL", "cumux", "right"), True, get("NCCL", "cumux", "right"))
    row("DDP, losses equal", get("DDP", "cumux", "equal"), True, get("DDP", "cumux", "equal"))
    return rows


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    commit = (FOLDER / "commit").read_text().strip() if (FOLDER / "commit").exists() else "unknown"
    results = {"date": str(date.today()), "commit": commit, "device": DEVICE}
    logs = OUT / "cards.log"
    logs.write_text("")

    def write():
        results["targets"] = targets(results)
        (OUT / "cards.json").write_text(json.dumps(results, indent=1))
        lines = [f"Several cards in one daemon, {DEVICE}, {results['date']}, commit {commit}", ""]
        lines += [f"{'met ' if t['met'] else 'OPEN'} {t['name']:<44} {t['value']} (wanted: {t['wanted']})" for t in results["targets"]]
        for name in PARTS:
            if name in results:
                lines += ["", name, json.dumps(results[name], indent=1)]
        (OUT / "cards.txt").write_text("\n".join(lines) + "\n")

    for name, part in PARTS.items():
        if (WANTED and not any(word in name for word in WANTED)) or (SIMULATED and name in ALONE):
            continue
        begun = time.monotonic()
        if begun > END - 12:
            results[name] = {"left out": "no time"}
            continue

        def keep(service, always=False):
            """Keeps what the service has said of something unusual."""
            log = service.log()
            odd = [line for line in log.splitlines() if re.search(r"error|cannot|could not|panick|refus|device is lost|another card|broken|takes? over|taken over|WARN|fault", line, re.I)]
            always = always or bool(OPTIONS)
            if always or odd:
                with open(logs, "a") as file:
                    file.write(f"\n==== {name}, {service.mode}, {service.device}\n" + "\n".join(line[:400] for line in (log.splitlines()[-400:] if always else odd[-60:])) + "\n")

        try:
            results[name] = part(keep)
        except Exception:  # whatever it is, the other parts are worth having
            results[name] = {"failed": traceback.format_exc()[-1500:]}
        print(f"{name:22} {time.monotonic() - begun:6.1f} s", file=sys.stderr, flush=True)
        write()
    write()
    print((OUT / "cards.txt").read_text().split("\n\nmachine")[0])


# ---- workers with PyTorch


def work_allreduce():
    import torch
    import torch.cuda.nccl
    count = torch.cuda.device_count()
    tensors = [torch.full((1 << 22,), float(d + 1), device=f"cuda:{d}") for d in range(count)]
    torch.cuda.nccl.all_reduce(tensors)
    for d in range(count):
        torch.cuda.synchronize(d)
    wanted = count * (count + 1) / 2
    right = all(bool((t == wanted).all()) for t in tensors)
    large = [torch.ones(1 << 26, device=f"cuda:{d}") for d in range(count)]
    for _ in range(3):
        torch.cuda.nccl.all_reduce(large)
    [torch.cuda.synchronize(d) for d in range(count)]
    begun = time.time()
    for _ in range(10):
        torch.cuda.nccl.all_reduce(large)
    [torch.cuda.synchronize(d) for d in range(count)]
    took = (time.time() - begun) / 10
    x = torch.arange(1 << 20, device="cuda:0")
    moved = bool((x.to("cuda:1").to("cuda:0") == x).all())
    print("RESULT " + json.dumps({"right": right and moved, "cards": count, "GB/s": round(large[0].nbytes / took / 1e9, 1), "nccl": ".".join(map(str, torch.cuda.nccl.version()))}))


def work_ddp():
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    torch.manual_seed(7)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10)).cuda()
    model = DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(100 + rank)
    losses = []
    begun = time.time()
    for _ in range(20):
        x = torch.randn(64, 256, generator=data).cuda()
        y = torch.randint(0, 10, (64,), generator=data).cuda()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(float(total) / 2)
    torch.cuda.synchronize()
    print("RESULT " + json.dumps({"losses": losses, "s": round(time.time() - begun, 2)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        {"allreduce": work_allreduce, "ddp": work_ddp}[sys.argv[2]]()
    else:
        main()
