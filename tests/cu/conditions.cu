// nvcc: -gencode arch=compute_75,code=compute_75
// Graphs with conditional nodes, made by hand and by capture, launched twice. What a kernel says of
// its condition only a device that runs PTX hears: the program has no machine code. On any other
// device it prints what the driver says to the first handle.
#include "driver.cuh"

__global__ void count_down(cudaGraphConditionalHandle again, int *left, int *rounds) {
    rounds[0] += 1;
    left[0] -= 1;
    cudaGraphSetConditional(again, left[0] > 0);
}

__global__ void decide(cudaGraphConditionalHandle handle, const int *from, unsigned plus) { cudaGraphSetConditional(handle, from[0] + plus); }

__global__ void add(int *to, int value) { to[0] += value; }

__global__ void start(int *left, int value) { left[0] = value; }

static cudaGraphNode_t kernel(cudaGraph_t graph, cudaGraphNode_t after, void *function, void **arguments) {
    cudaKernelNodeParams params = {};
    params.func = function;
    params.gridDim = params.blockDim = dim3(1);
    params.kernelParams = arguments;
    cudaGraphNode_t node;
    CHECK(cudaGraphAddKernelNode(&node, graph, after ? &after : nullptr, after ? 1 : 0, &params));
    return node;
}

static cudaGraphNode_t conditional(cudaGraph_t graph, cudaGraphNode_t after, cudaGraphConditionalHandle handle, cudaGraphConditionalNodeType type,
                                   unsigned size, cudaGraph_t *bodies) {
    cudaGraphNodeParams params = {};
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = size;
    cudaGraphNode_t node;
    CHECK(cudaGraphAddNode(&node, graph, after ? &after : nullptr, nullptr, after ? 1 : 0, &params));
    for (unsigned i = 0; i < size; ++i) bodies[i] = params.conditional.phGraph_out[i];
    return node;
}

int main() {
    int *words;
    CHECK(cudaMalloc(&words, 8 * sizeof(int)));
    // Streams that do not block do not wait for it.
    CHECK(cudaMemset(words, 0, 8 * sizeof(int)));
    CHECK(cudaDeviceSynchronize());
    int *left = words, *rounds = words + 1, *inner = words + 2, *chosen = words + 3, *after = words + 4, *either = words + 5;
    cudaGraph_t graph, body, cases[3], branches[2], nested;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle again, which, odd, forever;
    cudaError_t first = cudaGraphConditionalHandleCreate(&again, graph, 1, cudaGraphCondAssignDefault);
    if (first != cudaSuccess) {
        std::printf("handle: %s\n", cudaGetErrorName(first));
        return 0;
    }
    CHECK(cudaGraphConditionalHandleCreate(&which, graph, 0, cudaGraphCondAssignDefault));
    CHECK(cudaGraphConditionalHandleCreate(&odd, graph, 0, 0));
    CHECK(cudaGraphConditionalHandleCreate(&forever, graph, 0, cudaGraphCondAssignDefault));
    // left = 5; while (left) { rounds += 1; left -= 1; if (left == 0 + ...) inner += 10 }
    int five = 5, ten = 10, hundred = 100, one = 1, two = 2;
    unsigned zero = 0;
    void *begin[] = {&left, &five};
    cudaGraphNode_t begun = kernel(graph, nullptr, (void *)start, begin);
    cudaGraphNode_t loop = conditional(graph, begun, again, cudaGraphCondTypeWhile, 1, &body);
    void *down[] = {&again, &left, &rounds};  // of this loop, and later of a longer one
    cudaGraphNode_t counted = kernel(body, nullptr, (void *)count_down, down);
    void *ask[] = {&odd, &left, &zero};
    cudaGraphNode_t asked = kernel(body, counted, (void *)decide, ask);
    cudaGraphNode_t if_left = conditional(body, asked, odd, cudaGraphCondTypeIf, 1, &nested);
    void *more[] = {&inner, &ten};
    kernel(nested, nullptr, (void *)add, more);
    // switch (rounds % 256 …): the second case of three, made by capture.
    unsigned minus = 0u - 4u;
    void *choose[] = {&which, &rounds, &minus};
    cudaGraphNode_t decided = kernel(graph, loop, (void *)decide, choose);
    cudaGraphNode_t switched = conditional(graph, decided, which, cudaGraphCondTypeSwitch, 3, cases);
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < 3; ++i) {
        CHECK(cudaStreamBeginCaptureToGraph(stream, cases[i], nullptr, nullptr, 0, cudaStreamCaptureModeGlobal));
        add<<<1, 1, 0, stream>>>(chosen, i + 1);
        // Who captures into a graph may ask for it or not.
        CHECK(cudaStreamEndCapture(stream, i == 1 ? nullptr : &cases[i]));
    }
    // if / else by a default of 0.
    cudaGraphNode_t both = conditional(graph, switched, forever, cudaGraphCondTypeIf, 2, branches);
    void *yes[] = {&either, &one}, *no[] = {&either, &two};
    kernel(branches[0], nullptr, (void *)add, yes);
    kernel(branches[1], nullptr, (void *)add, no);
    void *last[] = {&after, &hundred};
    kernel(graph, both, (void *)add, last);
    cudaGraphNodeType type;
    CHECK(cudaGraphNodeGetType(if_left, &type));
    std::printf("type: %s\n", type == cudaGraphNodeTypeConditional ? "conditional" : "FAIL");
    cudaGraph_t clone;
    CHECK(cudaGraphClone(&clone, graph));
    CHECK(cudaGraphDestroy(graph));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, clone, 0));
    int found[6];
    for (int launch = 1; launch <= 2; ++launch) {
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaGraphLaunch(exec, stream));
        add<<<1, 1, 0, stream>>>(after, 1000);
        CHECK(cudaMemcpyAsync(found, words, sizeof found, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        std::printf("left %d rounds %d inner %d chosen %d after %d either %d\n", found[0], found[1], found[2], found[3], found[4], found[5]);
    }
    // What does not belong into a body.
    cudaGraph_t wrong, host;
    CHECK(cudaGraphCreate(&wrong, 0));
    CHECK(cudaGraphConditionalHandleCreate(&again, wrong, 1, cudaGraphCondAssignDefault));
    conditional(wrong, nullptr, again, cudaGraphCondTypeIf, 1, &host);
    cudaHostNodeParams nothing = {[](void *) {}, nullptr};
    cudaGraphNode_t node;
    CHECK(cudaGraphAddHostNode(&node, host, nullptr, 0, &nothing));
    cudaGraphExec_t none;
    std::printf("a host function in a body: %s\n", cudaGetErrorName(cudaGraphInstantiate(&none, wrong, 0)));
    cudaGetLastError();
    std::fflush(stdout);
    CHECK(cudaGraphDestroy(wrong));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(clone));
    // A loop that takes a while.
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphConditionalHandleCreate(&again, graph, 1, cudaGraphCondAssignDefault));
    int often = 20000;
    void *set[] = {&left, &often}, *clear[] = {&rounds, &zero};
    cudaGraphNode_t cleared = kernel(graph, kernel(graph, nullptr, (void *)start, set), (void *)start, clear);
    conditional(graph, cleared, again, cudaGraphCondTypeWhile, 1, &body);
    kernel(body, nullptr, (void *)count_down, down);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaMemcpyAsync(found, words, sizeof found, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::printf("long: %d\n", found[1]);
    // What nodes in a body do is changed in the graph, in the executable, and by another graph; a launch that is
    // under way keeps what it has.
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphConditionalHandleCreate(&again, graph, 1, cudaGraphCondAssignDefault));
    conditional(graph, nullptr, again, cudaGraphCondTypeIf, 1, &body);
    cudaGraphNode_t adds = kernel(body, nullptr, (void *)add, more), clears;
    cudaMemsetParams sets = {};
    sets.dst = chosen, sets.value = 7, sets.elementSize = 4, sets.width = sets.height = 1;
    CHECK(cudaGraphAddMemsetNode(&clears, body, nullptr, 0, &sets));
    CHECK(cudaMemset(words, 0, 8 * sizeof(int)));
    CHECK(cudaDeviceSynchronize());
    cudaKernelNodeParams change = {};
    change.func = (void *)add;
    change.gridDim = change.blockDim = dim3(1);
    void *by_one[] = {&inner, &one}, *by_two[] = {&inner, &two};
    change.kernelParams = by_one;
    CHECK(cudaGraphKernelNodeSetParams(adds, &change));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    change.kernelParams = by_two;
    sets.value = 9;
    CHECK(cudaGraphExecKernelNodeSetParams(exec, adds, &change));
    CHECK(cudaGraphExecMemsetNodeSetParams(exec, clears, &sets));
    CHECK(cudaMemcpyAsync(found, words, sizeof found, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::printf("changed in the graph: %d %d\n", found[2], found[3]);
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaMemcpyAsync(found, words, sizeof found, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::printf("changed in the executable: %d %d\n", found[2], found[3]);
    CHECK(cudaGraphNodeSetEnabled(exec, adds, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaMemcpyAsync(found, words, sizeof found, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphNodeSetEnabled(exec, adds, 1));
    std::printf("not enabled: %d\n", found[2]);
    // Another graph of the same shape brings a condition of its own, with the default of another.
    CHECK(cudaGraphCreate(&wrong, 0));
    CHECK(cudaGraphConditionalHandleCreate(&again, wrong, 1, cudaGraphCondAssignDefault));
    conditional(wrong, nullptr, again, cudaGraphCondTypeIf, 1, &body);
    kernel(body, nullptr, (void *)add, more);
    cudaGraphExecUpdateResultInfo info;
    CHECK(cudaGraphExecUpdate(exec, wrong, &info));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaMemcpyAsync(found, words, sizeof found, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::printf("updated: %d\n", found[2]);
    return 0;
}
