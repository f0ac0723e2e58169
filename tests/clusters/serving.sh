#!/bin/bash
# Workers of FastAPI and uvicorn in two groups on a software GPU: serving.sh PYTHON CUMUX SCRIPTS FOLDER
set -eux
python=$1 cumux=$2 scripts=$3 folder=$4
"$python" -m venv "$folder/environment"
"$folder/environment/bin/pip" install --quiet --disable-pip-version-check --no-deps --requirement "$scripts/serving-requirements.txt"
"$cumux" install --prefix "$folder/cumux" >/dev/null
export PATH="$folder/cumux/bin:$folder/environment/bin:/usr/bin:/bin"
export CUMUX_DEVICE=sim:h200 CUDA_MPS_PIPE_DIRECTORY=$folder/pipe CUDA_MPS_LOG_DIRECTORY=$folder/log
mkdir -m 755 "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
cumux control -d
trap 'kill $(jobs -p) || true; echo quit -t 2 | cumux control || true' EXIT
# As docs/serving.md says it.
cumux group create web memory=1G
cumux group create batch memory=1G priority=1
serve() {
    CUDA_MPS_PIPE_DIRECTORY=$folder/pipe/groups/$1 LD_LIBRARY_PATH=$folder/cumux/lib/cumux \
        python -m uvicorn --app-dir "$scripts" serving_app:app --workers "$2" --port "$3" --log-level warning &
}
read -r first second <<<"$(python -c 'import socket; both = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]; print(*[one.getsockname()[1] for one in both])')"
serve web 4 "$first"
serve batch 2 "$second"
python - "$first" 4 "$second" 2 <<'END'
import concurrent.futures, json, sys, time, urllib.error, urllib.request

def ask(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return json.loads(answer.read())

def process(port):
    try:
        return ask(port, "/readyz")["process"]
    except OSError:
        return None

with concurrent.futures.ThreadPoolExecutor(16) as threads:
    for port, workers in zip(sys.argv[1::2], map(int, sys.argv[2::2])):
        ready = set()
        while len(ready) < workers:
            ready |= set(threads.map(process, [port] * 16)) - {None}
            time.sleep(0.1)
        # Any worker may answer; all of them have one limit and one model.
        for factor, found in enumerate(threads.map(lambda factor: ask(port, f"/scale?factor={factor}"), range(64))):
            assert found["numbers"] == [factor * number for number in range(64)], (factor, found)
        assert ask(port, "/card?grab=512")["total"] == 1 << 30
        try:
            ask(port, "/card?grab=1100")
            raise AssertionError("more memory than the group has was given")
        except urllib.error.HTTPError as refused:
            assert refused.code == 507 and b"CUresult 2" in refused.read(), refused
END
cumux group list --json | python -c '
import json, sys
groups = {group["name"]: (group["clients"], group["priority"]) for group in json.load(sys.stdin)["groups"]}
assert groups == {"web": (4, None), "batch": (2, 1)}, groups'
echo "workers of two services were served, each service within its group"
