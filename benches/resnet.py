"""ResNet-50 with batches of one for so many seconds (4): a program for `cumux lab -- python3 benches/resnet.py`. Needs PyTorch and torchvision."""

import sys
import time

import torch
import torchvision

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 4.0

torch.manual_seed(1)
model = torchvision.models.resnet50(weights=None).cuda().eval()
picture = torch.ones(1, 3, 224, 224, device="cuda")
with torch.no_grad():
    for _ in range(20):
        model(picture)
    torch.cuda.synchronize()
    begun, passes = time.monotonic(), 0
    while time.monotonic() - begun < SECONDS:
        model(picture)
        torch.cuda.synchronize()
        passes += 1
print(f"{passes / (time.monotonic() - begun):.1f} passes/s")
