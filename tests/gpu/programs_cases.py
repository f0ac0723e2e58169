"""Programs of the ladder: products, models, and the libraries of CUDA through PyTorch, CuPy, JAX and Numba. programs_run.py runs one."""

import os

from programs_ready import case, cupy_ready, jax_ready, numpy_int, seeded, torch_ready

# --- PyTorch: products, half precision, models


@case
def torch_half_products():
    torch = torch_ready()
    a, b, bias = (seeded(torch, *shape, dtype=torch.float16) for shape in ((256, 512), (512, 128), (128,)))
    return [a @ b, torch.addmm(bias, a, b), torch.nn.functional.linear(a, b.t(), bias), torch.bmm(a.view(4, 64, 512), b.expand(4, 512, 128))]


@case
def torch_bfloat_products():
    torch = torch_ready()
    a, b, bias = (seeded(torch, *shape, dtype=torch.bfloat16) for shape in ((256, 512), (512, 128), (128,)))
    return [a @ b, torch.addmm(bias, a, b), torch.nn.functional.gelu(a @ b), torch.matmul(a.view(2, 128, 512), b)]


@case
def torch_eight_bit_products():
    torch = torch_ready()
    a, b = seeded(torch, 64, 128), seeded(torch, 128, 64)
    one = torch.tensor(1.0, device="cuda")
    f8 = torch._scaled_mm(a.to(torch.float8_e4m3fn), b.t().contiguous().t().to(torch.float8_e4m3fn), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    i8 = torch._int_mm((a * 20).to(torch.int8), (b * 20).to(torch.int8))
    return [f8, i8]


@case
def torch_float_products():
    torch = torch_ready()
    a, b = seeded(torch, 300, 200), seeded(torch, 200, 100)
    return [a @ b, a.double() @ b.double(), torch.einsum("ij,jk->k", a, b), torch.complex(a, a) @ torch.complex(b, -b)]


@case
def gpt2_generate_half():
    torch = torch_ready()
    from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=1000)).half().cuda().eval()
    ids = torch.arange(16, device="cuda").view(1, 16)
    with torch.no_grad():
        return [model.generate(ids, max_new_tokens=24, do_sample=False, pad_token_id=0), model(ids).logits]


@case
def llama_bfloat():
    torch = torch_ready()
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=4, vocab_size=1000)
    model = LlamaForCausalLM(config).to(torch.bfloat16).cuda().eval()
    ids = torch.arange(32, device="cuda").view(2, 16)
    with torch.no_grad():
        return [model(ids).logits, model.generate(ids, max_new_tokens=12, do_sample=False, pad_token_id=0)]


@case
def amp_training():
    torch = torch_ready()
    model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.LayerNorm(256), torch.nn.Linear(256, 10)).cuda()
    optimizer, scaler = torch.optim.AdamW(model.parameters(), lr=1e-3), torch.amp.GradScaler()
    x, y = seeded(torch, 64, 128), torch.arange(64, device="cuda") % 10
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
    return [torch.stack(losses)]


@case
def bert_half():
    torch = torch_ready()
    from transformers import BertConfig, BertModel
    model = BertModel(BertConfig(num_hidden_layers=3, hidden_size=256, num_attention_heads=4, intermediate_size=512, vocab_size=1000)).half().cuda().eval()
    with torch.no_grad():
        return [model(torch.arange(64, device="cuda").view(2, 32)).last_hidden_state]


@case
def resnet_training():
    torch = torch_ready()
    import torchvision
    model = torchvision.models.resnet18(weights=None).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = seeded(torch, 8, 3, 64, 64)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [torch.stack(losses)]


@case
def convolutions_half():
    torch = torch_ready()
    x, w = seeded(torch, 4, 16, 32, 32, dtype=torch.float16), seeded(torch, 32, 16, 3, 3, dtype=torch.float16)
    F = torch.nn.functional
    return [F.conv2d(x, w, padding=1), F.conv2d(x.to(memory_format=torch.channels_last), w), F.conv_transpose2d(x, w.transpose(0, 1).contiguous()), F.conv1d(x.view(4, 16, 1024), w[:, :, 0])]


@case
def attention_backends():
    torch = torch_ready()
    from torch.nn.attention import SDPBackend, sdpa_kernel
    q, k, v = (seeded(torch, 2, 4, 128, 64, dtype=torch.float16) for _ in range(3))
    results = []
    for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        with sdpa_kernel(backend):
            results.append(torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))
    return results


@case
def recurrent():
    torch = torch_ready()
    x = seeded(torch, 10, 4, 32)
    return [torch.nn.LSTM(32, 64, 2).cuda()(x)[0], torch.nn.GRU(32, 64).cuda()(x)[0]]


# --- PyTorch: the libraries


@case
def torch_fft():
    torch = torch_ready()
    x = seeded(torch, 8, 1000)
    return [torch.fft.fft(x).abs(), torch.fft.rfft2(x.view(8, 40, 25)).abs(), torch.fft.irfft(torch.fft.rfft(x)), torch.stft(x, 128, return_complex=True, window=torch.ones(128, device="cuda")).abs()]


@case
def torch_linalg():
    torch = torch_ready()
    a = seeded(torch, 4, 48, 48)
    s = a @ a.mT + torch.eye(48, device="cuda") * 10
    L = torch.linalg
    return [L.cholesky(s), L.eigvalsh(s), L.svdvals(a), L.solve(s, a), L.det(s).log(), L.inv(s), L.qr(a[0])[1].abs(), L.lstsq(a[0], a[1]).solution, torch.linalg.lu_factor(a)[0]]


@case
def torch_eigenvalues():
    torch = torch_ready()
    a = seeded(torch, 32, 32)
    return [torch.linalg.eigvals(a).abs().sort()[0], torch.linalg.eigh(a + a.T)[0], torch.linalg.matrix_exp(a / 10)]


@case
def torch_sparse():
    torch = torch_ready()
    a = torch.randn(100, 100).relu().sub(1).relu().to("cuda")
    b = seeded(torch, 100, 20)
    csr = a.to_sparse_csr()
    return [csr @ b, a.to_sparse() @ b, torch.sparse.mm(csr, csr).to_dense(), csr @ b[:, 0]]


@case
def torch_random():
    torch = torch_ready()
    torch.cuda.manual_seed(3)
    return [torch.rand(100, device="cuda"), torch.randn(100, device="cuda"), torch.randperm(100, device="cuda"), torch.bernoulli(torch.full((50,), 0.3, device="cuda")), torch.nn.functional.dropout(torch.ones(100, device="cuda"))]


@case
def torch_sorting():
    torch = torch_ready()
    x = seeded(torch, 50000)
    return [x.sort()[0], x.topk(20)[0], (x * 10).int().unique(), x.cumsum(0)[-1:], x.median().view(1), torch.histc(x, 50), x.argsort()[:100], torch.bincount((x * 5).int().abs()), x.kthvalue(77)[0].view(1)]


@case
def torch_indexing():
    torch = torch_ready()
    x, i = seeded(torch, 1000, 16), torch.randint(0, 1000, (500,)).cuda()
    F = torch.nn.functional
    return [x[i], x.index_add(0, i, x[:500]).sum().view(1), x.gather(0, i.view(-1, 1)), F.embedding(i, x), F.interpolate(x.view(1, 1, 1000, 16), scale_factor=2, mode="bilinear").sum((2, 3)), F.grid_sample(x.view(1, 16, 25, 40), torch.rand(1, 5, 5, 2).cuda())]


# --- PyTorch: what a process does with a card


@case
def torch_compile():
    torch = torch_ready()

    @torch.compile
    def f(x, y):
        return (torch.sin(x) * y + x.square()).softmax(-1).sum(0)

    x, y = seeded(torch, 128, 256), seeded(torch, 128, 256)
    return [f(x, y), f(x.half(), y.half())]


@case
def torch_compile_reduce_overhead():
    torch = torch_ready()
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)).cuda()
    compiled = torch.compile(model, mode="reduce-overhead")
    x = seeded(torch, 32, 64)
    with torch.no_grad():
        for _ in range(4):
            result = compiled(x).clone()
    return [result]


@case
def torch_graphs():
    torch = torch_ready()
    model = torch.nn.Linear(64, 64).cuda().half()
    x = seeded(torch, 16, 64, dtype=torch.float16)
    with torch.no_grad():
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                model(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = model(x).relu()
        results = []
        for n in range(4):
            x.fill_(n / 4)
            graph.replay()
            results.append(y.clone())
    return results


@case
def torch_shared_tensors():
    torch = torch_ready()
    import torch.multiprocessing as processes
    context = processes.get_context("spawn")
    to, back = context.Queue(), context.Queue()
    child = context.Process(target=double_and_sum, args=(to, back))
    child.start()
    x = seeded(torch, 1000)
    expected = (x * 2).sum().item()
    to.put(x)
    total = back.get(timeout=60)
    torch.cuda.synchronize()
    to.put(None)
    child.join(30)
    assert abs(total - expected) < 1e-2 * abs(expected) + 1e-2, (total, expected)
    return [x]


def double_and_sum(to, back):
    import torch
    x = to.get()
    x.mul_(2)
    torch.cuda.synchronize()
    back.put(x.sum().item())
    del x
    to.get()


@case
def torch_loaders():
    torch = torch_ready()
    data = torch.utils.data.TensorDataset(torch.arange(400.0).view(100, 4))
    loader = torch.utils.data.DataLoader(data, batch_size=10, num_workers=2, pin_memory=True)
    return [sum(batch.to("cuda", non_blocking=True).sum(0) for (batch,) in loader)]


@case
def torch_streams_and_events():
    torch = torch_ready()
    streams, x = [torch.cuda.Stream() for _ in range(4)], seeded(torch, 512, 512)
    torch.cuda.synchronize()
    results, event = [], torch.cuda.Event(enable_timing=True)
    for n, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            results.append((x * n) @ x)
            event.record()
    torch.cuda.synchronize()
    return results


@case
def torch_profiler():
    torch = torch_ready()
    x = seeded(torch, 100, 100)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]):
        y = x @ x
    return [y]


@case
def torch_nccl_one_rank():
    torch = torch_ready()
    import torch.distributed as distributed
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ["MASTER_PORT"] = str(20000 + os.getpid() % 20000)
    distributed.init_process_group("nccl", rank=0, world_size=1)
    x = seeded(torch, 100)
    distributed.all_reduce(x)
    distributed.broadcast(x, 0)
    torch.cuda.synchronize()
    distributed.destroy_process_group()
    return [x]


@case
def torch_allocator_of_the_driver():
    os.environ["PYTORCH_ALLOC_CONF"] = os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"
    torch = torch_ready()
    x = seeded(torch, 1000, 100)
    for _ in range(20):
        x = (x.clone() * 0.99).contiguous()
    return [x.sum(0)]


@case
def torch_expandable_segments():
    os.environ["PYTORCH_ALLOC_CONF"] = os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    torch = torch_ready()
    parts = [seeded(torch, 1000, n) for n in range(1, 60)]
    del parts[::2]
    parts += [seeded(torch, 3000, n) for n in range(1, 20)]
    return [part.sum().view(1) for part in parts]


# --- Triton


@case
def triton_kernels():
    torch = torch_ready()
    import triton_kernels_of_ours as kernels
    return kernels.run(torch)


@case
def paged_serving():
    torch = torch_ready()
    import triton_kernels_of_ours as kernels
    return kernels.serve(torch)


# --- CuPy


@case
def cupy_fft():
    cupy, numbers = cupy_ready()
    x = cupy.asarray(numbers.random((16, 360)))
    return [abs(cupy.fft.fft(x)), abs(cupy.fft.rfftn(x.reshape(16, 18, 20))), cupy.fft.irfft(cupy.fft.rfft(x)), abs(cupy.fft.fft2(x.astype("complex64")))]


@case
def cupy_linalg():
    cupy, numbers = cupy_ready()
    a = cupy.asarray(numbers.random((40, 40))) + 40 * cupy.eye(40)
    return [cupy.linalg.solve(a, a[0]), cupy.linalg.svd(a)[1], cupy.linalg.inv(a), cupy.linalg.eigvalsh(a + a.T), abs(cupy.linalg.qr(a)[1]), cupy.linalg.cholesky(a @ a.T)]


@case
def cupy_sparse():
    cupy, numbers = cupy_ready()
    from cupyx.scipy import sparse
    a = sparse.csr_matrix(cupy.asarray(numbers.random((50, 50)) * (numbers.random((50, 50)) > 0.9)))
    b = cupy.asarray(numbers.random((50, 4)))
    return [a @ b, (a @ a).toarray(), a.T.tocsr().toarray()]


@case
def cupy_random():
    cupy, _ = cupy_ready()
    cupy.random.seed(11)
    generator = cupy.random.default_rng(12)
    return [cupy.random.rand(100), cupy.random.randn(100), generator.random(100), generator.integers(0, 100, 50), cupy.random.permutation(50).sum().reshape(1)]


@case
def cupy_products():
    cupy, numbers = cupy_ready()
    a = cupy.asarray(numbers.random((128, 96)))
    return [a @ a.T, a.astype("float16") @ a.T.astype("float16"), a.astype("float32") @ a.T.astype("float32"), cupy.einsum("ij,kj->ik", a, a)]


@case
def cupy_own_kernels():
    cupy, numbers = cupy_ready()
    x = cupy.asarray(numbers.random(1000), dtype=cupy.float32)
    raw = cupy.RawKernel(r'extern "C" __global__ void twice(const float *x, float *y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = 2 * x[i]; }', "twice")
    y = cupy.zeros_like(x)
    raw((8,), (128,), (x, y, numpy_int(1000)))

    @cupy.fuse
    def fused(a):
        return cupy.sin(a) * a + 1

    return [y, fused(x), cupy.ElementwiseKernel("float32 a", "float32 b", "b = a * a", "squares")(x), cupy.ReductionKernel("float32 a", "float32 b", "a", "a + b", "b = a", "0", "total")(x).reshape(1)]


@case
def cupy_sorting():
    cupy, numbers = cupy_ready()
    x = cupy.asarray(numbers.random(20000))
    return [cupy.sort(x), cupy.argsort(x)[:50], cupy.unique((x * 100).astype(int)), cupy.cumsum(x)[-1:], cupy.partition(x, 50)[:50].sum().reshape(1), cupy.histogram(x, 20)[0]]


@case
def cupy_graphs_and_pools():
    cupy, numbers = cupy_ready()
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    x = cupy.asarray(numbers.random(1000))
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        y = x * 2
        stream.begin_capture()
        cupy.add(x, y, out=y)
        graph = stream.end_capture()
        for _ in range(3):
            graph.launch(stream)
    stream.synchronize()
    return [y]


@case
def cupy_textures():
    cupy, numbers = cupy_ready()
    from cupyx.scipy import ndimage
    image = cupy.asarray(numbers.random((64, 48)), dtype=cupy.float32)
    return [ndimage.affine_transform(image, cupy.asarray([[0.9, 0.1, 0.5], [-0.1, 0.9, 1.5], [0, 0, 1]], dtype=cupy.float32), order=1, texture_memory=True), ndimage.zoom(image, 1.5, order=1), ndimage.gaussian_filter(image, 2)]


# --- JAX


@case
def jax_products():
    jax, np, x = jax_ready()
    half = np.asarray(x, dtype=np.bfloat16)
    return [jax.jit(lambda a: np.tanh(a @ a.T))(x), (half @ half).astype(np.float32), jax.grad(lambda a: (a @ a).sum())(x)]


@case
def jax_libraries():
    jax, np, x = jax_ready()
    s = x @ x.T + 64 * np.eye(64)
    return [abs(np.fft.fft(x)), np.linalg.cholesky(s), np.linalg.eigvalsh(s), np.linalg.svd(x, compute_uv=False), np.linalg.solve(s, x), abs(np.linalg.qr(x)[1]), np.sort(x, axis=0)]


@case
def jax_loops():
    jax, np, x = jax_ready()
    scan = jax.lax.scan(lambda c, r: (c * 0.5 + r, c.sum()), np.zeros(64), x)[1]
    loop = jax.lax.fori_loop(0, 20, lambda i, c: c * 0.9 + i, x)
    cond = jax.lax.while_loop(lambda c: c.sum() < 1e6, lambda c: c * 1.5, x)
    return [scan, loop, cond, jax.random.normal(jax.random.PRNGKey(1), (50,)), jax.vmap(np.dot)(x, x)]


@case
def jax_network():
    jax, np, x = jax_ready()
    image, kernel = x.reshape(1, 1, 64, 64), x[:3, :3].reshape(1, 1, 3, 3)
    return [jax.lax.conv(image, kernel, (1, 1), "SAME"), jax.nn.softmax(x), jax.lax.reduce_window(x, -np.inf, jax.lax.max, (2, 2), (2, 2), "VALID")]


# --- Numba


@case
def numba_kernels():
    import numpy
    if not hasattr(numpy, "row_stack"):
        numpy.row_stack = numpy.vstack  # Numba asks for it, NumPy has it no more
    from numba import cuda

    @cuda.jit
    def add(x, y, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i] + y[i]

    @cuda.reduce
    def total(a, b):
        return a + b

    x = numpy.arange(1000, dtype=numpy.float64)
    out = cuda.device_array_like(x)
    add[8, 128](cuda.to_device(x), cuda.to_device(x), out)
    return [out.copy_to_host(), numpy.array([total(x)])]
