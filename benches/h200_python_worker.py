"""One PyTorch process of benches/h200_python.py: loads a model, says that it is ready, and measures when it is told to.

h200_python_worker.py resnet|graph|gpt2|vllm|train

Its standard output carries lines that begin with "@" and hold one JSON object each; its standard input carries one JSON object a line. The first line out
comes after the first pass, the second one when the model is warm. Each order {"seconds": S} runs the model for S seconds, passes one after the other as the serving example of the
measurements does; {"every": [A, B]} instead sends requests A to B seconds after each other, whether or not the one before has ended; {"ends": true} adds
when each pass ended, on the machine's clock. The end of the input ends the process.
"""

import hashlib
import json
import random
import sys
import time
from pathlib import Path

TOKENS = 48


def say(**words):
    print("@" + json.dumps(words), flush=True)


def resnet(torch):
    import torchvision

    torch.manual_seed(1)
    model = torchvision.models.resnet50(weights=None).cuda().eval()
    x = torch.randn(1, 3, 224, 224).cuda()
    return lambda: model(x), 1


def graph(torch):
    """The same pass, captured once and launched again."""
    run, units = resnet(torch)
    run()
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        result = run()

    def replay():
        captured.replay()
        return result

    return replay, units


def gpt2(torch):
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(1)
    # Without a token that ends a text every pass is as long as the others.
    model = GPT2LMHeadModel(GPT2Config(bos_token_id=None, eos_token_id=None)).half().cuda().eval()
    ids = torch.arange(100, 116, device="cuda").view(1, 16)
    mask = torch.ones_like(ids)

    def run():
        return model.generate(ids, attention_mask=mask, max_new_tokens=TOKENS, do_sample=False, pad_token_id=0)

    return run, run().shape[1] - ids.shape[1]


def vllm(torch):
    """Four requests at a time to an engine of vLLM's in this process, with a Llama of 0.1 billion weights."""
    sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "gpu"))
    import vllm_models_of_ours as models

    sizes = models.Sizes(words=8192, width=768, layers=12, heads=12, shared_heads=4, inner=2048)
    engine, requests = models.make_engine(sizes, models.STEPS_IN_GRAPHS), models.prompts(sizes, (16, 24, 32, 64))

    def run():
        return torch.tensor(models.tokens_of(engine, requests, TOKENS))

    return run, run().numel()


def train(torch):
    """Steps of a small convolutional network: many short kernels, as best-effort work beside a server has them."""
    torch.manual_seed(1)
    layers = torch.nn
    model = layers.Sequential(
        layers.Conv2d(3, 32, 3, padding=1), layers.BatchNorm2d(32), layers.ReLU(), layers.MaxPool2d(2), layers.Conv2d(32, 64, 3, padding=1), layers.BatchNorm2d(64),
        layers.ReLU(), layers.AdaptiveAvgPool2d(4), layers.Flatten(), layers.Linear(1024, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.randn(128, 3, 32, 32).cuda(), (torch.arange(128) % 10).cuda()

    def run():
        with torch.enable_grad():
            optimizer.zero_grad(set_to_none=True)
            loss = layers.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        return loss.detach()

    return run, 1


def digest(result):
    values = result.detach().cpu().contiguous()
    return hashlib.sha256(values.numpy().tobytes()).hexdigest()[:16], [float(values.double().sum()), float(values.double().abs().sum())]


def measure(torch, run, units, expected, order):
    """Passes for the seconds of the order. The result of every hundredth pass is compared, outside the time that is measured for a pass."""
    gaps = random.Random(1)
    latencies, ends, wrong = [], [], 0
    begun = due = time.monotonic()
    until = begun + order["seconds"]
    while True:
        if "every" in order:
            due += gaps.uniform(*order["every"])
            if due >= until:
                break
            while (now := time.monotonic()) < due:
                time.sleep(max(0.0, due - now - 0.0005))
        else:
            due = time.monotonic()
            if due >= until:
                break
        result = run()
        torch.cuda.synchronize()
        end = time.monotonic()
        latencies.append(end - due)
        ends.append(round(end, 5))
        if expected is not None and len(latencies) % 100 == 1:
            wrong += not torch.equal(result, expected)
    spent = time.monotonic() - begun
    result = run()
    torch.cuda.synchronize()
    wrong += expected is not None and not torch.equal(result, expected)
    name, sums = digest(result)
    latencies.sort()
    if not latencies:
        raise RuntimeError("no pass within the time")
    answer = {
        "rate": len(latencies) * units / spent, "passes": len(latencies), "p50_ms": latencies[len(latencies) // 2] * 1e3,
        "p99_ms": latencies[int(len(latencies) * 0.99)] * 1e3, "longest_ms": latencies[-1] * 1e3, "wrong": int(wrong), "digest": name, "sums": sums}
    return answer | ({"ends": ends} if order.get("ends") else {})


def main():
    what, begun = sys.argv[1], time.monotonic()
    import torch

    imported = time.monotonic()
    # What the model needs besides: seconds of Python alone, the same with every library.
    if what in ("resnet", "graph"):
        import torchvision  # noqa: F401
    elif what == "gpt2":
        from transformers import GPT2LMHeadModel  # noqa: F401
    elif what == "vllm":
        __import__("vllm")
    loaded = time.monotonic()
    torch.cuda.init()
    with torch.no_grad():
        run, units = {"resnet": resnet, "graph": graph, "gpt2": gpt2, "vllm": vllm, "train": train}[what](torch)
        run()
        torch.cuda.synchronize()
        ready = time.monotonic()
        say(ready_s=ready - imported, ready_from_start_s=ready - begun, ready_from_imports_s=ready - loaded)
        for _ in range(2 if what in ("gpt2", "vllm") else 20):
            expected = run()
        torch.cuda.synchronize()
        # Training gives another loss each time.
        expected = None if what == "train" else expected.clone()
        say(warm=True)
        for line in sys.stdin:
            say(**measure(torch, run, units, expected, json.loads(line)))


if __name__ == "__main__":
    main()
