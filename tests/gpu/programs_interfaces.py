"""Programs of the ladder: CUDA by other ways than PyTorch: NVIDIA's bindings, corners of CuPy, JAX and Numba, and what nvcc builds."""

import os

from programs_ready import case, cupy_ready, jax_ready, torch_ready

# --- NVIDIA's bindings


@case
def bindings_of_the_driver():
    import numpy
    from cuda.bindings import driver, nvrtc

    def asked(result):
        assert int(result[0]) == 0, result[0]
        return result[1] if len(result) == 2 else result[1:]

    asked(driver.cuInit(0))
    device = asked(driver.cuDeviceGet(0))
    context = asked(driver.cuDevicePrimaryCtxRetain(device))
    asked(driver.cuCtxSetCurrent(context))
    code = b'extern "C" __global__ void scale(float *x, float by, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= by; }'
    program = asked(nvrtc.nvrtcCreateProgram(code, b"scale.cu", 0, [], []))
    asked(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=sm_90"]))
    image = b" " * asked(nvrtc.nvrtcGetCUBINSize(program))
    asked(nvrtc.nvrtcGetCUBIN(program, image))
    module = asked(driver.cuModuleLoadData(numpy.frombuffer(image, dtype=numpy.uint8).ctypes.data))
    kernel = asked(driver.cuModuleGetFunction(module, b"scale"))
    x = numpy.arange(1000, dtype=numpy.float32)
    memory = asked(driver.cuMemAlloc(x.nbytes))
    stream = asked(driver.cuStreamCreate(1))
    asked(driver.cuMemcpyHtoDAsync(memory, x.ctypes.data, x.nbytes, stream))
    import ctypes
    values = ((int(memory), 2.5, 1000), (ctypes.c_void_p, ctypes.c_float, ctypes.c_int))
    asked(driver.cuLaunchKernel(kernel, 8, 1, 1, 128, 1, 1, 0, stream, values, 0))
    asked(driver.cuMemsetD32Async(int(memory) + 40, 0, 5, stream))
    asked(driver.cuMemcpyDtoHAsync(x.ctypes.data, memory, x.nbytes, stream))
    asked(driver.cuStreamSynchronize(stream))
    blocks = asked(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(kernel, 128, 0))
    facts = [asked(driver.cuFuncGetAttribute(attribute, kernel)) for attribute in (driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NUM_REGS, driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)]
    for result in (driver.cuMemFree(memory), driver.cuModuleUnload(module), driver.cuStreamDestroy(stream), driver.cuDevicePrimaryCtxRelease(device)):
        asked(result)
    return [x, numpy.array([blocks, *facts])]


@case
def bindings_of_virtual_memory():
    import numpy
    from cuda.bindings import driver

    def asked(result):
        assert int(result[0]) == 0, result[0]
        return result[1] if len(result) == 2 else result[1:]

    asked(driver.cuInit(0))
    asked(driver.cuCtxSetCurrent(asked(driver.cuDevicePrimaryCtxRetain(0))))
    wanted = driver.CUmemAllocationProp()
    wanted.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id = 0
    grain = asked(driver.cuMemGetAllocationGranularity(wanted, driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM))
    place = asked(driver.cuMemAddressReserve(4 * grain, 0, 0, 0))
    handle = asked(driver.cuMemCreate(grain, wanted, 0))
    rights = driver.CUmemAccessDesc()
    rights.location, rights.flags = wanted.location, driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    for n in range(2):
        asked(driver.cuMemMap(int(place) + n * grain, grain, 0, handle, 0))
    asked(driver.cuMemSetAccess(place, 2 * grain, [rights], 1))
    asked(driver.cuMemsetD32(place, 7, 1000))
    seen = numpy.zeros(1000, dtype=numpy.uint32)
    asked(driver.cuMemcpyDtoH(seen.ctypes.data, int(place) + grain, seen.nbytes))
    for n in range(2):
        asked(driver.cuMemUnmap(int(place) + n * grain, grain))
    asked(driver.cuMemRelease(handle))
    asked(driver.cuMemAddressFree(place, 4 * grain))
    return [seen, numpy.array([grain])]


@case
def core_objects():
    import numpy
    from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
    device = Device()
    device.set_current()
    stream = device.create_stream()
    program = Program("template <typename T> __global__ void fill(T *x, T with, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = with + i; }", code_type="c++", options=ProgramOptions(std="c++17", arch="sm_90"))
    kernel = program.compile("cubin", name_expressions=("fill<float>",)).get_kernel("fill<float>")
    memory = device.allocate(4000, stream=stream)
    launch(stream, LaunchConfig(grid=8, block=128), kernel, memory, numpy.float32(3), numpy.int32(1000))
    stream.sync()
    import cupy
    return [cupy.ndarray((1000,), cupy.float32, cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(int(memory.handle), 4000, memory), 0))]


# --- CuPy


@case
def cupy_modules():
    cupy, numbers = cupy_ready()
    module = cupy.RawModule(code=r'''
        #include <cooperative_groups.h>
        __constant__ float table[16];
        __device__ int counted;
        template <typename T> __global__ void look_up(const T *x, T *y) { int i = threadIdx.x; y[i] = x[i] * table[i % 16]; atomicAdd(&counted, 1); }
        extern "C" __global__ void everywhere(int *x, int n) {
            auto grid = cooperative_groups::this_grid();
            for (int i = grid.thread_rank(); i < n; i += grid.size()) x[i] = i;
            grid.sync();
            if (grid.thread_rank() == 0) x[0] = x[n - 1];
        }''', options=("--std=c++17",), name_expressions=["look_up<float>"], enable_cooperative_groups=True)
    table = cupy.ndarray((16,), cupy.float32, module.get_global("table"))
    table[...] = cupy.arange(16)
    x, y = cupy.asarray(numbers.random(256), dtype=cupy.float32), cupy.zeros(256, dtype=cupy.float32)
    module.get_function("look_up<float>")((1,), (256,), (x, y))
    z = cupy.zeros(10000, dtype=cupy.int32)
    module.get_function("everywhere")((16,), (128,), (z, cupy.int32(10000)))
    return [y, z, cupy.ndarray((1,), cupy.int32, module.get_global("counted"))]


@case
def cupy_python_kernels():
    cupy, numbers = cupy_ready()
    from cupyx import jit

    @jit.rawkernel()
    def reduce(x, y, n):
        shared = jit.shared_memory(cupy.float32, 128)
        i = jit.threadIdx.x
        shared[i] = x[jit.blockIdx.x * 128 + i]
        jit.syncthreads()
        if i == 0:
            total = cupy.float32(0)
            for k in range(128):
                total += shared[k]
            jit.atomic_add(y, 0, total)

    x, y = cupy.asarray(numbers.random(1024), dtype=cupy.float32), cupy.zeros(1, dtype=cupy.float32)
    reduce[8, 128](x, y, 1024)
    return [y]


@case
def cupy_managed_memory():
    cupy, numbers = cupy_ready()
    cupy.cuda.set_allocator(cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc)
    x = cupy.asarray(numbers.random((200, 200)))
    return [x @ x, x.sum().reshape(1), cupy.linalg.inv(x + 200 * cupy.eye(200))]


@case
def cupy_pinned_and_peers():
    cupy, numbers = cupy_ready()
    import cupyx
    import numpy
    pinned = cupyx.empty_pinned((1000,), dtype=numpy.float64)
    pinned[...] = numbers.random(1000)
    stream = cupy.cuda.Stream(non_blocking=True)
    x = cupy.empty(1000)
    with stream:
        x.set(pinned, stream=stream)
        y = x * 2
        back = y.get(stream=stream)
    stream.synchronize()
    begun, ended = cupy.cuda.Event(), cupy.cuda.Event()
    begun.record()
    z = cupy.fft.fft(x)
    ended.record()
    ended.synchronize()
    assert cupy.cuda.get_elapsed_time(begun, ended) >= 0
    return [back, abs(z)]


@case
def cupy_signals_and_images():
    cupy, numbers = cupy_ready()
    from cupyx.scipy import interpolate, ndimage, signal, special
    x, image = cupy.asarray(numbers.random(500)), cupy.asarray(numbers.random((64, 64)))
    return [signal.fftconvolve(x, x), signal.savgol_filter(x, 11, 3), ndimage.median_filter(image, 3), ndimage.label(image > 0.5)[0], special.gammaln(x + 1), interpolate.interp1d(cupy.arange(500), x)(cupy.linspace(0, 499, 50))]


@case
def cupy_calls_of_the_host():
    cupy, numbers = cupy_ready()
    import threading
    x, told = cupy.asarray(numbers.random(1000)), threading.Event()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        y = x * 3
    stream.launch_host_func(lambda _: told.set(), None)
    stream.synchronize()
    assert told.wait(30)
    return [y]


@case
def cupy_multiplies_in_batches():
    cupy, numbers = cupy_ready()
    a, b = cupy.asarray(numbers.random((10, 64, 32))), cupy.asarray(numbers.random((10, 32, 16)))
    return [a @ b, cupy.einsum("bij,bjk->bik", a, b), cupy.tensordot(a, b[0], 1), cupy.linalg.solve(a @ a.transpose(0, 2, 1) + 64 * cupy.eye(64), a), cupy.linalg.eigvalsh(a[0] @ a[0].T)]


@case
def libraries_share_arrays():
    torch = torch_ready()
    cupy, numbers = cupy_ready()
    jax, np, _ = jax_ready()
    x = cupy.asarray(numbers.random(1000), dtype=cupy.float32)
    y = torch.from_dlpack(x) * 2
    z = np.from_dlpack(y) + 1
    w = torch.from_dlpack(z) @ torch.as_tensor(x, device="cuda")
    return [y, z, w.reshape(1), cupy.from_dlpack(y) - 1]


# --- JAX


@case
def jax_kernels_of_pallas():
    jax, np, x = jax_ready()
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    def add(x_ref, y_ref, out_ref):
        out_ref[...] = x_ref[...] * 2 + y_ref[...]

    f = pallas.pallas_call(add, out_shape=jax.ShapeDtypeStruct((64, 64), np.float32), grid=(4,), compiler_params=triton.CompilerParams(num_warps=4),
                           in_specs=[pallas.BlockSpec((16, 64), lambda i: (i, 0))] * 2, out_specs=pallas.BlockSpec((16, 64), lambda i: (i, 0)))
    return [f(x, x)]


@case
def jax_calls_of_the_host():
    jax, np, x = jax_ready()
    import numpy

    @jax.jit
    def f(a):
        b = jax.pure_callback(lambda v: numpy.sin(v), jax.ShapeDtypeStruct(a.shape, a.dtype), a)
        return b * 2

    seen = []
    jax.jit(lambda a: jax.debug.callback(lambda v: seen.append(float(v)), a.sum()))(x)
    jax.effects_barrier()
    return [f(x), numpy.array(seen)]


@case
def jax_shards_and_donates():
    jax, np, x = jax_ready()
    from jax.sharding import NamedSharding, PartitionSpec
    mesh = jax.make_mesh((1,), ("x",))
    y = jax.device_put(x, NamedSharding(mesh, PartitionSpec("x")))
    z = jax.jit(lambda a: a @ a.T, donate_argnums=0)(jax.device_put(x))
    f = jax.jit(jax.shard_map(lambda a: jax.lax.psum(a, "x"), mesh=mesh, in_specs=PartitionSpec("x"), out_specs=PartitionSpec()))
    return [f(y), z, jax.pmap(lambda a: a * 2)(x[None])]


@case
def jax_double_and_complex():
    jax, np, x = jax_ready()
    jax.config.update("jax_enable_x64", True)
    d = np.asarray(x, dtype=np.float64)
    return [np.linalg.det(d @ d.T / 64 + np.eye(64)).reshape(1), abs(np.fft.ifft2(d + 1j * d)), np.linalg.pinv(d[:20]), jax.scipy.linalg.expm(d / 64), abs(np.linalg.eigh(d + d.T)[0])]


@case
def jax_attention_of_cudnn():
    jax, np, x = jax_ready()
    q = np.asarray(x, dtype=np.bfloat16).reshape(1, 16, 4, 64)
    return [jax.nn.dot_product_attention(q, q, q, implementation="cudnn", is_causal=True).astype(np.float32)]


@case
def jax_recurrent_training():
    jax, np, x = jax_ready()

    def loss(w):
        return jax.lax.scan(lambda h, r: (np.tanh(w @ h + r), None), np.zeros(64), x)[0].sum()

    w, losses = np.eye(64) * 0.5, []
    for _ in range(4):
        value, slope = jax.jit(jax.value_and_grad(loss))(w)
        w = w - 0.01 * slope
        losses.append(value.reshape(1))
    return losses + [w]


@case
def jax_preallocates():
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "true"
    os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.05"
    jax, np, x = jax_ready()
    return [np.linalg.inv(x @ x.T + np.eye(64)), jax.jit(lambda a: np.cumsum(a, 1))(x)]


# --- Numba


def numba_ready():
    import numpy
    if not hasattr(numpy, "row_stack"):
        numpy.row_stack = numpy.vstack  # Numba asks for it, NumPy has it no more
    from numba import cuda
    return cuda, numpy


@case
def numba_grids_and_streams():
    cuda, numpy = numba_ready()

    @cuda.jit
    def sweep(x):
        grid = cuda.cg.this_grid()
        i = cuda.grid(1)
        for _ in range(5):
            value = x[(i + 1) % x.size]
            grid.sync()
            x[i] = value * 0.5 + 1
            grid.sync()

    stream = cuda.stream()
    with cuda.pinned(host := numpy.arange(256, dtype=numpy.float64)):
        x = cuda.to_device(host, stream=stream)
        sweep[2, 128, stream](x)
        x.copy_to_host(host, stream=stream)
        stream.synchronize()
    mapped = cuda.mapped_array(256, dtype=numpy.float64)
    mapped[:] = 1
    sweep[2, 128](mapped)
    cuda.synchronize()
    return [host, numpy.array(mapped)]


@case
def numba_shared_and_local():
    cuda, numpy = numba_ready()
    import numba

    @cuda.jit
    def product(a, b, c):
        tile_a, tile_b = cuda.shared.array((16, 16), numba.float32), cuda.shared.array((16, 16), numba.float32)
        x, y = cuda.grid(2)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        total = numba.float32(0)
        for k in range(a.shape[1] // 16):
            tile_a[tx, ty] = a[x, ty + k * 16]
            tile_b[tx, ty] = b[tx + k * 16, y]
            cuda.syncthreads()
            for n in range(16):
                total += tile_a[tx, n] * tile_b[n, ty]
            cuda.syncthreads()
        c[x, y] = total

    @cuda.jit
    def warp_sums(x, out):
        value = x[cuda.grid(1)]
        for offset in (16, 8, 4, 2, 1):
            value += cuda.shfl_down_sync(0xFFFFFFFF, value, offset)
        if cuda.laneid == 0:
            cuda.atomic.add(out, 0, value)

    numbers = numpy.random.default_rng(5)
    a, b = numbers.random((64, 64), dtype=numpy.float32), numbers.random((64, 64), dtype=numpy.float32)
    c, out = numpy.zeros((64, 64), dtype=numpy.float32), numpy.zeros(1, dtype=numpy.float64)
    product[(4, 4), (16, 16)](a, b, c)
    warp_sums[8, 128](numbers.random(1024), out)
    return [c, out]


# --- Compiled by nvcc


COMPILED = r"""
#include <cstdio>
#include <cooperative_groups.h>
#include <thrust/device_vector.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>
#include <cub/cub.cuh>
__managed__ int counted = 5;
__managed__ float table[4] = {1, 2, 3, 4};
__constant__ float scale;
__device__ float everything[1024];
__global__ void fill(float *x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) { x[i] = i * scale + table[i & 3]; everything[i] = x[i] + 1; atomicAdd(&counted, 1); } }
__global__ void next(float *x, int n) { cudaGridDependencySynchronize(); int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] += 1; }
__global__ void __cluster_dims__(2, 1, 1) by_cluster(float *x) {
    auto cluster = cooperative_groups::this_cluster();
    __shared__ float mine;
    if (threadIdx.x == 0) mine = blockIdx.x;
    cluster.sync();
    x[blockIdx.x * blockDim.x + threadIdx.x] += *cluster.map_shared_rank(&mine, cluster.block_rank() ^ 1);
    cluster.sync();
}
#define ASK(what) do { cudaError_t e = what; if (e != cudaSuccess) { fprintf(stderr, "%s: %s\n", #what, cudaGetErrorString(e)); return 1; } } while (0)
int main() {
    const int n = 1024;
    float by = 0.5f, host[n], *x, total = 0;
    ASK(cudaMemcpyToSymbol(scale, &by, 4));
    table[2] = 30;
    cudaStream_t s; ASK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    ASK(cudaMallocAsync(&x, n * 4, s));
    fill<<<8, 128, 0, s>>>(x, n);
    cudaLaunchAttribute early[1]; early[0].id = cudaLaunchAttributeProgrammaticStreamSerialization; early[0].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t how = {dim3(8), dim3(128), 0, s, early, 1};
    ASK(cudaLaunchKernelEx(&how, next, x, n));
    by_cluster<<<8, 128, 0, s>>>(x);
    cudaGraph_t graph; cudaGraphExec_t ready;
    ASK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    next<<<8, 128, 0, s>>>(x, n);
    ASK(cudaMemsetAsync(x, 0, 64, s));
    ASK(cudaStreamEndCapture(s, &graph));
    ASK(cudaGraphInstantiate(&ready, graph, 0));
    for (int i = 0; i < 5; i++) ASK(cudaGraphLaunch(ready, s));
    ASK(cudaMemcpyAsync(host, x, n * 4, cudaMemcpyDeviceToHost, s));
    ASK(cudaStreamSynchronize(s));
    for (int i = 0; i < n; i++) total += host[i];
    printf("result 1 %.9g %.9g\n", total, total);
    float also[n]; ASK(cudaMemcpyFromSymbol(also, everything, sizeof also));
    total = 0; for (int i = 0; i < n; i++) total += also[i];
    printf("result 1 %.9g %.9g\n", total, total);
    printf("result 1 %d %d\n", counted, counted);
    ASK(cudaMemPrefetchAsync(table, sizeof table, cudaMemLocation{cudaMemLocationTypeDevice, 0}, 0, s));
    thrust::device_vector<int> v(5000);
    for (int i = 0; i < 5000; i++) v[i] = (i * 7919) % 5003;
    thrust::sort(v.begin(), v.end());
    int sum = thrust::reduce(v.begin(), v.begin() + 100), *d; size_t bytes = 0; void *scratch = nullptr;
    printf("result 1 %d %d\n", sum, sum);
    ASK(cudaMalloc(&d, 5000 * 4));
    cub::DeviceScan::InclusiveSum(nullptr, bytes, v.data().get(), d, 5000);
    ASK(cudaMalloc(&scratch, bytes));
    cub::DeviceScan::InclusiveSum(scratch, bytes, v.data().get(), d, 5000);
    int last; ASK(cudaMemcpy(&last, d + 4999, 4, cudaMemcpyDeviceToHost));
    printf("result 1 %d %d\n", last, last);
    ASK(cudaFreeAsync(x, s)); ASK(cudaFree(d)); ASK(cudaFree(scratch)); ASK(cudaDeviceSynchronize());
    return 0;
}
"""


@case
def compiled_by_nvcc():
    import subprocess
    import numpy
    with open("compiled.cu", "w") as file:
        file.write(COMPILED)
    subprocess.run(["nvcc", "-std=c++17", "-arch=sm_90", "-o", "compiled", "compiled.cu"], check=True, capture_output=True)
    done = subprocess.run(["./compiled"], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [numpy.array([float(line.split()[2])]) for line in done.stdout.splitlines()]
