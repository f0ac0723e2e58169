// What a launch of a graph costs by how many graphs come in turn, and whether their nodes are set
// before each launch: a graph that was not launched for a while is no longer in the processor's
// cache.
//   graphs [LAUNCHES] [MOST]      4096 of each
// Each graph has sixteen small kernels in a row, with 512 bytes of parameters each. Prints the mean
// time from kernel to kernel, and of the host's calls for one launch, in microseconds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                                              \
    do {                                                                                         \
        cudaError_t status = (call);                                                             \
        if (status != cudaSuccess) {                                                             \
            std::printf("%s: %s\n", #call, cudaGetErrorName(status));                            \
            std::exit(1);                                                                        \
        }                                                                                        \
    } while (0)

constexpr int KERNELS = 16, BLOCKS = 16, THREADS = 128, MOST_STREAMS = 8, KEPT = 64;

struct Parameters {
    float *out;
    int rounds;
    char more[500];
};

__global__ void tiny(Parameters given) {
    float value = threadIdx.x;
    for (int round = 0; round < given.rounds; ++round) value = value * .5f + given.more[round & 255];
    given.out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

struct Graph {
    cudaGraphExec_t executable;
    std::vector<cudaGraphNode_t> nodes;
};

static Parameters parameters = {};
static void *arguments[] = {&parameters};
static cudaKernelNodeParams node = {};

static double now_us() {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static Graph make() {
    Graph made = {};
    made.nodes.resize(KERNELS);
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    for (int at = 0; at < KERNELS; ++at) CHECK(cudaGraphAddKernelNode(&made.nodes[at], graph, at ? &made.nodes[at - 1] : nullptr, at ? 1 : 0, &node));
    CHECK(cudaGraphInstantiate(&made.executable, graph, 0));
    return made;
}

// Launches graphs in turn, in so many streams. Without graphs it launches the kernels themselves.
static void measure(const std::vector<Graph> &graphs, const cudaStream_t *streams, int in_streams, int in_turn, bool set, int launches) {
    double host = 0, begun = 0;
    // The first round warms up.
    for (int round = 0; round < 2; ++round) {
        begun = now_us(), host = 0;
        for (int launch = 0; launch < launches; ++launch) {
            cudaStream_t stream = streams[launch % in_streams];
            if (launch >= KEPT * in_streams && launch % (KEPT / 4 * in_streams) == 0) CHECK(cudaStreamSynchronize(stream));
            double before = now_us();
            const Graph *graph = in_turn ? &graphs[launch % in_turn] : nullptr;
            for (int at = 0; at < KERNELS && (set || !graph); ++at) {
                parameters.more[7] = static_cast<char>(launch + at);
                if (graph) CHECK(cudaGraphExecKernelNodeSetParams(graph->executable, graph->nodes[at], &node));
                else tiny<<<BLOCKS, THREADS, 0, stream>>>(parameters);
            }
            if (graph) CHECK(cudaGraphLaunch(graph->executable, stream));
            host += now_us() - before;
        }
        for (int stream = 0; stream < in_streams; ++stream) CHECK(cudaStreamSynchronize(streams[stream]));
    }
    double kernel = (now_us() - begun) / launches / KERNELS;
    std::printf("%d streams, ", in_streams);
    if (in_turn) std::printf("%d graphs%s", in_turn, set ? ", set" : "");
    else std::printf("launches");
    std::printf(": %.2f us a kernel, host %.2f us for sixteen\n", kernel, host / launches);
}

int main(int count, char **words) {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    int launches = count > 1 ? std::atoi(words[1]) : 4096, most = count > 2 ? std::atoi(words[2]) : 4096;
    CHECK(cudaMalloc(&parameters.out, BLOCKS * THREADS * sizeof(float)));
    parameters.rounds = 8;
    node.func = reinterpret_cast<void *>(tiny);
    node.gridDim = dim3(BLOCKS), node.blockDim = dim3(THREADS), node.kernelParams = arguments;
    double begun = now_us();
    std::vector<Graph> graphs(most);
    std::generate(graphs.begin(), graphs.end(), make);
    std::printf("%d graphs of %d kernels made in %.0f ms\n", most, KERNELS, (now_us() - begun) / 1e3);
    cudaStream_t streams[MOST_STREAMS];
    for (cudaStream_t &stream : streams) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int in_streams : {1, MOST_STREAMS})
        for (int in_turn : {0, 8, 64, 256, 1024, 4096})
            for (bool set : {false, true})
                if (in_turn <= most && (in_turn || !set)) measure(graphs, streams, in_streams, in_turn, set, launches);
}
