// What a program can ask of a graph that it has captured, and change: each node's parameters are
// read, changed, set and read again, and the graph does what they say.
#include "driver.cuh"

#include <cstring>
#include <string>
#include <unistd.h>

__global__ void fill(int *values, int count, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] = value + i;
}

__global__ void twice(int *values, int count, int unused) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] *= 2;
}

static int called = 0;
static std::string texts[4];
static void call(void *by) { called += *static_cast<int *>(by); }

static void say(const char *what, bool right) { std::printf("%s: %s\n", what, right ? "right" : "WRONG"); }

static cudaGraphNode_t only_node(cudaGraph_t graph) {
    cudaGraphNode_t node;
    size_t count;
    CHECK(cudaGraphGetNodes(graph, nullptr, &count));
    if (count != 1) std::printf("%zu nodes in place of one\n", count), std::exit(1);
    CHECK(cudaGraphGetNodes(graph, &node, &count));
    return node;
}

int main() {
    const int n = 256;
    int *a, *b;
    int *host;
    int seven = 7, hundred = 100;
    CHECK(cudaMalloc(&a, n * sizeof(int)));
    CHECK(cudaMalloc(&b, n * sizeof(int)));
    CHECK(cudaMallocHost(&host, n * sizeof(int)));
    cudaStream_t stream, side;
    cudaEvent_t fork, join;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaMemsetAsync(a, 0, n * sizeof(int), stream));
    fill<<<2, 128, 0, stream>>>(a, n, 5);
    CHECK(cudaEventRecord(fork, stream));
    CHECK(cudaStreamWaitEvent(side, fork, 0));
    CHECK(cudaLaunchHostFunc(side, call, &seven));
    CHECK(cudaEventRecord(join, side));
    CHECK(cudaMemcpyAsync(b, a, n * sizeof(int), cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaStreamWaitEvent(stream, join, 0));
    cudaStreamCaptureStatus status;
    unsigned long long id = 0;
    cudaGraph_t building;
    const cudaGraphNode_t *dependencies;
    const cudaGraphEdgeData *edge_data;
    size_t count = 0;
    CHECK(cudaStreamGetCaptureInfo(stream, &status, &id, &building, &dependencies, &edge_data, &count));
    say("capture info", status == cudaStreamCaptureStatusActive && id != 0 && count == 2);
    cudaGraphNode_t copy = nullptr, memset = nullptr, kernel = nullptr, function = nullptr, last = nullptr;
    for (size_t i = 0; i < count; ++i) {
        cudaGraphNodeType type;
        CHECK(cudaGraphNodeGetType(dependencies[i], &type));
        if (type == cudaGraphNodeTypeMemcpy) copy = dependencies[i];
    }
    // A node of the program's own, and the capture goes on behind it.
    cudaGraphNode_t empty;
    CHECK(cudaGraphAddEmptyNode(&empty, building, dependencies, count));
    CHECK(cudaStreamUpdateCaptureDependencies(stream, &empty, nullptr, 1, cudaStreamSetCaptureDependencies));
    CHECK(cudaMemcpyAsync(host, b, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));

    size_t nodes_count = 0, edges_count = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes_count));
    CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges_count));
    std::vector<cudaGraphNode_t> nodes(nodes_count), from(edges_count), to(edges_count);
    std::vector<cudaGraphEdgeData> data(edges_count);
    CHECK(cudaGraphGetNodes(graph, nodes.data(), &nodes_count));
    CHECK(cudaGraphGetEdges(graph, from.data(), to.data(), data.data(), &edges_count));
    say("nodes and edges", nodes_count == 6 && edges_count == 6);
    for (cudaGraphNode_t node : nodes) {
        cudaGraphNodeType type;
        size_t before = 0, behind = 0;
        CHECK(cudaGraphNodeGetType(node, &type));
        CHECK(cudaGraphNodeGetDependencies(node, nullptr, nullptr, &before));
        CHECK(cudaGraphNodeGetDependentNodes(node, nullptr, nullptr, &behind));
        if (type == cudaGraphNodeTypeKernel) kernel = node;
        if (type == cudaGraphNodeTypeMemset) memset = node;
        if (type == cudaGraphNodeTypeHost) function = node;
        if (type == cudaGraphNodeTypeMemcpy && behind == 0) last = node;
        if (type == cudaGraphNodeTypeEmpty) say("the program's own node", before == 2 && behind == 1);
    }
    cudaKernelNodeParams launch = {};
    CHECK(cudaGraphKernelNodeGetParams(kernel, &launch));
    say("kernel", launch.func == (void *)fill && launch.gridDim.x == 2 && launch.blockDim.x == 128 && *(int *)launch.kernelParams[2] == 5 &&
                      *(int **)launch.kernelParams[0] == a);
    cudaMemsetParams set = {};
    CHECK(cudaGraphMemsetNodeGetParams(memset, &set));
    say("memset", set.dst == a && set.value == 0 && set.width * set.elementSize * set.height == n * sizeof(int));
    cudaHostNodeParams callee = {};
    CHECK(cudaGraphHostNodeGetParams(function, &callee));
    say("host function", callee.fn == call && callee.userData == &seven);
    cudaMemcpy3DParms moved = {};
    CHECK(cudaGraphMemcpyNodeGetParams(copy, &moved));
    say("copy", moved.srcPtr.ptr == a && moved.dstPtr.ptr == b && moved.extent.width == n * sizeof(int));
    CHECK(cudaGraphMemcpyNodeSetParams(copy, &moved));
    cudaMemcpy3DParms out = {};
    CHECK(cudaGraphMemcpyNodeGetParams(last, &out));
    say("copy to the host", out.srcPtr.ptr == b && out.dstPtr.ptr == host && out.kind == cudaMemcpyDeviceToHost);

    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    say("launch", host[0] == 5 && host[n - 1] == 5 + n - 1 && called == 7);

    // Changed in the executable: another value, another function of the same shape, another source.
    int nine = 9, all = n;
    void *arguments[] = {&a, &all, &nine};
    launch.kernelParams = arguments;
    CHECK(cudaGraphExecKernelNodeSetParams(exec, kernel, &launch));
    callee.userData = &hundred;
    CHECK(cudaGraphExecHostNodeSetParams(exec, function, &callee));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    say("changed executable", host[3] == 12 && called == 107);
    CHECK(cudaGraphExecMemcpyNodeSetParams1D(exec, last, host, a, 4 * sizeof(int), cudaMemcpyDeviceToHost));
    launch.func = (void *)twice;
    CHECK(cudaGraphExecKernelNodeSetParams(exec, kernel, &launch));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    say("another function", host[3] == 0 && host[4] == 13);

    // A clone with changed nodes, by which the executable is updated.
    cudaGraph_t clone;
    cudaGraphNode_t in_clone;
    CHECK(cudaGraphClone(&clone, graph));
    CHECK(cudaGraphNodeFindInClone(&in_clone, kernel, clone));
    cudaKernelNodeParams again = {};
    CHECK(cudaGraphKernelNodeGetParams(in_clone, &again));
    int forty = 40;
    void *changed[] = {&a, &all, &forty};
    again.kernelParams = changed;
    CHECK(cudaGraphKernelNodeSetParams(in_clone, &again));
    cudaGraphExecUpdateResultInfo info;
    CHECK(cudaGraphExecUpdate(exec, clone, &info));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    say("update", info.result == cudaGraphExecUpdateSuccess && again.func == (void *)fill && host[2] == 42);
    CHECK(cudaGraphKernelNodeGetParams(kernel, &launch));
    say("the original", *(int *)launch.kernelParams[2] == 5);

    // What it looks like.
    char path[] = "/tmp/cumux-captured-XXXXXX";
    const int file = mkstemp(path);
    CHECK(cudaGraphDebugDotPrint(graph, path, cudaGraphDebugDotFlagsVerbose));
    char text[4096] = {};
    say("dot", read(file, text, sizeof text - 1) > 0 && std::strstr(text, "digraph") && std::strstr(text, "fill") && std::strstr(text, "->"));
    close(file);
    unlink(path);

    // Values that a stream writes and waits for.
    CUgraph values;
    auto capture_write = driver<CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned)>("cuStreamWriteValue32");
    auto tell = driver<CUresult (*)(CUgraphNode, CUDA_BATCH_MEM_OP_NODE_PARAMS *)>("cuGraphBatchMemOpNodeGetParams");
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CUresult written = capture_write(stream, (CUdeviceptr)a, 77, 0);
    CHECK(cudaStreamEndCapture(stream, &values));
    size_t one = 1;
    cudaGraphNode_t value_node;
    CHECK(cudaGraphGetNodes(values, &value_node, &one));
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {};
    const CUresult told = tell(value_node, &batch);
    say("values", written == CUDA_SUCCESS && told == CUDA_SUCCESS && batch.count == 1 &&
                      batch.paramArray[0].writeValue.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 && batch.paramArray[0].writeValue.value == 77 &&
                      batch.paramArray[0].writeValue.address == (CUdeviceptr)a);

    // Memory of a graph, launched again and again.
    cudaGraph_t memory;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    int *inside;
    CHECK(cudaMallocAsync(&inside, n * sizeof(int), stream));
    fill<<<2, 128, 0, stream>>>(inside, n, 3);
    CHECK(cudaMemcpyAsync(host, inside, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaFreeAsync(inside, stream));
    CHECK(cudaStreamEndCapture(stream, &memory));
    cudaGraphExec_t memory_exec;
    CHECK(cudaGraphInstantiate(&memory_exec, memory, 0));
    bool same = true;
    for (int round = 0; round < 3; ++round) {
        host[9] = 0;
        CHECK(cudaGraphLaunch(memory_exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        same &= host[9] == 12;
    }
    size_t memory_count = 8;
    cudaGraphNode_t memory_nodes[8];
    CHECK(cudaGraphGetNodes(memory, memory_nodes, &memory_count));
    cudaMemAllocNodeParams allocated = {};
    for (size_t i = 0; i < memory_count; ++i) {
        cudaGraphNodeType type;
        CHECK(cudaGraphNodeGetType(memory_nodes[i], &type));
        if (type == cudaGraphNodeTypeMemAlloc) CHECK(cudaGraphMemAllocNodeGetParams(memory_nodes[i], &allocated));
        void *freed = nullptr;
        if (type == cudaGraphNodeTypeMemFree) {
            CHECK(cudaGraphMemFreeNodeGetParams(memory_nodes[i], &freed));
            same &= freed == inside;
        }
    }
    say("memory", same && allocated.dptr == inside && allocated.bytesize == n * sizeof(int));
    CHECK(cudaGraphExecDestroy(memory_exec));
    CHECK(cudaGraphExecDestroy(exec));
    // A set is captured wherever it goes: cuDNN captures without a workspace, and sets the address
    // afterwards.
    cudaGraph_t draft;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaMemsetAsync(reinterpret_cast<void *>(0x80), 7, n, stream));
    CHECK(cudaStreamEndCapture(stream, &draft));
    const cudaGraphNode_t draft_node = only_node(draft);
    cudaMemsetParams anywhere_set = {};
    CHECK(cudaGraphMemsetNodeGetParams(draft_node, &anywhere_set));
    bool anywhere = anywhere_set.dst == reinterpret_cast<void *>(0x80) && anywhere_set.width == n && anywhere_set.value == 7;
    anywhere_set.dst = b;
    CHECK(cudaGraphMemsetNodeSetParams(draft_node, &anywhere_set));
    CHECK(cudaGraphInstantiate(&exec, draft, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaMemcpyAsync(host, b, n, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < n; ++i) anywhere &= reinterpret_cast<unsigned char *>(host)[i] == 7;
    cudaError_t outside = cudaMemsetAsync(reinterpret_cast<void *>(0x80), 7, n, stream);
    say("a set without memory", anywhere && outside == cudaErrorInvalidValue);
    // llama.cpp asks once for a node's parameters, and for each token writes another pointer into
    // the array that it was given, and sets the node to that.
    cudaGraph_t tokens;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    fill<<<2, 128, 0, stream>>>(a, n, 1);
    CHECK(cudaStreamEndCapture(stream, &tokens));
    const cudaGraphNode_t token_node = only_node(tokens);
    cudaKernelNodeParams token = {};
    CHECK(cudaGraphKernelNodeGetParams(token_node, &token));
    cudaGraphExec_t token_exec;
    CHECK(cudaGraphInstantiate(&token_exec, tokens, 0));
    bool follows = true;
    const auto runs_with = [&](const cudaKernelNodeParams &params, int value) {
        CHECK(cudaGraphKernelNodeSetParams(token_node, &params));
        cudaGraphExecUpdateResultInfo updated;
        CHECK(cudaGraphExecUpdate(token_exec, tokens, &updated));
        CHECK(cudaGraphLaunch(token_exec, stream));
        CHECK(cudaMemcpyAsync(host, a, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        return host[0] == value && host[n - 1] == value + n - 1;
    };
    int value;
    for (value = 1; value < 40; ++value) {
        token.kernelParams[2] = &value;
        follows &= runs_with(token, value);
        // Another one writes the value itself, where it lies.
        if (value % 3 == 0) {
            cudaKernelNodeParams in_place = {};
            CHECK(cudaGraphKernelNodeGetParams(token_node, &in_place));
            *static_cast<int *>(in_place.kernelParams[2]) = -value;
            follows &= runs_with(in_place, -value) && in_place.kernelParams == token.kernelParams;
        }
        // What comes into free memory in between is not what the node reads.
        std::string(8 + 24 * value, 'x').swap(texts[value % 4]);
    }
    cudaKernelNodeParams seen_now = {};
    CHECK(cudaGraphKernelNodeGetParams(token_node, &seen_now));
    follows &= seen_now.kernelParams == token.kernelParams && *static_cast<int *>(seen_now.kernelParams[2]) == -39;
    say("parameters in place", follows);
    return 0;
}
