"""Programs of the ladder: more corners of what is on the machine anyway: PyTorch's graphs, shares and processes, CUDA's graphs with conditions, and corners of CuPy, JAX, Numba and NVIDIA's bindings.

One file, although long: a list of programs that do not use each other.
"""

import os

from programs_interfaces import numba_ready
from programs_ready import case, cupy_ready, jax_ready, seeded, torch_ready

# --- PyTorch: compiled and graphed


@case
def torch_trees_of_graphs():
    """Two compiled functions whose graphs are alive at the same time, with several shapes and a step of training."""
    torch = torch_ready()
    layer = torch.nn.Linear(48, 48).cuda()

    @torch.compile(mode="reduce-overhead", dynamic=False)
    def first(x):
        return torch.tanh(layer(x)) * 2

    @torch.compile(mode="reduce-overhead", dynamic=False)
    def second(x, y):
        return (x * y).softmax(-1) + y.cumsum(0)

    found = []
    for size in (16, 32, 16):
        for _ in range(3):
            layer.zero_grad()
            torch.compiler.cudagraph_mark_step_begin()
            x = seeded(torch, size, 48)
            y = first(x)
            z = second(y, x)
            z.square().mean().backward()
        found += [y.detach().clone(), z.detach().clone(), layer.weight.grad.clone()]
    return found


@case
def torch_graphs_in_threads():
    """Graphs that threads capture one after the other, and run at the same time."""
    import threading
    torch = torch_ready()
    lock, results = threading.Lock(), [None] * 4
    inputs, captured = [seeded(torch, 128, 128) for _ in results], threading.Barrier(len(results))
    torch.cuda.synchronize()

    def work(at):
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph(keep_graph=True)
        with lock:
            x = inputs[at].clone()
            torch.tanh(x @ x)
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, stream=stream, pool=torch.cuda.graph_pool_handle(), capture_error_mode="thread_local"):
                y = torch.tanh(x @ x / 16) + at
                x.copy_(y * 0.5)
            graph.instantiate()
        captured.wait(60)
        with torch.cuda.stream(stream):
            for _ in range(10):
                graph.replay()
            results[at] = y.cpu()

    threads = [threading.Thread(target=work, args=(at,)) for at in range(len(results))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(result is not None for result in results)
    return results


@case
def torch_streams_of_others():
    """Work of PyTorch on streams that CuPy and the driver's bindings have made, and the other way round."""
    torch = torch_ready()
    cupy, numbers = cupy_ready()
    from cuda.bindings import driver
    found, x = [], seeded(torch, 256, 256)
    torch.cuda.synchronize()
    theirs = cupy.cuda.Stream(non_blocking=True)
    with torch.cuda.stream(torch.cuda.ExternalStream(theirs.ptr)):
        y = x @ x
        y.record_stream(torch.cuda.current_stream())
    with theirs:
        z = cupy.from_dlpack(y) * 2
    theirs.synchronize()
    found += [y, z]
    error, stream = driver.cuStreamCreateWithPriority(1, -1)
    assert int(error) == 0, error
    outside = torch.cuda.ExternalStream(int(stream))
    with torch.cuda.stream(outside):
        found.append(torch.fft.rfft(x).abs())
        event = outside.record_event()
    torch.cuda.current_stream().wait_event(event)
    found.append(found[-1] + 1)
    ours = torch.cuda.Stream(priority=-1)
    with cupy.cuda.ExternalStream(ours.cuda_stream):
        found.append(cupy.asarray(numbers.random((64, 64))) @ cupy.eye(64))
    ours.synchronize()
    torch.cuda.synchronize()
    assert int(driver.cuStreamDestroy(stream)[0]) == 0
    return found


@case
def torch_part_of_the_card():
    """Products on some of the card's multiprocessors."""
    torch = torch_ready()
    x = seeded(torch, 512, 512)
    torch.cuda.synchronize()
    part = torch.cuda.green_contexts.GreenContext.create(num_sms=16, device_id=0)
    part.set_context()
    y = torch.relu(x * 2 + 1)
    z = y @ x
    torch.cuda.synchronize()
    part.pop_context()
    return [y, z, x @ x]


# --- PyTorch: learning


@case
def torch_networks_side_by_side():
    """Many networks in one with vmap, gradients of each sample, and products with Jacobians."""
    torch = torch_ready()
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.allow_tf32 = False
    from torch.func import functional_call, grad, jvp, stack_module_state, vjp, vmap

    def network():
        return torch.nn.Sequential(torch.nn.Conv2d(3, 6, 3), torch.nn.Tanh(), torch.nn.AvgPool2d(2), torch.nn.Flatten(), torch.nn.Linear(6 * 7 * 7, 4)).cuda()

    networks, x = [network() for _ in range(5)], seeded(torch, 8, 3, 16, 16)
    weights, buffers = stack_module_state(networks)
    base = network()

    def call(weights, buffers, x):
        return functional_call(base, (weights, buffers), (x,))

    together = vmap(call, in_dims=(0, 0, None))(weights, buffers, x)
    assert torch.allclose(together[1], networks[1](x), atol=1e-3)
    one = dict(base.named_parameters())
    each = vmap(grad(lambda weights, sample: call(weights, {}, sample.unsqueeze(0)).square().sum()), in_dims=(None, 0))(one, x)
    value, along = jvp(lambda x: base(x), (x,), (torch.ones_like(x),))
    back = vjp(lambda x: base(x).sum(0), x)[1](torch.ones(4, device="cuda"))[0]
    return [together.detach(), *(part.detach() for part in each.values()), value.detach(), along.detach(), back.detach()]


@case
def torch_checkpointed_training():
    """Layers that run again on the way back with the same random numbers, and activations that wait on the host."""
    torch = torch_ready()
    from torch.utils.checkpoint import checkpoint, checkpoint_sequential
    blocks = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Dropout(0.1)) for _ in range(4))).cuda()
    torch.cuda.manual_seed(3)
    x, found = seeded(torch, 32, 64).requires_grad_(), []
    for way in range(3):
        blocks.zero_grad()
        x.grad = None
        if way == 0:
            out = x
            for block in blocks:
                out = checkpoint(block, out, use_reentrant=False)
        elif way == 1:
            out = checkpoint_sequential(blocks, 2, x, use_reentrant=False)
        else:
            with torch.autograd.graph.save_on_cpu(pin_memory=True):
                out = blocks(x)
        out.square().mean().backward()
        found += [out.detach(), x.grad.clone(), blocks[0][0].weight.grad.clone()]
    return found


@case
def torch_products_of_groups():
    """Products of eight-bit numbers with a scale for each row, and of many groups of rows in one call."""
    torch = torch_ready()
    torch.use_deterministic_algorithms(False)
    a, b = seeded(torch, 256, 128), seeded(torch, 192, 128)
    scales = [part.abs().amax(dim=1, keepdim=True) / 448 for part in (a, b)]
    narrow = [(part / scale).to(torch.float8_e4m3fn) for part, scale in zip((a, b), scales)]
    rows = torch._scaled_mm(narrow[0], narrow[1].t(), scale_a=scales[0], scale_b=scales[1].t().contiguous(), out_dtype=torch.bfloat16)
    whole = [part.abs().max() / 448 for part in (a, b)]
    flat = torch._scaled_mm((a / whole[0]).to(torch.float8_e4m3fn), (b / whole[1]).to(torch.float8_e5m2).t(), scale_a=whole[0], scale_b=whole[1], out_dtype=torch.float32)
    assert (rows.float() - a @ b.t()).abs().mean() < 0.6
    x, weights = seeded(torch, 256, 64, dtype=torch.bfloat16).requires_grad_(), seeded(torch, 4, 64, 96, dtype=torch.bfloat16).requires_grad_()
    ends = torch.tensor([48, 112, 112, 256], dtype=torch.int32, device="cuda")
    grouped = torch.nn.functional.grouped_mm(x, weights, offs=ends)
    grouped.float().square().mean().backward()
    return [rows, flat, grouped.detach(), x.grad, weights.grad]


@case
def torch_attention_by_blocks_learns():
    """Attention with a function of ours for its scores, and its gradients."""
    torch = torch_ready()
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    q, k, v = (seeded(torch, 2, heads, 256, 64, dtype=torch.bfloat16).requires_grad_() for heads in (4, 2, 2))
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625], device="cuda")
    mask = create_block_mask(lambda b, h, i, j: (i >= j) & (i - j < 100), None, None, 256, 256, device="cuda")
    attend = torch.compile(flex_attention)
    out = attend(q, k, v, score_mod=lambda score, b, h, i, j: score - slopes[h] * (i - j).abs(), block_mask=mask, enable_gqa=True)
    out.float().square().mean().backward()
    return [out.detach(), q.grad, k.grad, v.grad]


@case
def torch_optimizers_in_graphs():
    """Steps of several optimizers, plain and captured."""
    torch = torch_ready()
    found, x = [], seeded(torch, 32, 48)
    for kind, more in ((torch.optim.SGD, {"momentum": 0.9, "fused": True}), (torch.optim.Adam, {"capturable": True, "foreach": True}), (torch.optim.AdamW, {"fused": True, "capturable": True}), (torch.optim.Adagrad, {"foreach": True}),
                       (torch.optim.RMSprop, {"capturable": True}), (torch.optim.NAdam, {"capturable": True}), (torch.optim.Muon, {})):
        torch.manual_seed(5)
        weight = torch.nn.Parameter(seeded(torch, 48, 24))
        optimizer = kind([weight], lr=torch.tensor(1e-2, device="cuda") if more.get("capturable") else 1e-2, **more)
        captured = torch.cuda.CUDAGraph() if more.get("capturable") else None

        def step():
            optimizer.zero_grad(set_to_none=captured is None)
            (x @ weight).square().mean().backward()
            optimizer.step()

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        if captured:
            with torch.cuda.graph(captured):
                step()
            step = captured.replay
        for _ in range(4):
            step()
        found.append(weight.detach().clone())
    return found


# --- PyTorch: processes


@case
def torch_ranks_through_the_host():
    """Two ranks on one card, whose sums go through the host."""
    torch = torch_ready()
    import torch.multiprocessing as processes
    store = os.path.abspath(f"ranks-{os.getpid()}")
    context = processes.get_context("spawn")
    answers = context.Queue()
    ranks = [context.Process(target=rank_of_two, args=(rank, store, answers)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    told = dict(answers.get(timeout=100) for _ in ranks)
    for rank in ranks:
        rank.join(30)
    return [torch.tensor(numbers) for rank in sorted(told) for numbers in told[rank]]


def rank_of_two(rank, store, answers):
    import torch
    import torch.distributed as ranks
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    ranks.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(7)
    x = torch.randn(2, 1000)[rank].cuda()
    total, parts = x.clone(), [torch.empty_like(x) for _ in range(2)]
    ranks.all_reduce(total)
    ranks.all_gather(parts, x)
    ranks.broadcast(x, 0)
    work = ranks.all_reduce(most := x * (rank + 1), op=ranks.ReduceOp.MAX, async_op=True)
    work.wait()
    torch.manual_seed(8)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 4).cuda())
    model(torch.randn(16, 100).cuda() * (rank + 1)).square().mean().backward()
    answers.put((rank, [part.cpu().tolist() for part in (total, parts[1 - rank], x, most, model.module.weight.grad.flatten())]))
    ranks.barrier()
    ranks.destroy_process_group()


@case
def torch_pool_of_processes():
    """Memory and events of three children that go to their parent, and memory of the parent that they change."""
    torch = torch_ready()
    import torch.multiprocessing as processes
    context = processes.get_context("spawn")
    to, back, done = [context.Queue() for _ in range(3)], context.Queue(), context.Event()
    children = [context.Process(target=child_of_three, args=(at, to[at], back, done)) for at in range(3)]
    for child in children:
        child.start()
    shared = seeded(torch, 3, 2000)
    torch.cuda.synchronize()
    for at, queue in enumerate(to):
        queue.put(shared[at])
    found = [None] * 3
    for _ in children:
        at, tensor, handle = back.get(timeout=100)
        event = torch.cuda.Event.from_ipc_handle(torch.device("cuda:0"), handle)
        event.wait()
        found[at] = tensor.clone()
        del tensor
    torch.cuda.synchronize()
    found.append(shared.clone())
    done.set()
    for child in children:
        child.join(30)
    return found


def child_of_three(at, queue, back, done):
    import torch
    mine = queue.get()
    event = torch.cuda.Event(interprocess=True)
    answer = torch.full((1000,), float(at), device="cuda")
    for _ in range(20):
        answer = answer * 0.5 + mine[:1000]
    mine.mul_(at + 2)
    event.record()
    torch.cuda.synchronize()
    back.put((at, answer, event.ipc_handle()))
    done.wait(60)


# --- Compiled by nvcc


GRAPHS = r"""
#include <cstdio>
#include <cuda_runtime.h>
#define ASK(what) do { cudaError_t e = what; if (e != cudaSuccess) { fprintf(stderr, "%s: %s\n", #what, cudaGetErrorString(e)); return 1; } } while (0)
__global__ void add(float *x, float by, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] += by; }
__global__ void decide(cudaGraphConditionalHandle handle, const int *flag) { cudaGraphSetConditional(handle, *flag); }
__global__ void count_down(cudaGraphConditionalHandle handle, int *left) { cudaGraphSetConditional(handle, --*left > 0); }
static void call(void *data) { ++*(int *)data; }
static void show(const char *, const float *host, int n) { double total = 0; for (int i = 0; i < n; i++) total += host[i] * (1 + i % 5); printf("result 1 %.9g %.9g\n", total, total); }
int main() {
    const int n = 1000;
    float *x, host[n]; int *numbers, called = 0, start[2] = {1, 5};
    cudaStream_t s; ASK(cudaStreamCreate(&s));
    ASK(cudaMalloc(&x, n * 4)); ASK(cudaMalloc(&numbers, 8)); ASK(cudaMemset(x, 0, n * 4)); ASK(cudaMemcpy(numbers, start, 8, cudaMemcpyHostToDevice));
    // Kernels, memory, a call of the host and another graph inside, all made by hand.
    cudaGraph_t graph, inner; ASK(cudaGraphCreate(&graph, 0)); ASK(cudaGraphCreate(&inner, 0));
    float one = 1, two = 2; int count = n;
    void *with_one[] = {&x, &one, &count}, *with_two[] = {&x, &two, &count};
    cudaKernelNodeParams kernel = {}; kernel.func = (void *)add; kernel.gridDim = dim3(8); kernel.blockDim = dim3(128); kernel.kernelParams = with_one;
    cudaGraphNode_t first, second, host_call, child, given, filled, freed;
    ASK(cudaGraphAddKernelNode(&first, graph, nullptr, 0, &kernel));
    cudaHostNodeParams call_of_host = {call, &called};
    ASK(cudaGraphAddHostNode(&host_call, graph, &first, 1, &call_of_host));
    kernel.kernelParams = with_two;
    ASK(cudaGraphAddKernelNode(&second, inner, nullptr, 0, &kernel));
    ASK(cudaGraphAddChildGraphNode(&child, graph, &host_call, 1, inner));
    cudaMemsetParams zeros = {}; zeros.dst = x; zeros.elementSize = 4; zeros.width = 10; zeros.height = 1;
    ASK(cudaGraphAddMemsetNode(&filled, graph, &child, 1, &zeros));
    cudaGraphExec_t ready; ASK(cudaGraphInstantiate(&ready, graph, 0));
    for (int i = 0; i < 3; i++) ASK(cudaGraphLaunch(ready, s));
    ASK(cudaStreamSynchronize(s));
    ASK(cudaMemcpy(host, x, n * 4, cudaMemcpyDeviceToHost)); show("plain", host, n);
    printf("result 1 %d %d\n", called, called);
    // The same graph with another number in it, and one node that is off.
    float ten = 10; void *with_ten[] = {&x, &ten, &count}; kernel.kernelParams = with_ten;
    ASK(cudaGraphExecKernelNodeSetParams(ready, first, &kernel));
    ASK(cudaGraphNodeSetEnabled(ready, filled, 0));
    ASK(cudaGraphLaunch(ready, s)); ASK(cudaStreamSynchronize(s));
    ASK(cudaGraphKernelNodeSetParams(first, &kernel));
    cudaGraphExecUpdateResultInfo told; ASK(cudaGraphExecUpdate(ready, graph, &told));
    ASK(cudaGraphLaunch(ready, s)); ASK(cudaStreamSynchronize(s));
    ASK(cudaMemcpy(host, x, n * 4, cudaMemcpyDeviceToHost)); show("updated", host, n);
    printf("result 1 %d %d\n", called, called);
    // Memory that a graph takes and gives back itself.
    cudaGraph_t own; ASK(cudaGraphCreate(&own, 0));
    cudaMemAllocNodeParams memory = {}; memory.poolProps.allocType = cudaMemAllocationTypePinned; memory.poolProps.location = {cudaMemLocationTypeDevice, 0}; memory.bytesize = 4096;
    ASK(cudaGraphAddMemAllocNode(&given, own, nullptr, 0, &memory));
    cudaGraphNode_t copied, back; zeros.dst = memory.dptr; zeros.width = 1000; zeros.value = 0x3f800000;
    ASK(cudaGraphAddMemsetNode(&filled, own, &given, 1, &zeros));
    float *given_memory = (float *)memory.dptr; void *with_memory[] = {&given_memory, &two, &count}; kernel.kernelParams = with_memory;
    ASK(cudaGraphAddKernelNode(&copied, own, &filled, 1, &kernel));
    ASK(cudaGraphAddMemcpyNode1D(&back, own, &copied, 1, x, given_memory, n * 4, cudaMemcpyDeviceToDevice));
    ASK(cudaGraphAddMemFreeNode(&freed, own, &back, 1, memory.dptr));
    cudaGraphExec_t owning; ASK(cudaGraphInstantiate(&owning, own, 0));
    for (int i = 0; i < 2; i++) ASK(cudaGraphLaunch(owning, s));
    ASK(cudaStreamSynchronize(s));
    ASK(cudaMemcpy(host, x, n * 4, cudaMemcpyDeviceToHost)); show("own memory", host, n);
    ASK(cudaGraphExecDestroy(owning)); ASK(cudaGraphDestroy(own));
    // A part that runs only if the card says so, and one that runs until the card says stop.
    cudaGraph_t guarded; ASK(cudaGraphCreate(&guarded, 0));
    cudaGraphConditionalHandle if_set, while_set;
    ASK(cudaGraphConditionalHandleCreate(&if_set, guarded, 0, cudaGraphCondAssignDefault));
    ASK(cudaGraphConditionalHandleCreate(&while_set, guarded, 1, cudaGraphCondAssignDefault));
    int *left = numbers + 1; void *asked[] = {&if_set, &numbers}, *counted[] = {&while_set, &left};
    cudaKernelNodeParams single = {}; single.gridDim = dim3(1); single.blockDim = dim3(1);
    cudaGraphNode_t decided, guard, loop, inside;
    single.func = (void *)decide; single.kernelParams = asked; ASK(cudaGraphAddKernelNode(&decided, guarded, nullptr, 0, &single));
    cudaGraphNodeParams condition = {}; condition.type = cudaGraphNodeTypeConditional; condition.conditional.handle = if_set; condition.conditional.type = cudaGraphCondTypeIf; condition.conditional.size = 1;
    ASK(cudaGraphAddNode(&guard, guarded, &decided, nullptr, 1, &condition));
    kernel.kernelParams = with_one; ASK(cudaGraphAddKernelNode(&inside, condition.conditional.phGraph_out[0], nullptr, 0, &kernel));
    cudaGraphNodeParams turns = {}; turns.type = cudaGraphNodeTypeConditional; turns.conditional.handle = while_set; turns.conditional.type = cudaGraphCondTypeWhile; turns.conditional.size = 1;
    ASK(cudaGraphAddNode(&loop, guarded, &guard, nullptr, 1, &turns));
    cudaGraph_t body = turns.conditional.phGraph_out[0];
    kernel.kernelParams = with_two; ASK(cudaGraphAddKernelNode(&first, body, nullptr, 0, &kernel));
    single.func = (void *)count_down; single.kernelParams = counted; ASK(cudaGraphAddKernelNode(&second, body, &first, 1, &single));
    cudaGraphExec_t turning; ASK(cudaGraphInstantiate(&turning, guarded, 0));
    ASK(cudaMemset(x, 0, n * 4));
    ASK(cudaGraphLaunch(turning, s)); ASK(cudaStreamSynchronize(s));
    ASK(cudaMemcpy(host, x, n * 4, cudaMemcpyDeviceToHost)); show("guarded", host, n);
    start[0] = 0; start[1] = 3; ASK(cudaMemcpy(numbers, start, 8, cudaMemcpyHostToDevice));
    ASK(cudaGraphLaunch(turning, s)); ASK(cudaStreamSynchronize(s));
    ASK(cudaMemcpy(host, x, n * 4, cudaMemcpyDeviceToHost)); show("guarded again", host, n);
    ASK(cudaGraphExecDestroy(ready)); ASK(cudaGraphExecDestroy(turning)); ASK(cudaGraphDestroy(graph)); ASK(cudaGraphDestroy(inner)); ASK(cudaGraphDestroy(guarded));
    ASK(cudaDeviceGraphMemTrim(0)); ASK(cudaFree(x)); ASK(cudaFree(numbers)); ASK(cudaDeviceSynchronize());
    return 0;
}
"""


RUNTIME = r"""
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>
#define ASK(what) do { cudaError_t e = what; if (e != cudaSuccess) { fprintf(stderr, "%s: %s\n", #what, cudaGetErrorString(e)); return 1; } } while (0)
__global__ void inner(int *x, int at) { x[at * 32 + threadIdx.x] += at * 100; }
__global__ void outer(int *x) { x[blockIdx.x * blockDim.x + threadIdx.x] = threadIdx.x; __syncthreads(); if (threadIdx.x == 0) inner<<<1, 32>>>(x, blockIdx.x); }
__global__ void own_memory(int **kept, int *sums) {
    int *mine = (int *)malloc(64 * sizeof(int));
    if (!mine) { sums[threadIdx.x] = -1; return; }
    for (int i = 0; i < 64; i++) mine[i] = i + threadIdx.x;
    kept[threadIdx.x] = mine;
}
__global__ void take_memory(int **kept, int *sums) { int total = 0; for (int i = 0; i < 64; i++) total += kept[threadIdx.x][i]; sums[threadIdx.x] = total; free(kept[threadIdx.x]); }
struct Shape { virtual __device__ float area() const = 0; };
struct Square : Shape { float side; __device__ Square(float s) : side(s) {} __device__ float area() const override { return side * side; } };
struct Circle : Shape { float radius; __device__ Circle(float r) : radius(r) {} __device__ float area() const override { return 3 * radius * radius; } };
__global__ void by_table(float *out) { Square square(threadIdx.x); Circle circle(threadIdx.x); const Shape *shape = threadIdx.x % 2 ? (const Shape *)&square : &circle; out[threadIdx.x] = shape->area(); }
__device__ float plus(float a, float b) { return a + b; }
__device__ float times(float a, float b) { return a * b; }
typedef float (*Function)(float, float);
__device__ Function functions[2] = {plus, times};
__global__ void by_pointer(float *out, int which) { out[threadIdx.x] = functions[which](threadIdx.x, 3); }
__global__ void sample(cudaTextureObject_t layered, cudaTextureObject_t solid, float *out) { int i = threadIdx.x; out[i] = tex2DLayered<float>(layered, (i % 8) + 0.5f, (i / 8) + 0.25f, 1); out[i + 64] = tex3D<float>(solid, (i % 4) + 0.75f, (i / 4 % 4) + 0.5f, (i / 16) + 0.5f); }
__global__ void draw(cudaSurfaceObject_t board) { surf2Dwrite(float(threadIdx.x * 10 + blockIdx.x), board, threadIdx.x * 4, blockIdx.x); }
__global__ void say(int n) { if (threadIdx.x == 0) printf("result 1 %d %d\n", n + blockIdx.x, n + blockIdx.x); }
static void show(const float *host, int n) { double total = 0; for (int i = 0; i < n; i++) total += host[i] * (1 + i % 5); printf("result 1 %.9g %.9g\n", total, total); }
int main() {
    int *x, **kept, *sums, whole[512]; float *out, host[512];
    ASK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16 << 20)); ASK(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 2 << 20));
    ASK(cudaMalloc(&x, 8 * 32 * 4)); ASK(cudaMalloc(&kept, 64 * 8)); ASK(cudaMalloc(&sums, 64 * 4)); ASK(cudaMalloc(&out, 512 * 4));
    outer<<<8, 32>>>(x); ASK(cudaDeviceSynchronize()); ASK(cudaMemcpy(whole, x, 8 * 32 * 4, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 256; i++) host[i] = whole[i]; show(host, 256);
    own_memory<<<1, 64>>>(kept, sums); take_memory<<<1, 64>>>(kept, sums); ASK(cudaMemcpy(whole, sums, 64 * 4, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 64; i++) host[i] = whole[i]; show(host, 64);
    by_table<<<1, 64>>>(out); ASK(cudaMemcpy(host, out, 64 * 4, cudaMemcpyDeviceToHost)); show(host, 64);
    for (int which = 0; which < 2; which++) { by_pointer<<<1, 64>>>(out, which); ASK(cudaMemcpy(host, out, 64 * 4, cudaMemcpyDeviceToHost)); show(host, 64); }
    // Layers, a solid, and a board to draw on.
    cudaChannelFormatDesc floats = cudaCreateChannelDesc<float>(); cudaArray_t layers, solid, board;
    ASK(cudaMalloc3DArray(&layers, &floats, make_cudaExtent(8, 8, 3), cudaArrayLayered)); ASK(cudaMalloc3DArray(&solid, &floats, make_cudaExtent(4, 4, 4))); ASK(cudaMallocArray(&board, &floats, 16, 16, cudaArraySurfaceLoadStore));
    for (int i = 0; i < 512; i++) host[i] = (i * 37) % 101;
    cudaMemcpy3DParms copy = {}; copy.srcPtr = make_cudaPitchedPtr(host, 32, 8, 8); copy.dstArray = layers; copy.extent = make_cudaExtent(8, 8, 3); copy.kind = cudaMemcpyHostToDevice; ASK(cudaMemcpy3D(&copy));
    copy.srcPtr = make_cudaPitchedPtr(host, 16, 4, 4); copy.dstArray = solid; copy.extent = make_cudaExtent(4, 4, 4); ASK(cudaMemcpy3D(&copy));
    cudaResourceDesc what = {}; what.resType = cudaResourceTypeArray; what.res.array.array = layers; cudaTextureDesc how = {}; how.filterMode = cudaFilterModeLinear; how.addressMode[0] = how.addressMode[1] = how.addressMode[2] = cudaAddressModeClamp;
    cudaTextureObject_t of_layers, of_solid; cudaSurfaceObject_t of_board;
    ASK(cudaCreateTextureObject(&of_layers, &what, &how, nullptr)); what.res.array.array = solid; ASK(cudaCreateTextureObject(&of_solid, &what, &how, nullptr)); what.res.array.array = board; ASK(cudaCreateSurfaceObject(&of_board, &what));
    sample<<<1, 64>>>(of_layers, of_solid, out); ASK(cudaMemcpy(host, out, 128 * 4, cudaMemcpyDeviceToHost)); show(host, 128);
    draw<<<16, 16>>>(of_board); ASK(cudaMemcpy2DFromArray(host, 64, board, 0, 0, 64, 16, cudaMemcpyDeviceToHost)); show(host, 256);
    ASK(cudaDestroyTextureObject(of_layers)); ASK(cudaDestroyTextureObject(of_solid)); ASK(cudaDestroySurfaceObject(of_board)); ASK(cudaFreeArray(layers)); ASK(cudaFreeArray(solid)); ASK(cudaFreeArray(board));
    // A pool of its own, memory that hints where it lies, and words that a stream waits for.
    cudaMemPoolProps of_pool = {}; of_pool.allocType = cudaMemAllocationTypePinned; of_pool.location = {cudaMemLocationTypeDevice, 0}; cudaMemPool_t pool; ASK(cudaMemPoolCreate(&pool, &of_pool));
    unsigned long long keep = 1 << 20, used = 0; ASK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    cudaStream_t s, t; cudaEvent_t event; ASK(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, -1)); ASK(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking)); ASK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync));
    float *from_pool; ASK(cudaMallocFromPoolAsync((void **)&from_pool, 1 << 16, pool, s)); by_pointer<<<1, 64, 0, s>>>(from_pool, 1); ASK(cudaEventRecord(event, s)); ASK(cudaStreamWaitEvent(t, event, 0));
    ASK(cudaMemcpyAsync(host, from_pool, 64 * 4, cudaMemcpyDeviceToHost, t)); ASK(cudaStreamSynchronize(t)); show(host, 64);
    ASK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used)); printf("result 1 %llu %llu\n", used, used);
    ASK(cudaFreeAsync(from_pool, s)); ASK(cudaStreamSynchronize(s)); ASK(cudaMemPoolTrimTo(pool, 0)); ASK(cudaMemPoolDestroy(pool));
    int blocks = 0, best = 0, least = 0; ASK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, by_table, 64, 0)); ASK(cudaOccupancyMaxPotentialBlockSize(&least, &best, by_table)); printf("result 1 %d %d\n", blocks, best);
    say<<<4, 32>>>(7); ASK(cudaDeviceSynchronize());
    cudaFuncAttributes of_function; ASK(cudaFuncGetAttributes(&of_function, by_table)); ASK(cudaFuncSetAttribute(by_table, cudaFuncAttributePreferredSharedMemoryCarveout, 50));
    printf("result 1 %d %d\n", of_function.maxThreadsPerBlock, of_function.maxThreadsPerBlock);
    return 0;
}
"""


def built_and_run(name, source, *flags):
    import subprocess
    import numpy
    from programs_frameworks import toolkit
    room = f"{name}-{os.getpid()}"
    os.makedirs(room)
    with open(f"{room}/{name}.cu", "w") as file:
        file.write(source)
    compiler = os.path.join(toolkit(), "bin", "nvcc")
    done = subprocess.run([compiler if os.path.exists(compiler) else "nvcc", "-std=c++17", "-arch=sm_90", *flags, "-o", f"{room}/{name}", f"{room}/{name}.cu"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-1500:]
    done = subprocess.run([f"{room}/{name}"], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    # What kernels print comes in no fixed order.
    return [numpy.array(sorted(float(word) for word in line.split()[2:])) for line in sorted(done.stdout.splitlines())]


@case
def compiled_graphs_with_conditions():
    return built_and_run("graphs", GRAPHS)


@case
def compiled_corners_of_the_runtime():
    """Kernels that launch kernels, memory and printing inside of kernels, tables of functions, textures, and pools."""
    return built_and_run("runtime", RUNTIME, "-rdc=true", "-lcudadevrt")


# --- NVIDIA's bindings


@case
def bindings_of_memory_pools():
    """A pool that another process opens by a file descriptor, with an allocation that it finds by a pointer."""
    import ctypes
    import multiprocessing
    import numpy
    from multiprocessing import reduction
    from cuda.bindings import driver
    ready_for_driver(driver)
    wanted = driver.CUmemPoolProps()
    wanted.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.handleTypes = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    wanted.location.type, wanted.location.id = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, 0
    pool, stream = asked(driver.cuMemPoolCreate(wanted)), asked(driver.cuStreamCreate(1))
    memory = asked(driver.cuMemAllocFromPoolAsync(1 << 16, pool, stream))
    x = numpy.random.default_rng(7).random(1000).astype(numpy.float32)
    asked(driver.cuMemcpyHtoDAsync(memory, x.ctypes.data, x.nbytes, stream))
    asked(driver.cuStreamSynchronize(stream))
    handle = asked(driver.cuMemPoolExportToShareableHandle(pool, driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0))
    pointer = asked(driver.cuMemPoolExportPointer(memory))
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=pool_of_another, args=(theirs,))
    child.start()
    reduction.send_handle(ours, int(handle), child.pid)
    ours.send((ctypes.string_at(pointer.getPtr(), 64), x.nbytes))
    assert ours.poll(60), "no word from the other process"
    seen = numpy.frombuffer(ours.recv(), dtype=numpy.float32)
    child.join(30)
    back = numpy.zeros_like(x)
    asked(driver.cuMemcpyDtoH(back.ctypes.data, memory, x.nbytes))
    for result in (driver.cuMemFreeAsync(memory, stream), driver.cuStreamSynchronize(stream), driver.cuMemPoolTrimTo(pool, 0), driver.cuMemPoolDestroy(pool), driver.cuStreamDestroy(stream)):
        asked(result)
    os.close(int(handle))
    return [seen, back]


def asked(result):
    assert int(result[0]) == 0, result[0]
    return result[1] if len(result) == 2 else result[1:]


def ready_for_driver(driver):
    asked(driver.cuInit(0))
    asked(driver.cuCtxSetCurrent(asked(driver.cuDevicePrimaryCtxRetain(0))))


def pool_of_another(pipe):
    import ctypes
    import numpy
    from multiprocessing import reduction
    from cuda.bindings import driver
    ready_for_driver(driver)
    file = reduction.recv_handle(pipe)
    pointer, size = pipe.recv()
    pool = asked(driver.cuMemPoolImportFromShareableHandle(file, driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0))
    access = driver.CUmemAccessDesc()
    access.location.type, access.location.id = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, 0
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    asked(driver.cuMemPoolSetAccess(pool, [access], 1))
    share = driver.CUmemPoolPtrExportData()
    ctypes.memmove(share.getPtr(), pointer, 64)
    memory = asked(driver.cuMemPoolImportPointer(pool, share))
    seen = numpy.zeros(size // 4, numpy.float32)
    asked(driver.cuMemcpyDtoH(seen.ctypes.data, memory, size))
    asked(driver.cuMemsetD32(memory, 0x3F800000, 100))
    asked(driver.cuCtxSynchronize())
    asked(driver.cuMemFree(memory))
    asked(driver.cuMemPoolDestroy(pool))
    os.close(file)
    pipe.send(seen.tobytes())


@case
def core_objects_linked():
    """A program that is linked from objects of several kinds, and runs on two streams with an event between them."""
    import numpy
    from cuda.core import Device, LaunchConfig, Linker, LinkerOptions, Program, ProgramOptions, launch
    device = Device()
    device.set_current()
    parts = {
        "twice": "extern __device__ float plus_one(float); __device__ float twice(float x) { return 2 * plus_one(x); }",
        "plus_one": "__device__ float plus_one(float x) { return x + 1; }",
        "main": 'extern __device__ float twice(float); extern "C" __global__ void apply(float *x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = twice(x[i]); }',
    }
    options = ProgramOptions(std="c++17", arch="sm_90", relocatable_device_code=True)
    kinds = {"twice": "ptx", "plus_one": "cubin", "main": "ptx"}
    objects = [Program(code, code_type="c++", options=options).compile(kinds[name]) for name, code in parts.items()]
    kernel = Linker(*objects, options=LinkerOptions(arch="sm_90")).link("cubin").get_kernel("apply")
    one, two = device.create_stream(), device.create_stream()
    memory = device.allocate(4000, stream=one)
    import cupy
    x = cupy.ndarray((1000,), cupy.float32, cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(int(memory.handle), 4000, memory), 0))
    x[...] = cupy.arange(1000)
    cupy.cuda.Device().synchronize()
    config = LaunchConfig(grid=8, block=128)
    launch(one, config, kernel, memory, numpy.int32(1000))
    two.wait(one.record())
    launch(two, config, kernel, memory, numpy.int32(500))
    two.sync()
    assert float(x[10]) == ((10 + 1) * 2 + 1) * 2
    return [x]


# --- CuPy


@case
def cupy_sparse_solvers():
    cupy, numbers = cupy_ready()
    import numpy
    from cupyx.scipy import sparse
    from cupyx.scipy.sparse import linalg
    side = 24
    line = sparse.diags([-1.0, 2.5, -1.0], [-1, 0, 1], shape=(side, side))
    grid = sum((sparse.csr_matrix(part) for part in (sparse.kron(sparse.eye(side), line), sparse.diags(cupy.asarray(numbers.random(side * side))))), sparse.csr_matrix(sparse.kron(line, sparse.eye(side))))
    b = cupy.asarray(numbers.random(side * side))
    found = [linalg.cg(grid, b, rtol=1e-10)[0], linalg.gmres(grid, b, rtol=1e-10)[0], linalg.minres(grid, b, tol=1e-10)[0], linalg.spsolve(grid, b), linalg.lsqr(grid, b)[0]]
    assert all(float(abs(grid @ x - b).max()) < 1e-4 for x in found)
    lower = sparse.csr_matrix(sparse.tril(grid))
    found += [linalg.spsolve_triangular(lower, b, lower=True), linalg.splu(grid).solve(b), linalg.eigsh(grid, k=4, which="LA", return_eigenvectors=False)]
    start = cupy.asarray(numbers.random((side * side, 3)))
    values = linalg.lobpcg(grid, start, largest=True, tol=1e-6, maxiter=200)[0]
    found += [cupy.sort(values), (grid @ grid).sum(axis=0).ravel(), grid.multiply(grid).tocsc().sum(axis=1).ravel(), linalg.norm(grid).reshape(1)]
    assert numpy.isfinite(values.get()).all()
    return found


@case
def cupy_templates_and_fusions():
    """Kernels with templates of the standard library, fused functions, and kernels for whole arrays, rows and sums."""
    cupy, numbers = cupy_ready()
    module = cupy.RawModule(code=r'''
        #include <cuda/std/type_traits>
        #include <cuda/std/array>
        #include <cub/block/block_reduce.cuh>
        template <typename T, int N> __global__ void sums(const T *x, T *y) {
            using Reduce = cub::BlockReduce<T, N>;
            __shared__ typename Reduce::TempStorage room;
            cuda::std::array<T, 2> both = {x[blockIdx.x * N + threadIdx.x], T(1)};
            static_assert(cuda::std::is_arithmetic<T>::value, "numbers");
            T total = Reduce(room).Sum(both[0] * both[1]);
            if (threadIdx.x == 0) y[blockIdx.x] = total;
        }''', options=("--std=c++17",), name_expressions=["sums<float, 128>", "sums<double, 64>", "sums<int, 32>"])
    found = []
    for name, kind, threads in (("sums<float, 128>", cupy.float32, 128), ("sums<double, 64>", cupy.float64, 64), ("sums<int, 32>", cupy.int32, 32)):
        x, y = cupy.asarray(numbers.random(16 * threads) * 100).astype(kind), cupy.zeros(16, dtype=kind)
        module.get_function(name)((16,), (threads,), (x, y))
        assert cupy.allclose(y, x.reshape(16, threads).sum(axis=1), rtol=1e-4)
        found.append(y)

    @cupy.fuse()
    def fused(x, y):
        return cupy.sqrt(cupy.abs(x * y) + 1) - cupy.where(x > y, x, y)

    @cupy.vectorize
    def turned(x, y):
        return x * x - y if x > y else y - x

    x, y = cupy.asarray(numbers.random((50, 60))), cupy.asarray(numbers.random((50, 60)))
    farthest = cupy.ReductionKernel("float64 x, float64 y", "float64 z", "abs(x - y)", "max(a, b)", "z = a", "0", "farthest")
    power = cupy.ElementwiseKernel("T x, raw T y, int32 n", "T z", "z = 0; for (int k = 0; k < n; k++) z = z * x + y[(i + k) % _ind.size()]", "power")
    return [*found, fused(x, y), turned(x, y), farthest(x, y, axis=1), power(x, y, 4), cupy.einsum("ij,kj,k->ik", x, y, y[:, 0], optimize=True), cupy.apply_along_axis(cupy.cumsum, 0, x)]


@case
def cupy_transforms_with_plans():
    """Plans for transforms that are kept and shared, real and complex, and of several axes."""
    cupy, numbers = cupy_ready()
    from cupyx.scipy import fft, fftpack
    x = cupy.asarray(numbers.random((4, 32, 48)) + 1j * numbers.random((4, 32, 48)))
    plan = fftpack.get_fft_plan(x, axes=(1, 2))
    with plan:
        there = cupy.fft.fftn(x, axes=(1, 2))
    back = fft.ifftn(there, axes=(1, 2), plan=plan)
    assert cupy.allclose(back, x)
    real = cupy.asarray(numbers.random((6, 200)).astype("float32"))
    cupy.fft.config.get_plan_cache().set_size(4)
    found = [there.real, there.imag, fft.dct(real, axis=1), fft.idctn(real), fft.rfft2(real).real, fft.next_fast_len(101) * cupy.ones(1), fft.fht(cupy.asarray(numbers.random(64)), 0.1, 0.5)]
    for size in (31, 64, 97, 128, 1000):
        found.append(abs(cupy.fft.fft(cupy.asarray(numbers.random((3, size))).astype("complex64"))))
    return found


# --- JAX


@case
def jax_exported_and_loaded():
    """A function that goes to bytes and comes back, its derivative too, and an executable that does."""
    jax, np, x = jax_ready()
    from jax import export
    from jax.experimental import serialize_executable

    def f(a, b):
        return np.tanh(a @ b / 64).sum(axis=0) + jax.nn.softmax(b, axis=1)[0]

    rows, = export.symbolic_shape("rows")
    packed = export.export(jax.jit(f))(jax.ShapeDtypeStruct((rows, 64), np.float32), jax.ShapeDtypeStruct((64, 64), np.float32)).serialize(vjp_order=1)
    loaded = export.deserialize(packed)
    found = [loaded.call(x, x), loaded.call(x[:7], x), *jax.grad(lambda a, b: loaded.call(a, b).sum(), argnums=(0, 1))(x, x)]
    compiled = jax.jit(f).lower(x, x).compile()
    again = serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))
    return [*found, again(x, x)]


@case
def jax_scans_and_own_derivatives():
    jax, np, x = jax_ready()
    from jax.experimental import sparse

    @jax.custom_vjp
    def clipped(a):
        return np.sin(a)

    clipped.defvjp(lambda a: (np.sin(a), a), lambda a, g: (np.clip(g * np.cos(a), -0.5, 0.5),))
    found = [jax.grad(lambda a: (clipped(a) ** 2).sum())(x), jax.lax.associative_scan(np.maximum, x), jax.lax.associative_scan(lambda a, b: a @ b, np.stack([x / 40] * 5))]
    found += [jax.grad(lambda a: jax.checkpoint(lambda b: np.tanh(b @ b.T / 64))(a).sum())(x), jax.jvp(lambda a: np.linalg.inv(a + 64 * np.eye(64)), (x,), (x,))[1]]
    thin = sparse.BCOO.fromdense(np.where(x > 0.8, x, 0))
    found += [thin @ x, jax.ops.segment_sum(x, np.arange(64) % 7, num_segments=7), jax.lax.sort_key_val(x, x * 2)[1], jax.lax.top_k(x, 5)[0]]
    key = jax.random.key(7)
    found += [jax.random.gamma(key, 2.0, (100,)), jax.random.permutation(key, 100), jax.random.categorical(key, x, shape=(64,))]
    return found


# --- Numba


@case
def numba_functions_of_arrays():
    """Functions of numbers that become functions of arrays, sums by a function of ours, and random numbers."""
    cuda, numpy = numba_ready()
    import math
    from numba import float32, float64, guvectorize, vectorize
    from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_normal_float32, xoroshiro128p_uniform_float32
    numbers = numpy.random.default_rng(5)

    @vectorize([float32(float32, float32), float64(float64, float64)], target="cuda")
    def curved(a, b):
        return math.sin(a) * b + math.sqrt(abs(a))

    @guvectorize(["void(float64[:,:], float64[:,:], float64[:,:])"], "(m,n),(n,p)->(m,p)", target="cuda")
    def products(a, b, c):
        for i in range(a.shape[0]):
            for j in range(b.shape[1]):
                total = 0.0
                for k in range(a.shape[1]):
                    total += a[i, k] * b[k, j]
                c[i, j] = total

    @cuda.reduce
    def most(a, b):
        return max(a, b)

    @cuda.reduce
    def added(a, b):
        return a + b

    @cuda.jit
    def drawn(states, out):
        at = cuda.grid(1)
        if at < out.size:
            out[at] = xoroshiro128p_uniform_float32(states, at) + xoroshiro128p_normal_float32(states, at)

    a, b = numbers.random((40, 50)), numbers.random((40, 50))
    out = cuda.device_array(1000, dtype=numpy.float32)
    drawn[8, 128](create_xoroshiro128p_states(1024, seed=7), out)
    x = numbers.random(5000)
    return [curved(a, b), curved(cuda.to_device(a.astype(numpy.float32)), cuda.to_device(b.astype(numpy.float32))).copy_to_host(), products(numbers.random((6, 8, 10)), numbers.random((6, 10, 4))), numpy.array([most(x), added(x)]), out.copy_to_host()]


@case
def numba_linked_with_c():
    """A kernel that calls functions of a file in CUDA C++, with shared memory of a size told at the launch, and events."""
    cuda, numpy = numba_ready()
    import numba
    path = os.path.abspath(f"outside-{os.getpid()}.cu")
    with open(path, "w") as file:
        file.write('extern "C" __device__ int blended(float *out, float a, float b) { *out = a * 0.25f + b * 0.75f; return 0; }\n'
                   'extern "C" __device__ int bits_of(int *out, int a) { *out = __popc(a); return 0; }\n')
    blended = cuda.declare_device("blended", numba.float32(numba.float32, numba.float32))
    bits_of = cuda.declare_device("bits_of", numba.int32(numba.int32))

    @cuda.jit(link=[path])
    def kernel(x, y, bits):
        shared = cuda.shared.array(0, numba.float32)
        at = cuda.grid(1)
        shared[cuda.threadIdx.x] = x[at]
        cuda.syncthreads()
        y[at] = blended(shared[cuda.blockDim.x - 1 - cuda.threadIdx.x], x[at])
        bits[at] = bits_of(at)

    stream, begun, ended = cuda.stream(), cuda.event(), cuda.event()
    x = cuda.to_device(numpy.random.default_rng(5).random(1024, dtype=numpy.float32), stream=stream)
    y, bits = cuda.device_array(1024, numpy.float32, stream=stream), cuda.device_array(1024, numpy.int32, stream=stream)
    begun.record(stream)
    kernel[8, 128, stream, 512](x, y, bits)
    ended.record(stream)
    ended.synchronize()
    assert begun.elapsed_time(ended) >= 0
    return [y.copy_to_host(), bits.copy_to_host()]
