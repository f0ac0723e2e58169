"""CuPy as pip installs it: what it compiles while it runs. Prints one line for each thing that is tried."""

import sys
import traceback

import numpy as np
import cupy as cp


def elementwise():
    x = cp.arange(100_000, dtype=cp.float32)
    y = cp.sin(x) ** 2 + cp.cos(x) ** 2
    np.testing.assert_allclose(cp.asnumpy(y), np.ones(100_000), rtol=1e-5)
    squared = cp.ElementwiseKernel("float64 x, float64 y", "float64 z", "z = (x - y) * (x - y)", "squared")
    a, b = np.random.default_rng(1).random((2, 1000))
    np.testing.assert_allclose(cp.asnumpy(squared(cp.asarray(a), cp.asarray(b))), (a - b) ** 2)


def fused():
    @cp.fuse()
    def f(x, y):
        return cp.sqrt(x * x + y * y)

    a, b = np.random.default_rng(2).random((2, 1000))
    np.testing.assert_allclose(cp.asnumpy(f(cp.asarray(a), cp.asarray(b))), np.hypot(a, b))


def reduction():
    a = np.random.default_rng(3).random((300, 200))
    x = cp.asarray(a)
    np.testing.assert_allclose(cp.asnumpy(x.sum(axis=0)), a.sum(axis=0))
    np.testing.assert_allclose(float(x.mean()), a.mean())
    assert int(x.argmax()) == a.argmax()
    euclidean = cp.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "euclidean")
    np.testing.assert_allclose(float(euclidean(x)), np.sqrt((a * a).sum()))


def raw_kernel():
    source = r"""
    extern "C" __global__ void total(const float *x, float *out, int n) {
        __shared__ float part[256];
        float sum = 0;
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
        part[threadIdx.x] = sum;
        __syncthreads();
        for (int half = 128; half > 0; half /= 2) {
            if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
            __syncthreads();
        }
        if (threadIdx.x == 0) atomicAdd(out, part[0]);
    }"""
    kernel = cp.RawKernel(source, "total")
    x, out = cp.ones(10_000, dtype=cp.float32), cp.zeros(1, dtype=cp.float32)
    kernel((8,), (256,), (x, out, np.int32(10_000)))
    assert float(out[0]) == 10_000, out


def raw_module():
    source = r"""
    template <typename T> __device__ T twice(T x) { return 2 * x; }
    __constant__ int offset = 5;
    __device__ int calls = 0;
    template <typename T> __global__ void apply(T *x) { x[threadIdx.x] = twice(x[threadIdx.x]) + offset; atomicAdd(&calls, 1); }
    """
    module = cp.RawModule(code=source, options=("-std=c++17",), name_expressions=["apply<int>", "apply<double>"])
    for kind in ("int", "double"):
        x = cp.arange(32, dtype=cp.int32 if kind == "int" else cp.float64)
        module.get_function(f"apply<{kind}>")((1,), (32,), (x,))
        np.testing.assert_array_equal(cp.asnumpy(x), 2 * np.arange(32) + 5)
    calls = cp.ndarray((1,), dtype=cp.int32, memptr=module.get_global("calls"))
    assert int(calls[0]) == 64, calls


def linked_modules():
    """Device functions of their own file, linked with nvJitLink as cuda.core does it."""
    from cuda.core import Device, Linker, LinkerOptions, Program, ProgramOptions

    Device(0).set_current()
    arch = f"sm_{cp.cuda.Device(0).compute_capability}"
    caller = 'extern __device__ int weigh(int); extern "C" __global__ void k(int *p) { p[threadIdx.x] = weigh(p[threadIdx.x]); }'
    callee = "__device__ int table[2] = {3, 4}; __device__ int weigh(int x) { return x * table[x & 1]; }"
    options = ProgramOptions(arch=arch, relocatable_device_code=True)
    parts = [Program(code, "c++", options).compile("ptx") for code in (caller, callee)]
    image = Linker(*parts, options=LinkerOptions(arch=arch)).link("cubin")
    module = cp.cuda.function.Module()
    module.load(bytes(image.code))
    x = cp.arange(32, dtype=cp.int32)
    module.get_function("k")((1,), (32,), (x,))
    np.testing.assert_array_equal(cp.asnumpy(x), [i * (3 + i % 2) for i in range(32)])


def scans():
    a = np.random.default_rng(5).permutation(1000).astype(np.int32)
    np.testing.assert_array_equal(cp.asnumpy(cp.cumsum(cp.asarray(a))), np.cumsum(a))
    np.testing.assert_array_equal(cp.asnumpy(cp.nonzero(cp.asarray(a % 3))[0]), np.nonzero(a % 3)[0])


def sorting():
    a = np.random.default_rng(5).permutation(1000).astype(np.int32)
    np.testing.assert_array_equal(cp.asnumpy(cp.sort(cp.asarray(a))), np.sort(a))


def random():
    cp.random.seed(7)
    x = cp.random.random(10_000)
    assert 0.45 < float(x.mean()) < 0.55


def random_generator():
    y = cp.random.default_rng(3).standard_normal(10_000)
    assert abs(float(y.mean())) < 0.1 and 0.9 < float(y.std()) < 1.1, "the numbers are not random: its kernel has not run"


def indexing():
    a = np.random.default_rng(6).random((50, 60))
    x = cp.asarray(a)
    np.testing.assert_array_equal(cp.asnumpy(x[x > 0.5]), a[a > 0.5])
    np.testing.assert_array_equal(cp.asnumpy(cp.where(x > 0.5, x, -x)), np.where(a > 0.5, a, -a))
    np.testing.assert_array_equal(cp.asnumpy(x.T[::2, 3]), a.T[::2, 3])


TRIED = [elementwise, fused, reduction, raw_kernel, raw_module, linked_modules, scans, sorting, random, random_generator, indexing]

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
