"""Programs of the ladder: corners of PyTorch, Triton, CuPy, JAX, Numba and NVIDIA's own bindings that models seldom reach."""

import os

from programs_ready import case, cupy_ready, jax_ready, seeded, torch_ready

# --- PyTorch: memory


@case
def torch_memory_pools():
    torch = torch_ready()
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        x = seeded(torch, 1000, 100)
    y = x * 2
    held = len(pool.snapshot())
    assert held, "a pool that holds nothing"
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total
    return [y]


@case
def torch_memory_history():
    torch = torch_ready()
    torch.cuda.memory._record_memory_history(max_entries=1000)
    x = seeded(torch, 256, 256)
    y = (x @ x).relu()
    del x
    torch.cuda.synchronize()
    told = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(enabled=None)
    assert told["segments"] and torch.cuda.memory_summary()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return [y]


@case
def torch_memory_limit():
    torch = torch_ready()
    torch.cuda.set_per_process_memory_fraction(0.01)
    try:
        torch.empty(4 << 30, dtype=torch.uint8, device="cuda")
        assert False, "more than the limit was given"
    except torch.OutOfMemoryError:
        pass
    return [seeded(torch, 1000) + 1]


@case
def torch_more_memory_than_there_is():
    torch = torch_ready()
    total = torch.cuda.get_device_properties(0).total_memory
    try:
        torch.empty(2 * total, dtype=torch.uint8, device="cuda")
        assert False, "more than the card has was given"
    except torch.OutOfMemoryError:
        pass
    return [seeded(torch, 1000) * 3]


@case
def torch_pinned_memory():
    torch = torch_ready()
    torch.use_deterministic_algorithms(False)
    host = torch.randn(1 << 20).pin_memory()
    registered = torch.randn(1 << 18)
    cudart = torch.cuda.cudart()
    assert int(cudart.cudaHostRegister(registered.data_ptr(), registered.numel() * 4, 0)) == 0
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = host.to("cuda", non_blocking=True)
        y = registered.to("cuda", non_blocking=True)
        back = torch.empty_like(host, pin_memory=True)
        back.copy_(x * 2, non_blocking=True)
    stream.synchronize()
    assert int(cudart.cudaHostUnregister(registered.data_ptr())) == 0
    return [back, y]


@case
def torch_large_copies():
    torch = torch_ready()
    x = torch.arange(1 << 26, dtype=torch.float32, device="cuda")
    host = x.cpu()
    y = host.to("cuda")
    parts = x.view(8, -1)[:, 5:1000:7].cpu()
    return [(x - y).abs().max().reshape(1), parts, x.double().sum().reshape(1)]


@case
def torch_own_allocator():
    import ctypes
    import subprocess
    torch = torch_ready()
    source, library = os.path.abspath("allocator.cpp"), os.path.abspath("allocator.so")
    with open(source, "w") as file:
        file.write('extern "C" { int cudaMalloc(void **, unsigned long); int cudaFree(void *); int counted = 0;'
                   'void *give(long size, int, void *) { void *p = 0; counted++; cudaMalloc(&p, size); return p; }'
                   'void take(void *p, long, int, void *) { cudaFree(p); } }')
    runtime = [line.split()[-1] for line in open("/proc/self/maps") if "libcudart.so" in line][0]
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, source, runtime], check=True)
    torch.cuda.memory.change_current_allocator(torch.cuda.memory.CUDAPluggableAllocator(library, "give", "take"))
    y = seeded(torch, 300, 300) @ seeded(torch, 300, 300)
    assert ctypes.c_int.in_dll(ctypes.CDLL(library), "counted").value > 0
    return [y]


# --- PyTorch: graphs, streams, waiting


@case
def torch_graphed_callables():
    torch = torch_ready()
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda()
    graphed = torch.cuda.make_graphed_callables(model, (torch.zeros(16, 64, device="cuda"),))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x, losses = seeded(torch, 16, 64), []
    for _ in range(5):
        optimizer.zero_grad()
        loss = graphed(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().reshape(1))
    return losses


@case
def torch_graph_of_several_streams():
    torch = torch_ready()
    x, graph, side = seeded(torch, 512), torch.cuda.CUDAGraph(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x * 3
        z = x + 1
        torch.cuda.current_stream().wait_stream(side)
        out = y + z
    results = []
    for n in range(3):
        x.add_(n)
        graph.replay()
        results.append(out.clone())
    graph.reset()
    return results


@case
def torch_graphs_share_a_pool():
    torch = torch_ready()
    x = seeded(torch, 256)
    one, two = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(one):
        y = (x * 2).relu()
    with torch.cuda.graph(two, pool=one.pool()):
        z = (x - 1).sigmoid()
    results = []
    for n in range(3):
        x.fill_(n - 1)
        one.replay()
        results.append(y.clone())
        two.replay()
        results.append(z.clone())
    return results


@case
def torch_graph_of_random_numbers():
    torch = torch_ready()
    torch.cuda.manual_seed(3)
    graph = torch.cuda.CUDAGraph()
    x = torch.zeros(1000, device="cuda")
    with torch.cuda.graph(graph):
        y = torch.nn.functional.dropout(x + 1, 0.5) + torch.rand_like(x)
    results = []
    for _ in range(3):
        graph.replay()
        results.append(y.clone())
    return results


@case
def torch_streams_of_priority():
    torch = torch_ready()
    least, most = -1, 0
    streams = [torch.cuda.Stream(priority=p) for p in (least, most, least, most)]
    x, events, results = seeded(torch, 512, 512), [], []
    torch.cuda.synchronize()
    for stream in streams:
        with torch.cuda.stream(stream):
            results.append(x @ x)
            events.append(stream.record_event(torch.cuda.Event(enable_timing=True)))
    for event in events:
        event.synchronize()
        assert event.query()
    torch.cuda._sleep(100000)
    return results


@case
def torch_threads():
    import threading
    torch = torch_ready()
    x, results = seeded(torch, 256, 256), [None] * 8
    torch.cuda.synchronize()

    def work(n):
        with torch.cuda.stream(torch.cuda.Stream()):
            y = x
            for _ in range(20):
                y = torch.tanh(y @ x / 16 + n)
            results[n] = y.cpu()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@case
def torch_forked_after_import():
    torch = torch_ready()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            total = torch.arange(100.0, device="cuda").sum().item()
            os.write(writer, str(total).encode())
        finally:
            os._exit(0)
    os.close(writer)
    said = os.read(reader, 100).decode()
    os.waitpid(child, 0)
    return [torch.tensor([float(said)]), seeded(torch, 10)]


@case
def torch_events_between_processes():
    torch = torch_ready()
    import torch.multiprocessing as processes
    context = processes.get_context("spawn")
    to, back = context.Queue(), context.Queue()
    child = context.Process(target=wait_and_add, args=(to, back))
    child.start()
    event = torch.cuda.Event(interprocess=True)
    x = seeded(torch, 1000)
    event.record()
    to.put((event.ipc_handle(), x))
    total = back.get(timeout=60)
    result = x.clone()
    to.put(None)
    child.join(30)
    return [result, torch.tensor([total])]


def wait_and_add(to, back):
    import torch
    handle, x = to.get()
    event = torch.cuda.Event.from_ipc_handle(torch.device("cuda:0"), handle)
    event.wait()
    x.add_(1)
    torch.cuda.synchronize()
    back.put(x.sum().item())
    del x
    to.get()


# --- PyTorch: kernels of other kinds


@case
def torch_extension_of_ours():
    torch = torch_ready()
    from torch.utils.cpp_extension import load_inline
    os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0"
    module = load_inline("ours", cpp_sources="torch::Tensor twice(torch::Tensor x);", functions=["twice"], build_directory=os.getcwd() if not os.path.exists("build.ninja") else None, cuda_sources="""
        #include <c10/cuda/CUDAStream.h>
        __global__ void kernel(const float *x, float *y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = 2 * x[i]; }
        torch::Tensor twice(torch::Tensor x) {
            auto y = torch::empty_like(x);
            kernel<<<(x.numel() + 127) / 128, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
            return y;
        }""")
    return [module.twice(seeded(torch, 1000))]


@case
def torch_compiled_at_run_time():
    torch = torch_ready()
    x = seeded(torch, 1000)
    squares = torch.cuda.jiterator._create_jit_fn("template <typename T> T squares(T x) { return x * x + T(1); }")
    results = [squares(x), torch.special.bessel_j0(x.abs()), torch.special.airy_ai(x)]
    kernel = torch.cuda._compile_kernel('extern "C" __global__ void thrice(float *x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 3; }', "thrice")
    y = x.clone()
    kernel(grid=(8, 1, 1), block=(128, 1, 1), args=[y, 1000])
    return results + [y]


@case
def torch_scripts():
    torch = torch_ready()

    @torch.jit.script
    def f(x, y):
        z = x * y + torch.sin(x)
        for _ in range(3):
            z = z * 0.5 + y
        return z.relu()

    x, y = seeded(torch, 1000), seeded(torch, 1000)
    return [f(x, y) for _ in range(4)]


@case
def torch_compile_with_autotuning():
    torch = torch_ready()

    @torch.compile(mode="max-autotune-no-cudagraphs")
    def f(x, y):
        return torch.relu(x @ y)

    x, y = seeded(torch, 256, 256, dtype=torch.float16), seeded(torch, 256, 256, dtype=torch.float16)
    return [f(x, y)]


@case
def torch_compile_training():
    torch = torch_ready()
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64), torch.nn.GELU(), torch.nn.Linear(64, 8)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    step = torch.compile(lambda x: model(x).square().mean())
    losses = []
    x = seeded(torch, 32, 64)
    for _ in range(4):
        optimizer.zero_grad()
        loss = step(x)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().reshape(1))
    return losses


@case
def torch_attention_by_blocks():
    torch = torch_ready()
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    q, k, v = (seeded(torch, 1, 4, 256, 64, dtype=torch.float16) for _ in range(3))
    mask = create_block_mask(lambda b, h, i, j: i >= j, 1, None, 256, 256, device="cuda")
    return [torch.compile(flex_attention)(q, k, v, block_mask=mask)]


@case
def torch_sparse_halves():
    torch = torch_ready()
    from torch.sparse import to_sparse_semi_structured
    dense = seeded(torch, 128, 128, dtype=torch.float16) * torch.tensor([1, 0, 0, 1], device="cuda").repeat(128, 32)
    x = seeded(torch, 128, 64, dtype=torch.float16)
    return [torch.mm(to_sparse_semi_structured(dense.half()), x)]


@case
def torch_sparse_blocks():
    torch = torch_ready()
    dense = seeded(torch, 64, 64) * torch.kron(torch.eye(4), torch.ones(16, 16)).cuda()
    x = seeded(torch, 64, 32)
    blocks = dense.to_sparse_bsr((16, 16))
    return [blocks @ x, dense.to_sparse_csr() @ x, torch.sparse.mm(dense.to_sparse(), x)]


@case
def torch_nested_tensors():
    torch = torch_ready()
    rows = [seeded(torch, n, 64, dtype=torch.float16) for n in (5, 17, 33)]
    nested = torch.nested.nested_tensor(rows, layout=torch.jagged)
    layer = torch.nn.Linear(64, 32).cuda().half()
    heads = [layer(nested).unflatten(-1, (2, 16)).transpose(1, 2) for _ in range(3)]
    attended = torch.nn.functional.scaled_dot_product_attention(*heads)
    return [layer(nested).values().detach(), attended.transpose(1, 2).values().detach()]


@case
def torch_functions_of_functions():
    torch = torch_ready()
    from torch.func import grad, hessian, jacrev, vmap
    x = seeded(torch, 12, 8)

    def f(row):
        return (row.sin() * row).sum()

    return [vmap(grad(f))(x), jacrev(lambda row: row.exp())(x[0]), hessian(f)(x[1])]


@case
def torch_sequences():
    torch = torch_ready()
    torch.use_deterministic_algorithms(False)
    scores = seeded(torch, 50, 4, 20).log_softmax(-1).requires_grad_()
    targets = torch.randint(1, 20, (4, 10))
    loss = torch.nn.functional.ctc_loss(scores, targets.cuda(), torch.full((4,), 50), torch.full((4,), 10))
    loss.backward()
    gru = torch.nn.GRU(16, 32, 2, bidirectional=True).cuda()
    packed = torch.nn.utils.rnn.pack_padded_sequence(seeded(torch, 9, 3, 16), torch.tensor([9, 5, 2]))
    return [loss.detach().reshape(1), scores.grad, gru(packed)[0].data.detach()]


@case
def torch_volumes():
    torch = torch_ready()
    torch.use_deterministic_algorithms(False)
    x = seeded(torch, 1, 4, 12, 12, 12)
    f = torch.nn.functional
    conv = torch.nn.Conv3d(4, 8, 3, padding=1, groups=2).cuda()
    up = torch.nn.ConvTranspose3d(8, 4, 2, 2).cuda()
    grid = seeded(torch, 1, 6, 6, 6, 3).tanh()
    return [conv(x).detach(), up(conv(x)).detach(), f.grid_sample(x, grid, align_corners=False), f.interpolate(x, scale_factor=1.5, mode="trilinear"), f.adaptive_avg_pool3d(x, 3)]


@case
def torch_quantities_from_the_card():
    torch = torch_ready()
    x = seeded(torch, 1000)
    picked = x[x > 0]
    values, places = torch.unique((x * 10).int(), return_inverse=True)
    return [picked, torch.nonzero(x > 1).float(), values.float(), places.float(), torch.multinomial(x.softmax(0), 1000, replacement=False).sort()[0].float(), torch.bincount((x.abs() * 5).int()).float()]


@case
def torch_assertion_of_a_kernel():
    torch = torch_ready()
    import subprocess
    import sys
    code = "import torch; x = torch.zeros(4, device='cuda'); i = torch.tensor([9], device='cuda'); print(x[i].cpu())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    told = done.returncode != 0 and ("device-side assert" in done.stderr or "AcceleratorError" in done.stderr)
    assert told, done.stderr[-300:]
    return [seeded(torch, 100) + 1]


# --- PyTorch: several ranks


@case
def torch_sharded_training():
    torch = torch_ready()
    import torch.distributed as ranks
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
    ranks.init_process_group("nccl", store=ranks.HashStore(), rank=0, world_size=1)
    from torch.distributed.fsdp import fully_shard
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda()
    for layer in (model[0], model[2], model):
        fully_shard(layer)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=1e-3), []
    x = seeded(torch, 32, 64)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().reshape(1))
    ranks.destroy_process_group()
    return losses


@case
def torch_averaged_training():
    torch = torch_ready()
    import torch.distributed as ranks
    os.environ |= {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
    ranks.init_process_group("nccl", store=ranks.HashStore(), rank=0, world_size=1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 8).cuda(), device_ids=[0])
    x, losses = seeded(torch, 32, 64), []
    for _ in range(3):
        loss = model(x).square().mean()
        loss.backward()
        losses += [loss.detach().reshape(1), model.module.weight.grad.clone()]
        model.zero_grad()
    ranks.destroy_process_group()
    return losses


# --- Triton


@case
def triton_tensors_by_descriptor():
    torch = torch_ready()
    import triton_kernels_of_corners as kernels
    a, b = seeded(torch, 256, 128, dtype=torch.float16), seeded(torch, 128, 256, dtype=torch.float16)
    return [kernels.product_by_descriptor(a, b), kernels.persistent_product(a, b)]


@case
def triton_atomics_and_assembly():
    torch = torch_ready()
    import triton_kernels_of_corners as kernels
    x = (seeded(torch, 4096) * 8).int()
    return [kernels.histogram(x.abs() % 16, 16), kernels.by_assembly(x), kernels.sorted_rows(seeded(torch, 8, 256)), kernels.running_sums(seeded(torch, 8, 256))]


@case
def triton_measures_itself():
    torch = torch_ready()
    import triton_kernels_of_corners as kernels
    from triton.testing import do_bench, do_bench_cudagraph
    x = (seeded(torch, 4096) * 8).int()
    assert do_bench(lambda: kernels.by_assembly(x), warmup=5, rep=20) > 0
    with torch.cuda.stream(torch.cuda.Stream()):
        assert do_bench_cudagraph(lambda: kernels.by_assembly(x), rep=5) > 0
    return [kernels.by_assembly(x)]


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
