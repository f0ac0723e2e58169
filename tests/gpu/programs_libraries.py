"""Programs of the ladder: libraries that call the driver by ways of their own: PyCUDA, VkFFT, cuQuantum, cuDSS, CV-CUDA and nvImageCodec. They are left out where their packages are missing; PYTHONPATH=SITE brings along what this has installed:

pip install --no-deps --target SITE cuquantum-python-cu13==26.9.0 custatevec-cu13==1.15.0 cutensornet-cu13==2.14.0 cutensor-cu13==2.8.1 custabilizer-cu13==0.5.0 cudensitymat-cu13==0.7.0 nvmath-python==1.0.0 nvidia-cudss-cu13==0.8.0.10 cuda-pathfinder==1.9.1 cvcuda-cu13==0.19.0 nvidia-nvimgcodec-cu13==0.9.0.20 nvidia-nvjpeg==13.3.2.43 nvidia-nvjpeg2k-cu13==0.11.0.51 nvidia-nvtiff-cu13==0.8.0.82 pytools==2026.1.1 siphash24==1.9 platformdirs==4.14.8 mako==1.4.3
rm -f SITE/nvidia/__init__.py
VKFFT_BACKEND=cuda pip install --no-deps --no-build-isolation --target SITE pycuda==2026.1 pyvkfft==2025.1.1

The last two have no wheels: pip builds them, with nvcc 13.0 and the headers of CUDA and cuRAND. PyCUDA's programs compile with nvcc.
"""

from importlib import metadata

from programs_carried import needs
from programs_frameworks import toolkit
from programs_inference import needs_distribution
from programs_ready import cupy_ready, seeded, torch_ready


def loaded(distribution, *paths):
    """Loads libraries of a package, by which others find them."""
    import ctypes
    for path in paths:
        ctypes.CDLL(str(metadata.distribution(distribution).locate_file(path)), ctypes.RTLD_GLOBAL)


def libraries_of_cuda(*names):
    from cuda.pathfinder import load_nvidia_dynamic_lib
    for name in names:
        load_nvidia_dynamic_lib(name)


# --- PyCUDA: a context of its own, modules from nvcc, and the driver's older functions


def pycuda_ready(of_its_own=True):
    import importlib
    import os
    libraries_of_cuda("curand")
    compiler = os.path.join(toolkit(), "bin")
    if os.path.exists(os.path.join(compiler, "nvcc")):
        os.environ["PATH"] = f"{compiler}:{os.environ.get('PATH', '')}"
    importlib.import_module("pycuda.autoinit" if of_its_own else "pycuda.autoprimaryctx")
    import numpy
    import pycuda.driver as driver
    return driver, numpy, numpy.random.default_rng(7)


KERNELS = r"""
__constant__ float weights[8];
__device__ int counted;
__global__ void weighted(const float *x, float *y, int n, float by) {
    extern __shared__ float shared[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    shared[threadIdx.x] = i < n ? x[i] * weights[i % 8] : 0.0f;
    __syncthreads();
    if (i < n) { y[i] = by * shared[blockDim.x - 1 - threadIdx.x]; atomicAdd(&counted, 1); }
}
__global__ void across(const char *rows, size_t pitch, float *sums, int width, int height) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= height) return;
    const float *line = (const float *)(rows + row * pitch);
    float total = 0;
    for (int i = 0; i < width; i++) total += line[i];
    sums[row] = total;
}
"""


@needs("pycuda")
def pycuda_kernels_and_memory():
    driver, numpy, random = pycuda_ready()
    from pycuda.compiler import SourceModule
    module = SourceModule(KERNELS)
    place, size = module.get_global("weights")
    driver.memcpy_htod(place, numpy.arange(size // 4, dtype=numpy.float32))
    x, y = random.random(1000).astype(numpy.float32), numpy.zeros(1000, numpy.float32)
    weighted = module.get_function("weighted")
    weighted(driver.In(x), driver.Out(y), numpy.int32(1000), numpy.float32(1.5), block=(128, 1, 1), grid=(8, 1), shared=512)
    # The way of launching that the driver had first.
    memory, again = driver.mem_alloc(4000), driver.mem_alloc(4000)
    driver.memcpy_htod(memory, x)
    weighted.prepare("PPif")
    stream, begun, ended = driver.Stream(), driver.Event(), driver.Event()
    begun.record(stream)
    weighted.prepared_async_call((8, 1), (128, 1, 1), stream, memory, again, 1000, 0.5, shared_size=512)
    ended.record(stream)
    ended.synchronize()
    assert ended.time_since(begun) >= 0 and stream.is_done()
    later = numpy.zeros_like(x)
    driver.memcpy_dtoh(later, again)
    counted = numpy.zeros(1, numpy.int32)
    driver.memcpy_dtoh(counted, module.get_global("counted")[0])
    rows, pitch = driver.mem_alloc_pitch(100 * 4, 60, 4)
    driver.memset_d2d32(rows, pitch, 0, 100, 60)
    copy = driver.Memcpy2D()
    table = random.random((60, 90)).astype(numpy.float32)
    copy.set_src_host(table)
    copy.set_dst_device(int(rows))
    copy.src_pitch, copy.dst_pitch, copy.width_in_bytes, copy.height = 90 * 4, pitch, 90 * 4, 60
    copy(aligned=False)
    sums = numpy.zeros(60, numpy.float32)
    module.get_function("across")(rows, numpy.uint64(pitch), driver.Out(sums), numpy.int32(100), numpy.int32(60), block=(64, 1, 1), grid=(1, 1))
    assert numpy.allclose(sums, table.sum(axis=1), rtol=1e-4)
    facts = [weighted.get_attribute(driver.function_attribute.MAX_THREADS_PER_BLOCK), weighted.num_regs, driver.mem_get_address_range(int(memory) + 40)[1]]
    return [y, later, counted, sums, numpy.array(facts)]


@needs("pycuda")
def pycuda_memory_of_the_host():
    """Pinned, mapped and managed memory."""
    driver, numpy, random = pycuda_ready(of_its_own=False)
    from pycuda.compiler import SourceModule
    module = SourceModule("__global__ void more(float *x, float by, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = x[i] * by + i; }")
    more, stream, found = module.get_function("more"), driver.Stream(), []
    pinned = driver.pagelocked_empty(1000, numpy.float32)
    pinned[:] = random.random(1000)
    memory = driver.mem_alloc(4000)
    driver.memcpy_htod_async(memory, pinned, stream)
    more(memory, numpy.float32(2), numpy.int32(1000), block=(128, 1, 1), grid=(8, 1), stream=stream)
    back = driver.pagelocked_zeros(1000, numpy.float32)
    driver.memcpy_dtoh_async(back, memory, stream)
    stream.synchronize()
    found.append(back.copy())
    mapped = driver.pagelocked_empty(1000, numpy.float32, mem_flags=driver.host_alloc_flags.DEVICEMAP)
    mapped[:] = pinned
    more(numpy.uintp(mapped.base.get_device_pointer()), numpy.float32(3), numpy.int32(1000), block=(128, 1, 1), grid=(8, 1), stream=stream)
    stream.synchronize()
    found.append(mapped.copy())
    managed = driver.managed_empty(1000, numpy.float32, mem_flags=driver.mem_attach_flags.GLOBAL)
    managed[:] = 1
    more(numpy.uintp(managed.base.get_device_pointer()), numpy.float32(4), numpy.int32(1000), block=(128, 1, 1), grid=(8, 1))
    driver.Context.synchronize()
    found.append(managed.copy())
    free, total = driver.mem_get_info()
    assert 0 < free <= total
    return found


@needs("pycuda")
def pycuda_arrays():
    driver, numpy, random = pycuda_ready()
    from pycuda import gpuarray
    from pycuda.elementwise import ElementwiseKernel
    from pycuda.reduction import ReductionKernel
    from pycuda.scan import InclusiveScanKernel
    from pycuda.tools import DeviceMemoryPool
    pool = DeviceMemoryPool()
    x, y = (gpuarray.to_gpu(random.random((40, 50)).astype(numpy.float32), allocator=pool.allocate) for _ in range(2))
    curved = ElementwiseKernel("float *x, float *y, float *z", "z[i] = sinf(x[i]) * y[i] + (i % 7)", "curved")
    z = gpuarray.empty_like(x)
    curved(x, y, z)
    norm = ReductionKernel(numpy.float32, neutral="0", reduce_expr="a + b", map_expr="x[i] * x[i]", arguments="const float *x")
    sums = gpuarray.to_gpu(random.integers(0, 9, 5000).astype(numpy.int32))
    InclusiveScanKernel(numpy.int32, "a + b")(sums)
    total = gpuarray.dot(x, y)
    assert pool.active_blocks > 0
    return [part.get() for part in (z, x + y, norm(x), sums, total, x[3:30:2], z.reshape(50, 40)[5:9].copy())]


@needs("pycuda")
def pycuda_random_numbers():
    """Generators whose kernels include cuRAND's, and Sobol's from tables of the library."""
    driver, numpy, random = pycuda_ready()
    import os
    import pycuda.compiler
    from importlib.util import find_spec
    from pycuda import curandom, gpuarray
    pycuda.compiler.DEFAULT_NVCC_FLAGS += [f"-I{folder}" for place in find_spec("nvidia").submodule_search_locations for folder in [os.path.join(place, "cu13", "include")] if os.path.exists(os.path.join(folder, "curand_kernel.h"))]

    def seeds(count):
        return gpuarray.to_gpu(numpy.arange(count, dtype=numpy.int32) + 7)

    generator, found = curandom.XORWOWRandomNumberGenerator(seed_getter=seeds), []
    found += [generator.gen_uniform(4000, numpy.float32), generator.gen_normal(4000, numpy.float32)]
    found.append(curandom.Sobol32RandomNumberGenerator().gen_uniform(1000, numpy.float32))
    return [part.get() for part in found]


# Textures and surfaces that a module declares, which today's nvcc does not write any more.
REFERENCES = """
.version 7.0
.target sm_70
.address_size 64
.global .texref picture;
.global .surfref board;
.visible .entry look(.param .u64 look_out, .param .u32 look_width, .param .u32 look_height) {
  .reg .pred %p<3>; .reg .b32 %r<12>; .reg .f32 %f<9>; .reg .b64 %d<5>;
  ld.param.u64 %d1, [look_out]; ld.param.u32 %r1, [look_width]; ld.param.u32 %r2, [look_height];
  mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  mul.lo.s32 %r7, %r1, %r2;
  setp.ge.s32 %p1, %r6, %r7;
  @%p1 bra DONE;
  div.s32 %r8, %r6, %r1;
  rem.s32 %r9, %r6, %r1;
  cvt.rn.f32.s32 %f1, %r9; cvt.rn.f32.s32 %f2, %r8;
  add.f32 %f1, %f1, 0f3F400000; add.f32 %f2, %f2, 0f3E800000;
  tex.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [picture, {%f1, %f2}];
  cvta.to.global.u64 %d2, %d1;
  mul.wide.s32 %d3, %r6, 4;
  add.s64 %d4, %d2, %d3;
  st.global.f32 [%d4], %f3;
  add.f32 %f7, %f3, %f3;
  mov.b32 %r10, %f7;
  shl.b32 %r11, %r9, 2;
  sust.b.2d.b32.trap [board, {%r11, %r8}], {%r10};
DONE:
  ret;
}
"""


@needs("pycuda")
def pycuda_textures_and_surfaces():
    driver, numpy, random = pycuda_ready()
    picture = random.random((48, 64)).astype(numpy.float32)
    module = driver.module_from_buffer(REFERENCES.encode())
    texture, surface = module.get_texref("picture"), module.get_surfref("board")
    texture.set_array(driver.matrix_to_array(picture, "C"))
    texture.set_filter_mode(driver.filter_mode.LINEAR)
    texture.set_address_mode(0, driver.address_mode.CLAMP)
    texture.set_address_mode(1, driver.address_mode.CLAMP)
    shape = driver.ArrayDescriptor3D()
    shape.width, shape.height, shape.depth, shape.format, shape.num_channels, shape.flags = 64, 48, 0, driver.array_format.FLOAT, 1, driver.array3d_flags.SURFACE_LDST
    board = driver.Array(shape)
    surface.set_array(board)
    seen = numpy.zeros_like(picture)
    look = module.get_function("look")
    look(driver.Out(seen), numpy.int32(64), numpy.int32(48), block=(128, 1, 1), grid=(24, 1), texrefs=[texture])
    drawn = numpy.zeros_like(picture)
    copy = driver.Memcpy2D()
    copy.set_src_array(board)
    copy.set_dst_host(drawn)
    copy.width_in_bytes, copy.dst_pitch, copy.height = 64 * 4, 64 * 4, 48
    copy(aligned=False)
    assert numpy.allclose(drawn, 2 * seen)
    return [seen, drawn]


@needs("pycuda")
def pycuda_linked_modules():
    """A module that the driver links from several sources, whose kernel launches another one."""
    driver, numpy, random = pycuda_ready(of_its_own=False)
    from pycuda.compiler import DynamicModule, DynamicSourceModule
    parts = DynamicModule()
    parts.add_source("__device__ float twice(float x) { return x + x; }", nvcc_options=["-rdc=true"], name="twice.ptx")
    parts.add_source("extern __device__ float twice(float x); __global__ void apply(float *x, int n) { int i = threadIdx.x; if (i < n) x[i] = twice(x[i]) + 1; }", nvcc_options=["-rdc=true"], name="apply.ptx")
    parts.link()
    x = random.random(100).astype(numpy.float32)
    y, z = x.copy(), x.copy()
    parts.get_function("apply")(driver.InOut(y), numpy.int32(100), block=(128, 1, 1), grid=(1, 1))
    nested = DynamicSourceModule("""
        __global__ void inner(float *x, int at) { x[at * 10 + threadIdx.x] += at; }
        __global__ void outer(float *x) { inner<<<1, 10>>>(x, threadIdx.x); }""")
    nested.get_function("outer")(driver.InOut(z), block=(10, 1, 1), grid=(1, 1))
    driver.Context.synchronize()
    assert numpy.allclose(y, 2 * x + 1)
    return [y, z]


@needs("pycuda")
def pycuda_several_contexts():
    """Contexts of its own one above the other, each with memory and a module, and memory that another process opens."""
    driver, numpy, random = pycuda_ready(of_its_own=False)
    import multiprocessing
    from pycuda.compiler import compile
    image = compile("__global__ void add(float *x, float by) { x[threadIdx.x] += by; }", arch="sm_90")
    driver.Context.pop()
    device, found, x = driver.Device(0), [], random.random(256).astype(numpy.float32)
    contexts, memories = [], []
    for _ in range(2):
        contexts.append(device.make_context())
        memories.append(driver.mem_alloc(x.nbytes))
        driver.memcpy_htod(memories[-1], x)
        contexts[-1].pop()
    for at, (context, memory) in enumerate(zip(contexts, memories)):
        context.push()
        module = driver.module_from_buffer(image)
        module.get_function("add")(memory, numpy.float32(at + 1), block=(256, 1, 1), grid=(1, 1))
        y = numpy.zeros_like(x)
        driver.memcpy_dtoh(y, memory)
        found.append(y)
        del module
        context.pop()
    contexts[0].push()
    child = multiprocessing.get_context("spawn")
    answers = child.Queue()
    process = child.Process(target=memory_of_another, args=(bytes(driver.mem_get_ipc_handle(memories[0])), x.nbytes, answers))
    process.start()
    found.append(numpy.frombuffer(answers.get(timeout=60), dtype=numpy.float32))
    process.join(30)
    driver.memcpy_dtoh(y, memories[0])
    found.append(y.copy())
    contexts[0].pop()
    for context, memory in zip(contexts, memories):
        context.push()
        memory.free()
        context.pop()
        context.detach()
    import pycuda.autoprimaryctx
    pycuda.autoprimaryctx.context.push()
    return found


def memory_of_another(handle, size, answers):
    libraries_of_cuda("curand")
    import numpy
    import pycuda.autoprimaryctx  # noqa: F401
    import pycuda.driver as driver
    memory = driver.IPCMemoryHandle(bytearray(handle))
    seen = numpy.zeros(size // 4, numpy.float32)
    driver.memcpy_dtoh(seen, int(memory))
    driver.memset_d32(int(memory), 0x3F800000, 16)
    driver.Context.synchronize()
    memory.close()
    answers.put(seen.tobytes())


# --- VkFFT: transforms that write their own kernels for NVRTC


@needs("pyvkfft")
def vkfft_transforms():
    cupy, random = cupy_ready()
    libraries_of_cuda("nvrtc")
    import numpy
    from pyvkfft import fft
    found = []
    for kind in ("complex64", "complex128"):
        for shape in ((64, 64), (6, 100, 49), (3, 1009)):
            x = cupy.asarray((random.random(shape) + 1j * random.random(shape)).astype(kind))
            there = fft.fftn(x, ndim=min(len(shape), 2))
            back = fft.ifftn(there, ndim=min(len(shape), 2))
            wanted = numpy.fft.fftn(x.get(), axes=(-2, -1))
            assert numpy.allclose(there.get(), wanted, rtol=1e-3, atol=1e-2) and numpy.allclose(back.get(), x.get(), rtol=1e-3, atol=1e-4)
            found += [there.real, there.imag, back.real]
    real = cupy.asarray(random.random((8, 128)).astype("float32"))
    half = fft.rfftn(real, ndim=1)
    found += [half.real, half.imag, fft.irfftn(half, ndim=1), fft.dctn(real, ndim=2, dct_type=2), fft.dstn(real, ndim=1, dst_type=1)]
    return found


# --- cuQuantum: networks of tensors, and states of qubits


def quantum_ready():
    libraries_of_cuda("cudart", "nvJitLink", "cublasLt", "cublas", "cusparse", "cusolver", "curand")
    loaded("cutensor-cu13", "cutensor/lib/libcutensor.so.2")
    loaded("cutensornet-cu13", "cuquantum/lib/libcutensornet.so.2")
    loaded("custatevec-cu13", "cuquantum/lib/libcustatevec.so.1")
    return cupy_ready()


@needs_distribution("cuquantum-python-cu13")
def cuquantum_networks():
    """Contractions in an order that it finds, slices of them, gradients, and factors of tensors."""
    cupy, random = quantum_ready()
    torch = torch_ready()
    from cuquantum import tensornet
    a, b, c, d = (cupy.asarray(random.random(shape)) for shape in ((8, 16, 12), (12, 10, 20), (16, 20, 6, 8), (10, 6, 8)))
    expression, found = "aij,jkl,ilmb,kmc->abc", []
    whole, (path, told) = tensornet.contract(expression, a, b, c, d, optimize={"samples": 4, "seed": 7, "threads": 1}, return_info=True)
    assert cupy.allclose(whole, cupy.einsum(expression, a, b, c, d)) and len(path) == 3
    found.append(whole)
    with tensornet.Network(expression, *(part.astype("complex64") for part in (a, b, c, d))) as network:
        network.contract_path(optimize={"samples": 4, "seed": 7, "threads": 1, "slicing": {"min_slices": 4}})
        network.autotune(iterations=2)
        sliced = network.contract()
        found += [sliced.real, sliced.imag]
        network.reset_operands(*(part.astype("complex64") * 1j for part in (a, b, c, d)))
        found.append(network.contract().real)
    x, y = seeded(torch, 24, 32).requires_grad_(), seeded(torch, 32, 16).requires_grad_()
    product = tensornet.contract("ij,jk,ik->i", x, y, seeded(torch, 24, 16))
    product.square().sum().backward()
    found += [product.detach(), x.grad, y.grad]
    q, r = tensornet.tensor.decompose("ijk->ijx,xk", a)
    u, s, v = tensornet.tensor.decompose("ijk->ix,xjk", a, method=tensornet.tensor.SVDMethod(max_extent=5))
    return [*found, abs(q), abs(r), abs(u), s, abs(v)]


@needs_distribution("cuquantum-python-cu13")
def cuquantum_states():
    """Gates on a state of qubits, what is expected and what is drawn of it, by calls to cuStateVec."""
    cupy, random = quantum_ready()
    import cuquantum
    import numpy
    from cuquantum.bindings import custatevec
    qubits, handle, found = 14, custatevec.create(), []
    kind, precision = cuquantum.cudaDataType.CUDA_C_64F, cuquantum.ComputeType.COMPUTE_64F
    state = cupy.zeros(1 << qubits, dtype="complex128")
    state[0] = 1
    layout, workspace = custatevec.MatrixLayout.ROW, None

    def apply(matrix, targets, controls=()):
        nonlocal workspace
        gate = cupy.asarray(matrix, dtype="complex128")
        size = custatevec.apply_matrix_get_workspace_size(handle, kind, qubits, gate.data.ptr, kind, layout, 0, len(targets), len(controls), precision)
        workspace = cupy.cuda.alloc(max(size, 1))
        custatevec.apply_matrix(handle, state.data.ptr, kind, qubits, gate.data.ptr, kind, layout, 0, list(targets), len(targets), list(controls), 0, len(controls), precision, workspace.ptr, size)

    hadamard, flip = numpy.array([[1, 1], [1, -1]]) / 2 ** 0.5, numpy.array([[0, 1], [1, 0]])
    for turn in range(3):
        for at in range(qubits):
            angle = random.random() * 3
            apply(hadamard if turn == 0 else numpy.array([[numpy.cos(angle), -1j * numpy.sin(angle)], [-1j * numpy.sin(angle), numpy.cos(angle)]]), [at])
        for at in range(qubits - 1):
            apply(flip, [at + 1], [at])
    pair = numpy.linalg.qr(random.random((4, 4)) + 1j * random.random((4, 4)))[0]
    apply(pair, [3, 9])
    norm = float(cupy.linalg.norm(state))
    assert abs(norm - 1) < 1e-9
    found += [state.real, state.imag]
    chances = numpy.zeros(4)
    custatevec.abs2sum_array(handle, state.data.ptr, kind, qubits, chances.ctypes.data, [0, 5], 2, 0, 0, 0)
    expected = numpy.zeros(2)
    custatevec.compute_expectations_on_pauli_basis(handle, state.data.ptr, kind, qubits, expected.ctypes.data, [[custatevec.Pauli.X, custatevec.Pauli.Z], [custatevec.Pauli.Z]], 2, [[0, 3], [7]], [2, 1])
    sampler, size = custatevec.sampler_create(handle, state.data.ptr, kind, qubits, 500)
    scratch, drawn = cupy.cuda.alloc(max(size, 1)), numpy.zeros(500, numpy.int64)
    custatevec.sampler_preprocess(handle, sampler, scratch.ptr, size)
    custatevec.sampler_sample(handle, sampler, drawn.ctypes.data, list(range(qubits)), qubits, numpy.sort(random.random(500)).ctypes.data, 500, custatevec.SamplerOutput.RANDNUM_ORDER)
    custatevec.sampler_destroy(sampler)
    custatevec.destroy(handle)
    return [*found, chances, expected, drawn]


# --- cuDSS: factors of sparse matrices


@needs_distribution("nvidia-cudss-cu13")
def cudss_solves():
    cupy, random = cupy_ready()
    libraries_of_cuda("cudart", "nvrtc", "cublasLt", "cublas")
    loaded("nvidia-cudss-cu13", "nvidia/cu13/lib/libcudss.so.0")
    torch = torch_ready()
    from cupyx.scipy import sparse
    from nvmath.sparse.advanced import DirectSolver, direct_solver
    side, found = 40, []
    line = sparse.diags([-1.0, 2.5, -1.0], [-1, 0, 1], shape=(side, side))
    grid = sparse.csr_matrix(sparse.kron(line, sparse.eye(side))) + sparse.csr_matrix(sparse.kron(sparse.eye(side), line))
    b = cupy.asfortranarray(cupy.asarray(random.random((side * side, 3))))
    with DirectSolver(grid, b) as solver:
        solver.plan()
        solver.factorize()
        x = solver.solve()
        assert cupy.allclose(grid @ x, b)
        found.append(x)
        grid.data *= 2
        solver.reset_operands(a=grid, b=b)
        solver.plan()
        solver.factorize()
        found.append(solver.solve())
    rows = torch.eye(50) * 4 + torch.rand(50, 50).round(decimals=1) * (torch.rand(50, 50) > 0.9)
    wide = rows.double().cuda().to_sparse_csr()
    narrow = torch.sparse_csr_tensor(wide.crow_indices().int(), wide.col_indices().int(), wide.values(), size=(50, 50))
    found.append(direct_solver(narrow, torch.arange(50.0, dtype=torch.float64, device="cuda")))
    return found


# --- CV-CUDA and nvImageCodec: pictures


def pictures(torch, count=3, height=120, width=160):
    """Waves and noise, as bytes of three colours."""
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    waves = torch.stack([torch.sin(rows / (7 + k) + columns / (11 + 2 * k)) for k in range(3 * count)]).view(count, 3, height, width).permute(0, 2, 3, 1)
    return (127 + 100 * waves + 20 * torch.rand(count, height, width, 3)).clamp(0, 255).to(torch.uint8).contiguous()


@needs("cvcuda")
def cvcuda_shapes_and_colours():
    torch = torch_ready()
    import cvcuda
    import numpy
    source = pictures(torch).cuda()
    picture, found = cvcuda.as_tensor(source, "NHWC"), []
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with cvcuda.as_stream(stream):
        found += [cvcuda.resize(picture, (3, 60, 100, 3), interp) for interp in (cvcuda.Interp.NEAREST, cvcuda.Interp.LINEAR, cvcuda.Interp.CUBIC, cvcuda.Interp.AREA)]
        found += [cvcuda.cvtcolor(picture, code) for code in (cvcuda.ColorConversion.RGB2GRAY, cvcuda.ColorConversion.RGB2HSV, cvcuda.ColorConversion.RGB2YUV)]
        found.append(cvcuda.rotate(picture, 30.0, (20.0, 10.0), cvcuda.Interp.LINEAR))
        found.append(cvcuda.flip(picture, -1))
        found.append(cvcuda.warp_affine(picture, numpy.array([[0.9, 0.2, 5], [-0.1, 1.1, 3]], numpy.float32), cvcuda.Interp.LINEAR, border_mode=cvcuda.Border.REFLECT))
        found.append(cvcuda.copymakeborder(picture, cvcuda.Border.WRAP, [], top=5, bottom=6, left=7, right=8))
        numbers = cvcuda.convertto(picture, numpy.float32, 1 / 255.0)
        found += [numbers, cvcuda.reformat(numbers, "NCHW")]
    stream.synchronize()
    return [torch.as_tensor(part.cuda(), device="cuda").clone() for part in found]


@needs("cvcuda")
def cvcuda_filters_and_findings():
    torch = torch_ready()
    import cvcuda
    source, found = pictures(torch).cuda(), []
    picture = cvcuda.as_tensor(source, "NHWC")
    torch.cuda.synchronize()
    grey = cvcuda.cvtcolor(picture, cvcuda.ColorConversion.RGB2GRAY)
    found += [cvcuda.gaussian(picture, (5, 5), (1.2, 1.2), cvcuda.Border.REFLECT), cvcuda.median_blur(picture, (5, 5)), cvcuda.bilateral_filter(picture, 5, 30.0, 3.0), cvcuda.laplacian(picture, 3)]
    found += [cvcuda.morphology(grey, kind, (5, 5), (-1, -1), border=cvcuda.Border.REPLICATE) for kind in (cvcuda.MorphologyType.ERODE, cvcuda.MorphologyType.DILATE)]
    found.append(cvcuda.adaptivethreshold(grey, 255.0, cvcuda.AdaptiveThresholdType.GAUSSIAN_C, cvcuda.ThresholdType.BINARY, block_size=11, c=3.0))
    found.append(cvcuda.histogrameq(grey, dtype=cvcuda.Type.U8))
    bright = cvcuda.as_tensor((source[..., 0] > 180).to(torch.uint8).mul(255).unsqueeze(-1).contiguous(), "NHWC")
    torch.cuda.synchronize()
    # The names of the parts differ from run to run, so they are only counted.
    labels = cvcuda.label(bright, cvcuda.ConnectivityType.CONNECTIVITY_4_2D)[0]
    named = torch.as_tensor(labels.cuda(), device="cuda").to(torch.int64)
    counts = torch.tensor([float(named[at].unique().numel()) for at in range(3)])
    found.append(cvcuda.histogram(grey))
    return [*(torch.as_tensor(part.cuda(), device="cuda").clone() for part in found), counts]


@needs_distribution("nvidia-nvimgcodec-cu13")
def nvimgcodec_writes_and_reads():
    """Pictures to bytes and back, without the card's own unit for JPEG."""
    torch = torch_ready()
    import numpy
    loaded("nvidia-nvjpeg", "nvidia/cu13/lib/libnvjpeg.so.13")
    loaded("nvidia-nvjpeg2k-cu13", "nvidia/nvjpeg2k/lib/libnvjpeg2k.so.0")
    loaded("nvidia-nvtiff-cu13", "nvidia/nvtiff/lib/libnvtiff.so.0")
    from nvidia import nvimgcodec as codec
    backends = [codec.Backend(kind) for kind in (codec.BackendKind.GPU_ONLY, codec.BackendKind.HYBRID_CPU_GPU, codec.BackendKind.CPU_ONLY)]
    encoder, decoder, found = codec.Encoder(backends=backends, max_num_cpu_threads=2), codec.Decoder(backends=backends, max_num_cpu_threads=2), []
    sources = pictures(torch, 4, 128, 192).cuda()
    torch.cuda.synchronize()
    images = [codec.as_image(one) for one in sources]
    for name, how in (("jpeg", codec.EncodeParams(quality_type=codec.QualityType.QUALITY, quality_value=90)), ("jpeg2k", codec.EncodeParams(quality_type=codec.QualityType.LOSSLESS))):
        written = encoder.encode(images, name, params=how)
        assert all(one is not None for one in written), name
        read = decoder.decode(written)
        back = torch.stack([torch.as_tensor(one.cuda(), device="cuda") for one in read]).clone()
        assert (back.float() - sources.float()).abs().mean() < (12 if name == "jpeg" else 1)
        found.append(back)
    return [*found, numpy.array([len(images)])]
