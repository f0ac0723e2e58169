"""Triton as pip installs it with PyTorch. Prints one line for each thing that is tried.

Tensors are made on the host and copied: PyTorch's own kernels are machine code, which no software GPU runs."""

import sys
import traceback

import torch
import triton
import triton.language as tl


def same(found, expected, tolerance=1e-4):
    torch.testing.assert_close(found.cpu().double(), expected.double(), rtol=tolerance, atol=tolerance)


def room(*shape, dtype=torch.float32):
    return torch.empty(*shape, dtype=dtype, device="cuda")


@triton.jit
def add_kernel(x, y, out, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


def vector_add():
    x, y, out = torch.randn(10_000), torch.randn(10_000), room(10_000)
    add_kernel[(triton.cdiv(10_000, 1024),)](x.cuda(), y.cuda(), out, 10_000, block=1024)
    same(out, x + y)


@triton.jit
def softmax_kernel(x, out, n, block: tl.constexpr):
    at = tl.arange(0, block)
    row = tl.load(x + tl.program_id(0) * n + at, mask=at < n, other=-float("inf"), eviction_policy="evict_first")
    row = tl.exp(row - tl.max(row, 0))
    tl.store(out + tl.program_id(0) * n + at, row / tl.sum(row, 0), mask=at < n)


def softmax():
    x, out = torch.randn(33, 700), room(33, 700)
    softmax_kernel[(33,)](x.cuda(), out, 700, block=1024)
    same(out, x.softmax(1))


@triton.jit
def product_kernel(a, b, c, n, k, tile: tl.constexpr, step: tl.constexpr):
    rows, columns, depth = tl.program_id(0) * tile + tl.arange(0, tile), tl.program_id(1) * tile + tl.arange(0, tile), tl.arange(0, step)
    total = tl.zeros((tile, tile), dtype=tl.float32)
    for start in range(0, k, step):
        left = tl.load(a + rows[:, None] * k + (start + depth)[None, :])
        right = tl.load(b + (start + depth)[:, None] * n + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * n + columns[None, :], total)


def product(dtype, tile, tolerance):
    a, b, c = torch.randn(128, 96).to(dtype), torch.randn(96, 128).to(dtype), room(128, 128)
    product_kernel[(128 // tile, 128 // tile)](a.cuda(), b.cuda(), c, 128, 96, tile=tile, step=32)
    same(c, a.float() @ b.float(), tolerance)


def products_of_half_precision():
    product(torch.float16, 32, 1e-2)


def products_of_bfloat16_in_large_tiles():
    product(torch.bfloat16, 64, 1e-2)


def products_of_single_precision():
    product(torch.float32, 32, 2e-1)


@triton.jit
def described_kernel(a, b, c, rows, columns, depth, tile: tl.constexpr, step: tl.constexpr):
    left = tl.make_tensor_descriptor(a, [rows, depth], [depth, 1], [tile, step])
    right = tl.make_tensor_descriptor(b, [depth, columns], [columns, 1], [step, tile])
    out = tl.make_tensor_descriptor(c, [rows, columns], [columns, 1], [tile, tile])
    row, column = tl.program_id(0) * tile, tl.program_id(1) * tile
    total = tl.zeros((tile, tile), dtype=tl.float32)
    for start in range(0, depth, step):
        total = tl.dot(left.load([row, start]), right.load([start, column]), total)
    out.store([row, column], total)


def tensors_that_kernels_describe():
    triton.set_allocator(lambda size, align, stream: room(size, dtype=torch.int8))
    a, b, c = torch.randn(120, 80).half(), torch.randn(80, 104).half(), room(120, 104)
    described_kernel[(2, 2)](a.cuda(), b.cuda(), c, 120, 104, 80, tile=64, step=32)
    same(c, a.float() @ b.float(), 1e-2)


@triton.jit
def boxes_kernel(source, target, tile: tl.constexpr):
    row, column = tl.program_id(0) * tile, tl.program_id(1) * tile
    target.store([column, row], tl.trans(source.load([row, column])))


def tensors_that_the_host_describes():
    from triton.tools.tensor_descriptor import TensorDescriptor

    x, out = torch.randn(96, 80), room(80, 96)
    boxes_kernel[(3, 3)](TensorDescriptor.from_tensor(x.cuda(), [32, 32]), TensorDescriptor.from_tensor(out, [32, 32]), tile=32)
    same(out, x.t())


@triton.jit
def count_kernel(x, out, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(x + at, mask=at < n, other=0)
    tl.atomic_add(out + value % 7, 1, mask=at < n)
    tl.atomic_max(out + 7, tl.max(value, 0))


def atomics():
    x, out = torch.randint(0, 1000, (5000,), dtype=torch.int32), torch.zeros(8, dtype=torch.int32).cuda()
    count_kernel[(5,)](x.cuda(), out, 5000, block=1024)
    same(out, torch.cat([torch.bincount(x % 7, minlength=7), x.max().reshape(1)]))


@triton.jit
def scan_kernel(x, sums, sorted_, block: tl.constexpr):
    at = tl.arange(0, block)
    value = tl.load(x + at)
    tl.store(sums + at, tl.cumsum(value, 0))
    tl.store(sorted_ + at, tl.sort(value))


def scan_and_sort():
    x, sums, sorted_ = torch.randn(512), room(512), room(512)
    scan_kernel[(1,)](x.cuda(), sums, sorted_, block=512)
    same(sums, x.cumsum(0), 1e-3)
    same(sorted_, x.sort()[0])


@triton.jit
def functions_kernel(x, out, block: tl.constexpr):
    at = tl.arange(0, block)
    v = tl.load(x + at)
    tl.store(out + at, tl.sin(v) + tl.exp(v) * tl.log(v + 4) + tl.sqrt(v + 4) + tl.sigmoid(v) + tl.math.erf(v) + tl.floor(v) + tl.abs(v))


def functions():
    x, out = torch.linspace(-2, 2, 256), room(256)
    functions_kernel[(1,)](x.cuda(), out, block=256)
    same(out, x.sin() + x.exp() * (x + 4).log() + (x + 4).sqrt() + x.sigmoid() + x.erf() + x.floor() + x.abs())


@triton.jit
def random_kernel(out, seed, block: tl.constexpr):
    at = tl.arange(0, block)
    tl.store(out + at, tl.rand(seed, at))


def random_numbers():
    out = room(4096)
    random_kernel[(1,)](out, 42, block=4096)
    found = out.cpu()
    assert 0.47 < found.mean() < 0.53 and found.min() >= 0 and found.max() < 1


@triton.jit
def eight_bits_kernel(x, out, block: tl.constexpr):
    at = tl.arange(0, block)
    tl.store(out + at, tl.load(x + at).to(tl.float8e4nv).to(tl.float32))


def eight_bit_floats():
    x, out = torch.randn(256), room(256)
    eight_bits_kernel[(1,)](x.cuda(), out, block=256)
    same(out, x.to(torch.float8_e4m3fn).float())


@triton.jit
def unfused_kernel(x, out, block: tl.constexpr):
    at = tl.arange(0, block)
    v = tl.load(x + at)
    tl.store(out + at, v * v - (v * v).to(tl.float32))


def without_fused_products():
    x, out = torch.randn(256), room(256)
    unfused_kernel[(1,)](x.cuda(), out, block=256, enable_fp_fusion=False)
    same(out, torch.zeros(256), 0)


def compiled_by_torch():
    function = torch.compile(lambda x: x.sum(0) / x.mean())
    x = torch.randn(64, 128)
    same(function(x.cuda()), x.sum(0) / x.mean(), 1e-3)


TRIED = [
    vector_add,
    softmax,
    products_of_half_precision,
    products_of_bfloat16_in_large_tiles,
    products_of_single_precision,
    tensors_that_kernels_describe,
    tensors_that_the_host_describes,
    atomics,
    scan_and_sort,
    functions,
    random_numbers,
    eight_bit_floats,
    without_fused_products,
    compiled_by_torch,
]

if __name__ == "__main__":
    torch.manual_seed(1)
    wanted = sys.argv[1:]
    for one in TRIED:
        if wanted and one.__name__ not in wanted:
            continue
        try:
            one()
            print(f"{one.__name__}: runs", flush=True)
        except Exception as error:
            if wanted:
                traceback.print_exc()
            print(f"{one.__name__}: {type(error).__name__}: {' '.join(str(error).split())[:120]}", flush=True)
