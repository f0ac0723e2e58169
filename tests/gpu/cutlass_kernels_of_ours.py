"""Kernels of the ladder in CUTLASS's DSL: it reads their source from this file."""

import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def add_kernel(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    threads, _, _ = cute.arch.block_dim()
    index = block * threads + thread
    _, columns = a.shape
    row, column = index // columns, index % columns
    c[row, column] = a[row, column] + b[row, column] * cutlass.Float32(2.0)


@cute.jit
def add(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    rows, columns = a.shape
    add_kernel(a, b, c).launch(grid=((rows * columns) // 256, 1, 1), block=(256, 1, 1))


def sums(a, b):
    import torch
    c = torch.zeros_like(a)
    add(from_dlpack(a), from_dlpack(b), from_dlpack(c))
    torch.cuda.synchronize()
    return [c]
