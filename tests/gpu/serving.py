"""The service of docs/serving.md on a card: four workers of a small HTTP service with ResNet-50 in one group, two of another with a lower priority.

tests/gpu/serving.py FOLDER OUT.json      FOLDER as tests/gpu/faults.sh packs it; needs PyTorch and torchvision

The service runs without cumux first, then through it: the answers have to be the same. A client asks for readiness, then sends requests from eight threads, to the
first service alone and to both at once. Uses uvicorn and FastAPI where Python has them, otherwise the standard library's server, with the same functions behind it,
and says which. Ends within two minutes, whatever hangs. DEVICE=sim:h200 tries it on the software GPU.
"""

import http.client
import importlib.util
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from datetime import date
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

LIMIT = 112
DEVICE = os.environ.get("DEVICE", "cuda:0")
WEB, BATCH, THREADS, SECONDS, SEEDS = 4, 2, 8, 6.0, 16
MEMORY_GIB = 4
ASGI = importlib.util.find_spec("uvicorn") is not None and importlib.util.find_spec("fastapi") is not None


# ---- the service: one process of it


class Application:
    """What both servers call: a path and its arguments in, a status and an object out."""

    def __init__(self):
        self.ready = False
        self.one = threading.Lock()

    def load(self):
        import torch
        import torchvision

        self.torch = torch
        torch.manual_seed(1)
        self.model = torchvision.models.resnet50(weights=None).cuda().eval()
        for seed in range(5):
            self.classify(seed)
        self.ready = True

    def classify(self, seed):
        torch = self.torch
        # Made on the host: the same on every device.
        image = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(seed))
        with self.one, torch.no_grad():
            scores = self.model(image.cuda()).float().cpu()[0]
        best = scores.topk(5)
        return {"seed": seed, "classes": best.indices.tolist(), "scores": [round(value, 4) for value in best.values.tolist()]}

    def grab(self, mebibytes):
        """Asks for so much memory: whether it was refused."""
        try:
            self.torch.empty(mebibytes << 20, dtype=self.torch.uint8, device="cuda")
        except self.torch.cuda.OutOfMemoryError:
            return {"refused": True}
        return {"refused": False}

    def answer(self, path, words):
        if path == "/readyz":
            return 200 if self.ready else 503, {"ready": self.ready, "process": os.getpid()}
        if not self.ready:
            return 503, {"error": "not ready"}
        if path == "/classify":
            return 200, self.classify(int(words.get("seed", 0)))
        if path == "/card":
            return 200, {"total": self.torch.cuda.mem_get_info()[1], "name": self.torch.cuda.get_device_name()}
        if path == "/grab":
            return 200, self.grab(int(words["mebibytes"]))
        return 404, {"error": f"nothing at {path}"}


def serve(descriptor):
    """Serves on a socket that listens already and that the other workers share, as uvicorn's own workers do."""
    application = Application()
    listener = socket.socket(fileno=descriptor)
    # Readiness answers while the model loads.
    threading.Thread(target=load_or_end, args=(application,), daemon=True).start()
    if ASGI:
        serve_asgi(application, listener)
    else:
        serve_plainly(application, listener)


def load_or_end(application):
    try:
        application.load()
    except BaseException as error:  # a worker without a model is no worker
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)


def serve_asgi(application, listener):
    import uvicorn
    from fastapi import FastAPI, Request
    from fastapi.responses import JSONResponse

    app = FastAPI()

    @app.get("/{path}")
    def any_path(path: str, request: Request):
        status, found = application.answer(f"/{path}", dict(request.query_params))
        return JSONResponse(found, status_code=status)

    # Without `from __future__ import annotations`: FastAPI reads the types of the function.
    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listener])


def serve_plainly(application, listener):
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            url = urlsplit(self.path)
            status, found = application.answer(url.path, dict(parse_qsl(url.query)))
            body = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.serve_forever()


# ---- the test


BEGUN = time.monotonic()
STARTED = []
RESULT = {"date": str(date.today()), "device": DEVICE, "server": "uvicorn and FastAPI" if ASGI else "http.server of the standard library", "workers": {"web": WEB, "batch": BATCH}, "checks": []}


def check(name, met, measured=None):
    RESULT["checks"].append({"name": name, "met": bool(met), "measured": measured})
    print(f"{'met ' if met else 'OPEN'} {name}" + ("" if measured is None else f": {measured}"), flush=True)


class Web:
    """The workers of one service, on a port of their own."""

    def __init__(self, env, workers, room, name):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        self.errors = open(room / f"{name}.errors", "w+")
        self.begun = time.monotonic()
        self.workers = [
            subprocess.Popen([sys.executable, __file__, "--worker", str(self.listener.fileno())], env=env, pass_fds=[self.listener.fileno()], stdin=subprocess.DEVNULL, stdout=self.errors, stderr=self.errors, start_new_session=True)
            for _ in range(workers)]
        STARTED.extend(self.workers)

    def ask(self, path, timeout=20):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request("GET", path, headers={"Connection": "close"})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def wait_ready(self, seconds=50):
        """After how many seconds every worker has answered that it is ready; None if one does not."""
        ready, until = set(), time.monotonic() + seconds
        while len(ready) < len(self.workers) and time.monotonic() < until and all(worker.poll() is None for worker in self.workers):
            # Several at once: one connection after the other would reach the same worker again and again.
            herd = [threading.Thread(target=self.note, args=(ready,)) for _ in range(2 * len(self.workers))]
            for thread in herd:
                thread.start()
            for thread in herd:
                thread.join()
            time.sleep(0.05)
        return round(time.monotonic() - self.begun, 2) if len(ready) == len(self.workers) else None

    def note(self, ready):
        try:
            status, found = self.ask("/readyz", 5)
            if status == 200:
                ready.add(found["process"])
        except (OSError, ValueError, http.client.HTTPException):
            pass

    def end(self):
        for worker in self.workers:
            if worker.poll() is None:
                worker.terminate()
        until = time.monotonic() + 4
        for worker in self.workers:
            try:
                worker.wait(timeout=max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(worker.pid, signal.SIGKILL)
                worker.wait(timeout=5)
        self.listener.close()

    def why(self):
        self.errors.seek(0)
        return " | ".join(self.errors.read().strip().splitlines()[-5:])[-800:]


def load(services, expected, seconds=SECONDS):
    """Requests from THREADS threads to each service, for some seconds: rates, latencies and wrong answers of each."""
    tables = {name: {"latencies": [], "wrong": 0, "failed": 0} for name in services}
    until = time.monotonic() + seconds

    def client(name, web, seeds):
        mine = tables[name]
        while time.monotonic() < until:
            seed = seeds.randrange(SEEDS)
            begun = time.monotonic()
            try:
                status, found = web.ask(f"/classify?seed={seed}")
                mine["latencies"].append(time.monotonic() - begun)
                mine["wrong"] += status != 200 or not alike(found, expected[seed])
            except (OSError, ValueError, http.client.HTTPException):
                mine["failed"] += 1

    threads = [threading.Thread(target=client, args=(name, web, random.Random(number)), daemon=True) for name, web in services.items() for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 25)
    found = {}
    for name, table in tables.items():
        times = sorted(table["latencies"])
        found[name] = {"rate": round(len(times) / seconds, 1), "wrong": table["wrong"], "failed": table["failed"]}
        if times:
            found[name] |= {"p50_ms": round(statistics.median(times) * 1e3, 2), "p99_ms": round(times[int(len(times) * 0.99)] * 1e3, 2)}
    return found


def alike(ours, theirs):
    """The same classes, with scores that differ by rounding at most."""
    return ours.get("classes") == theirs["classes"] and all(abs(a - b) <= 2e-3 * max(1.0, abs(b)) for a, b in zip(ours["scores"], theirs["scores"]))


def environment(room, **variables):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "CUMUX_"))}
    return env | {"OMP_NUM_THREADS": "2", "CUDA_MPS_PIPE_DIRECTORY": str(room / "none"), "CUDA_MPS_LOG_DIRECTORY": str(room / "log")} | variables


def without(room):
    """The answers and the rate of four workers that take turns on the card."""
    web = Web(environment(room), WEB, room, "without")
    try:
        ready = web.wait_ready()
        if ready is None:
            raise RuntimeError(f"the service is not ready without cumux: {web.why()}")
        expected = {seed: web.ask(f"/classify?seed={seed}")[1] for seed in range(SEEDS)}
        again = {seed: web.ask(f"/classify?seed={seed}")[1] for seed in range(SEEDS)}
        check("without cumux, the same question has the same answer", all(alike(again[seed], expected[seed]) for seed in expected))
        RESULT["without"] = {"ready_s": ready, "web": load({"web": web}, expected)["web"]}
    finally:
        web.end()
    return expected


def through(room, folder, expected):
    cumux = str(folder / "cumux")
    service = environment(room, CUDA_MPS_PIPE_DIRECTORY=str(room / "pipe"))
    with open(room / "start", "w") as said:
        subprocess.run([cumux, "control", "--device", DEVICE, "-d"], env=service, stdin=subprocess.DEVNULL, stdout=said, stderr=said, timeout=40, check=True)
    services = []
    try:
        folders = {}
        for name, settings in (("web", [f"memory={MEMORY_GIB}G"]), ("batch", [f"memory={MEMORY_GIB}G", "priority=1"])):
            done = subprocess.run([cumux, "group", "create", name, *settings], env=service, text=True, capture_output=True, timeout=20, check=True)
            folders[name] = done.stdout.strip().splitlines()[-1]
        library = ":".join(filter(None, [str(folder / "lib"), os.environ.get("LD_LIBRARY_PATH")]))
        member = {name: environment(room, CUDA_MPS_PIPE_DIRECTORY=path, LD_LIBRARY_PATH=library) for name, path in folders.items()}
        web = Web(member["web"], WEB, room, "web")
        services.append(web)
        ready = web.wait_ready()
        check("four workers of the service are ready", ready is not None, ready if ready is not None else web.why())
        if ready is None:
            return
        answers = {seed: web.ask(f"/classify?seed={seed}")[1] for seed in range(SEEDS)}
        check("answers equal to those without cumux", all(alike(answers[seed], expected[seed]) for seed in expected))
        card = web.ask("/card")[1]
        check("a worker sees the group's memory as the card's", card["total"] == MEMORY_GIB << 30, card["total"])
        check("more memory than the group has is refused", web.ask(f"/grab?mebibytes={2 * MEMORY_GIB * 1024}")[1].get("refused"))
        RESULT["through"] = {"ready_s": ready, "web alone": load({"web": web}, expected)["web"]}
        batch = Web(member["batch"], BATCH, room, "batch")
        services.append(batch)
        ready = batch.wait_ready(30)
        check("two workers of the service below normal are ready", ready is not None, ready if ready is not None else batch.why())
        if ready is None:
            return
        RESULT["through"] |= load({"web": web, "batch": batch}, expected)
        groups = json.loads(subprocess.run([cumux, "group", "list", "--json"], env=service, text=True, capture_output=True, timeout=20, check=True).stdout)["groups"]
        RESULT["groups"] = {group["name"]: {"clients": group["clients"], "used": [memory["used"] for memory in group["memory"]], "priority": group["priority"]} for group in groups}
        check("the groups have these clients", {name: group["clients"] for name, group in RESULT["groups"].items()} == {"web": WEB, "batch": BATCH}, RESULT["groups"])
    finally:
        for one in services:
            one.end()
        try:
            subprocess.run([cumux, "control"], input="quit -t 2\n", text=True, env=service, timeout=15, stdout=subprocess.DEVNULL, check=False)
        except subprocess.TimeoutExpired:
            check("the daemon quits", False)


def finish(out):
    rows = {"without cumux": RESULT.get("without", {}).get("web"), "through cumux, alone": RESULT.get("through", {}).get("web alone"), "through cumux, beside batch": RESULT.get("through", {}).get("web"),
            "batch, below normal": RESULT.get("through", {}).get("batch")}
    for name, row in rows.items():
        if row:
            print(f"{name:<30} {row['rate']:>8} requests/s  p50 {row.get('p50_ms')} ms  p99 {row.get('p99_ms')} ms  wrong {row['wrong']}  failed {row['failed']}")
    measured = [row for row in rows.values() if row]
    check("every answer under load was right", len(measured) == 4 and not any(row["wrong"] or row["failed"] for row in measured))
    RESULT["took_s"] = round(time.monotonic() - BEGUN, 1)
    out.write_text(json.dumps(RESULT, indent=1))
    print(f"{RESULT['server']}, {RESULT.get('card', DEVICE)}, {RESULT['took_s']} s", flush=True)


def give_up(out):
    check(f"everything ends within {LIMIT} s", False)
    for worker in STARTED:
        if worker.poll() is None:
            os.killpg(worker.pid, signal.SIGKILL)
    finish(out)
    os._exit(1)


def main():
    folder, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    room = Path(tempfile.mkdtemp(prefix="serving"))
    for name in ("pipe", "log"):
        (room / name).mkdir(mode=0o700)
    last = threading.Timer(LIMIT, give_up, [out])
    last.daemon = True
    last.start()
    RESULT["commit"] = (folder / "commit").read_text().strip()
    if DEVICE.startswith("cuda"):
        RESULT["card"] = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True, timeout=20, check=False).stdout.strip()
    try:
        through(room, folder, without(room))
    except Exception as error:  # the result says what there was until then
        check("no step fails", False, f"{type(error).__name__}: {error}")
    last.cancel()
    finish(out)
    return 0 if all(one["met"] for one in RESULT["checks"]) else 1


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        serve(int(sys.argv[2]))
    else:
        sys.exit(main())
