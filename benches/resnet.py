"""ResNet-50 with batches of one for so many seconds (2.5): a program for `cumux lab -- python3 benches/resnet.py`. Needs PyTorch. The model is written down here: torchvision takes as long to import as the rest.

In the lab it says `ready` once it is warm, waits for `go`, gives its result as one line of JSON, and is ready again until its input ends (docs/lab.md, "A program of yours"). A request is one pass.
"""

import json
import os
import sys
import time

STARTED = time.monotonic()
SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 2.5
WARM, POINTS, SPANS, FIFTHS = 20, 20, 60, 5


def part(times, where):
    return times[min(len(times) - 1, int(len(times) * where))]


def typical_p99(took):
    """99 of 100 take at most this, in a typical fifth of the time: one hiccup of the machine is in one fifth alone."""
    if len(took) < 20 * FIFTHS:
        return part(sorted(took), 0.99)
    fifths = [took[len(took) * n // FIFTHS:len(took) * (n + 1) // FIFTHS] for n in range(FIFTHS)]
    return sorted(part(sorted(fifth), 0.99) for fifth in fifths)[FIFTHS // 2]


def measure(forward):
    """Passes one after the other: when each began and ended, in seconds of the machine's clock."""
    spans = []
    begun = now = time.monotonic()
    while now - begun < SECONDS or not spans:
        before = now
        forward()
        now = time.monotonic()
        spans.append((before, now))
    return spans


def tell(spans, right, start_ms):
    """Prints the result of one round."""
    seconds = spans[-1][1] - spans[0][0]
    took = [(end - begin) * 1e6 for begin, end in spans]
    p99 = typical_p99(took)
    took.sort()
    p99 = max(p99, part(took, 0.5))
    result = {
        "requests": len(spans), "seconds": round(seconds, 6), "right": right, "start_ms": round(start_ms, 3),
        "p50_us": round(part(took, 0.5), 2), "p99_us": round(p99, 2),
        "points_us": [round(part(took, point / POINTS - 0.01), 2) for point in range(1, POINTS + 1)],
        "spans_us": [[round(begin * 1e6, 1), round(end * 1e6, 1)] for begin, end in spans[:SPANS]]}
    print(json.dumps(result))
    print(f"{len(spans) / seconds:.1f} passes/s", flush=True)


def make_model(nn):
    """ResNet-50 as torchvision has it: the second convolution of a block has the stride."""

    def unit(inside, outside, size, stride=1):
        return [nn.Conv2d(inside, outside, size, stride, size // 2, bias=False), nn.BatchNorm2d(outside)]

    class Block(nn.Module):
        def __init__(self, inside, width, stride):
            super().__init__()
            relu, outside = nn.ReLU(inplace=True), 4 * width
            self.branch = nn.Sequential(*unit(inside, width, 1), relu, *unit(width, width, 3, stride), relu, *unit(width, outside, 1))
            self.short = nn.Sequential(*unit(inside, outside, 1, stride)) if inside != outside else None
            self.relu = relu

        def forward(self, x):
            result = self.branch(x)
            result += x if self.short is None else self.short(x)
            return self.relu(result)

    layers, inside = [*unit(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for number in range(blocks):
            layers.append(Block(inside, width, 2 if number == 0 and width > 64 else 1))
            inside = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 1000))


def main():
    import torch

    torch.manual_seed(1)
    with torch.no_grad():
        model = make_model(torch.nn).cuda().eval()
        picture = torch.ones(1, 3, 224, 224, device="cuda")

        def forward():
            result = model(picture)
            torch.cuda.synchronize()
            return result

        forward()
        start_ms = (time.monotonic() - STARTED) * 1e3
        for _ in range(WARM):
            expected = forward()
        # Without the lab nobody says when to begin; its recorder closes the input instead.
        in_lab = bool(os.environ.get("CUMUX_LAB"))
        if in_lab:
            print("ready", flush=True)
            sys.stdin.readline()
        while True:
            spans = measure(forward)
            right = bool(torch.equal(forward(), expected))
            tell(spans, right, start_ms)
            if not in_lab:
                break
            print("ready", flush=True)
            if not sys.stdin.readline():
                break
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
