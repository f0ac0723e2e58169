"""Triton kernels of ours for the corners of the ladder: tensors by descriptors, a persistent product, a histogram, assembly, sorting and scans."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def product_of_descriptors(a, b, c, inner, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    total = tl.zeros((M, N), dtype=tl.float32)
    for k in range(0, inner, K):
        total = tl.dot(a.load([row, k]), b.load([k, column]), total)
    c.store([row, column], total.to(tl.float16))


def product_by_descriptor(a, b, size=64):
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    described = [TensorDescriptor.from_tensor(tensor, [size, size]) for tensor in (a, b, c)]
    product_of_descriptors[(a.shape[0] // size, b.shape[1] // size)](*described, a.shape[1], size, size, size)
    return c


@triton.jit
def product_that_stays(a, b, c, rows, columns, inner, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """A program takes one tile after the other; the kernel describes the tensors itself."""
    left = tl.make_tensor_descriptor(a, [rows, inner], [inner, 1], [M, K])
    right = tl.make_tensor_descriptor(b, [inner, columns], [columns, 1], [K, N])
    out = tl.make_tensor_descriptor(c, [rows, columns], [columns, 1], [M, N])
    across = columns // N
    for tile in tl.range(tl.program_id(0), rows // M * across, tl.num_programs(0), flatten=True):
        row, column = tile // across * M, tile % across * N
        total = tl.zeros((M, N), dtype=tl.float32)
        for k in range(0, inner, K):
            total = tl.dot(left.load([row, k]), right.load([k, column]), total)
        out.store([row, column], total.to(tl.float16))


def persistent_product(a, b, size=64):
    triton.set_allocator(lambda bytes, alignment, stream: torch.empty(bytes, dtype=torch.int8, device="cuda"))
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    product_that_stays[(5,)](a, b, c, a.shape[0], b.shape[1], a.shape[1], size, size, size)
    return c


@triton.jit
def count_values(x, out, B: tl.constexpr, BINS: tl.constexpr):
    values = tl.load(x + tl.program_id(0) * B + tl.arange(0, B))
    tl.atomic_add(out + tl.arange(0, BINS), tl.histogram(values, BINS))


def histogram(x, bins):
    out = torch.zeros(bins, dtype=torch.int32, device=x.device)
    count_values[(x.numel() // 512,)](x, out, 512, bins)
    return out


@triton.jit
def reverse_bits(x, y, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.inline_asm_elementwise("brev.b32 $0, $1;", "=r,r", [tl.load(x + at)], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(y + at, value >> 16)


def by_assembly(x):
    y = torch.empty_like(x)
    reverse_bits[(x.numel() // 256,)](x, y, 256)
    return y


@triton.jit
def sort_a_row(x, y, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.sort(tl.load(x + at)))


def sorted_rows(x):
    y = torch.empty_like(x)
    sort_a_row[(x.shape[0],)](x, y, x.shape[1])
    return y


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def scan_a_row(x, y, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + at)
    tl.store(y + at, tl.cumsum(value, 0) + tl.associative_scan(value, 0, larger))


def running_sums(x):
    y = torch.empty_like(x)
    scan_a_row[(x.shape[0],)](x, y, x.shape[1])
    return y
