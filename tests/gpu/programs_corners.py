"""Programs of the ladder: corners of PyTorch and Triton that models seldom reach."""

import os

from programs_ready import case, seeded, torch_ready

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
