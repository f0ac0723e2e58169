"""What the programs of the ladder share: a case is a function that returns arrays, and its inputs are made on the host from fixed seeds."""

import os

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def torch_ready():
    import torch
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch


def seeded(torch, *shape, dtype=None):
    """Numbers made on the host: the same on every device."""
    return torch.randn(*shape).to("cuda", dtype or torch.float32)


def cupy_ready():
    import cupy
    import numpy
    return cupy, numpy.random.default_rng(5)


def jax_ready():
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import numpy
    return jax, jax.numpy, numpy.random.default_rng(3).random((64, 64)).astype("float32")


def numpy_int(value):
    import numpy
    return numpy.int32(value)
