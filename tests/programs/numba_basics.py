"""numba-cuda as pip installs it. Prints one line for each thing that is tried."""

import sys
import tempfile
import traceback
from pathlib import Path

import numpy as np
from numba import cuda, float32, int32


def vector_add():
    @cuda.jit
    def add(x, y, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i] + y[i]

    a, b = np.random.default_rng(1).random((2, 10_000)).astype(np.float32)
    out = np.zeros_like(a)
    add[40, 256](a, b, out)
    np.testing.assert_array_equal(out, a + b)


def shared_memory_reduction():
    @cuda.jit
    def total(x, out):
        part = cuda.shared.array(128, float32)
        t, i = cuda.threadIdx.x, cuda.grid(1)
        part[t] = x[i] if i < x.size else 0
        cuda.syncthreads()
        half = 64
        while half > 0:
            if t < half:
                part[t] += part[t + half]
            cuda.syncthreads()
            half //= 2
        if t == 0:
            cuda.atomic.add(out, 0, part[0])

    out = np.zeros(1, dtype=np.float32)
    total[10, 128](np.ones(1200, dtype=np.float32), out)
    assert out[0] == 1200, out


def device_functions():
    @cuda.jit(device=True, inline="never")
    def weigh(x):
        return x * 3 + 1

    @cuda.jit("void(int32[:])")
    def apply(x):
        i = cuda.grid(1)
        x[i] = weigh(weigh(x[i]))

    x = np.arange(64, dtype=np.int32)
    apply[1, 64](x)
    np.testing.assert_array_equal(x, (np.arange(64) * 3 + 1) * 3 + 1)


def reduce_and_vectorize():
    @cuda.reduce
    def total(a, b):
        return a + b

    assert total(np.arange(1000, dtype=np.int64)) == 499_500

    from numba import vectorize

    @vectorize(["float32(float32, float32)"], target="cuda")
    def hypot(x, y):
        return (x * x + y * y) ** 0.5

    a, b = np.random.default_rng(2).random((2, 1000)).astype(np.float32)
    np.testing.assert_allclose(hypot(a, b), np.hypot(a, b), rtol=1e-6)


CU = 'extern "C" __device__ int thrice(int *result, int x) { *result = 3 * x; return 0; }'
PTX = """.version 7.0
.target sm_70
.address_size 64
.visible .func (.param .b32 status) thrice (.param .b64 result, .param .b32 x)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [result];
    ld.param.u32 %r1, [x];
    mul.lo.s32 %r1, %r1, 3;
    st.u32 [%rd1], %r1;
    mov.u32 %r2, 0;
    st.param.b32 [status], %r2;
    ret;
}
"""


def link(name, text, **options):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_text(text)
        thrice = cuda.declare_device("thrice", "int32(int32)", link=str(file))

        @cuda.jit(**options)
        def apply(x):
            i = cuda.grid(1)
            x[i] = thrice(x[i])

        x = np.arange(32, dtype=np.int32)
        apply[1, 32](x)
        np.testing.assert_array_equal(x, 3 * np.arange(32))


def linked_cu():
    link("thrice.cu", CU)


def linked_ptx():
    link("thrice.ptx", PTX)


def linked_lto():
    link("thrice.cu", CU, lto=True)


def undefined_function():
    nowhere = cuda.declare_device("nowhere", "int32(int32)")

    @cuda.jit
    def apply(x):
        x[0] = nowhere(x[0])

    try:
        apply[1, 1](np.zeros(1, dtype=np.int32))
    except Exception as error:
        assert "nowhere" in str(error), error
    else:
        raise AssertionError("a function that nobody defines was called")


def printing_and_errors():
    @cuda.jit
    def say(x):
        print("thread", cuda.threadIdx.x, x[0])

    say[1, 2](np.full(1, 7, dtype=np.int32))
    cuda.synchronize()

    @cuda.jit(debug=True, opt=False)
    def bad(x):
        if x[0] == 7:
            raise ValueError("seven")

    try:
        bad[1, 64](np.full(1, 7, dtype=np.int32))
    except ValueError as error:
        assert "seven" in str(error)
        return
    raise AssertionError("an exception in a kernel was not noticed")


def math_and_atomics():
    import math

    @cuda.jit
    def f(x, counts):
        i = cuda.grid(1)
        x[i] = math.sin(x[i]) + math.exp(-x[i]) + math.pow(x[i], 1.5)
        cuda.atomic.add(counts, i % 4, 1)

    x, counts = np.linspace(0, 3, 256), np.zeros(4, dtype=np.int32)
    expected = np.sin(x) + np.exp(-x) + x**1.5
    f[2, 128](x, counts)
    np.testing.assert_allclose(x, expected, rtol=1e-12)
    np.testing.assert_array_equal(counts, [64] * 4)


TRIED = [
    vector_add,
    shared_memory_reduction,
    device_functions,
    reduce_and_vectorize,
    linked_cu,
    linked_ptx,
    linked_lto,
    undefined_function,
    printing_and_errors,
    math_and_atomics,
]

if __name__ == "__main__":
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
