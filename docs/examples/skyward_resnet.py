"""ResNet-50 inference by several processes on one GPU, with Skyward and cumux.

    python skyward_resnet.py                       # on a rented machine (AWS here), by Skyward
    cumux run -- python skyward_resnet.py --local  # on this machine, without Skyward

Needs torch and torchvision where it runs; skyward and cumux-skyward for the first line. Works with Skyward 0.9 and from 0.11 on.
"""

import argparse
import time
from concurrent.futures import ProcessPoolExecutor

CONCURRENCY = 8


def inference(task_id: int, batch_size: int, rounds: int = 100) -> dict:
    """Runs the model on noise, as one task in a process of its own."""
    import torch
    from torchvision.models import resnet50

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = resnet50(weights=None).to(device).eval()
    images = torch.randn(batch_size, 3, 224, 224, device=device)
    with torch.no_grad():
        model(images)  # The first launch loads kernels: warm up before the time counts.
        if device == "cuda":
            torch.cuda.synchronize()
        begun = time.monotonic()
        for _ in range(rounds):
            model(images)
        if device == "cuda":
            torch.cuda.synchronize()
    return {"task_id": task_id, "device": device, "images_per_second": batch_size * rounds / (time.monotonic() - begun)}


def by_skyward(tasks: int) -> list:
    import skyward as sky
    from cumux_skyward import cumux

    if hasattr(sky, "Executor"):
        width = {"executor": sky.Executor("process", concurrency=CONCURRENCY)}
    else:
        width = {"worker": sky.Worker(concurrency=CONCURRENCY, executor="process")}
    task = sky.function(inference)
    plugins = [cumux(percentage=100 / CONCURRENCY, memory="2G")]
    image = sky.Image(pip=["torch", "torchvision"])
    with sky.Compute(provider=sky.AWS(), nodes=1, accelerator="T4", plugins=plugins, image=image, **width) as pool:
        return list(sky.gather(*[task(number, batch_size=1) for number in range(tasks)], stream=True) >> pool)


def here(tasks: int, rounds: int) -> list:
    import multiprocessing

    # A process that has loaded CUDA must not be forked.
    with ProcessPoolExecutor(CONCURRENCY, mp_context=multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(inference, range(tasks), [1] * tasks, [rounds] * tasks))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--local", action="store_true", help="on this machine, without Skyward")
    parser.add_argument("--tasks", type=int, default=2 * CONCURRENCY)
    parser.add_argument("--rounds", type=int, default=100, help="batches of a task with --local")
    options = parser.parse_args()
    results = here(options.tasks, options.rounds) if options.local else by_skyward(options.tasks)
    for result in results:
        print(result)
