// How a host that looks at words in its memory learns soonest that a kernel has ended, and what it
// costs: a kernel that writes the word behind it, the same begun early (programmatic dependency),
// a value write; each as a graph and as two calls.
//   ends [SECONDS] [MOST_THREADS]     0.3 of each, 4
// First one kernel at a time, with the time from the launch to the word. Then eight clients, each
// of which asks for a kernel and waits for it: threads that are served by 1 to MOST_THREADS others,
// each with a green context of its own.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include "green.cuh"

__global__ void work(float *out, int count) {
    float a = out[threadIdx.x];
    for (int i = 0; i < count; i++) a = a * 1.0001f + 0.5f;
    out[threadIdx.x] = a;
}

__global__ void mark(unsigned long long *word) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(word), "l"(1ull) : "memory");
}

enum class End { Synchronize, Kernel, Early, Value };

struct Way {
    const char *name;
    End end;
    bool is_graph;
};

static const Way ways[] = {
    {"launch, synchronize", End::Synchronize, false},
    {"graph, kernel", End::Kernel, true},
    {"graph, kernel begun early", End::Early, true},
    {"graph, value write", End::Value, true},
    {"launch, kernel", End::Kernel, false},
    {"launch, kernel begun early", End::Early, false},
    {"launch, value write", End::Value, false},
};

using Clock = std::chrono::steady_clock;
static double since(Clock::time_point begun) { return std::chrono::duration<double>(Clock::now() - begun).count(); }

static CUcontext primary;

struct Lane {
    float *out;
    volatile unsigned long long *word;
    CUstream stream = nullptr;
    CUgraph graph = nullptr;
    CUgraphExec made = nullptr;
    CUfunction first, second;

    void prepare(const Way &way, CUgreenCtx green) {
        CHECK(cudaMalloc(&out, 4096));
        CHECK(cudaHostAlloc((void **)&word, 4096, cudaHostAllocMapped));
        DRIVER(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
        CHECK(cudaGetFuncBySymbol((cudaFunction_t *)&first, (void *)work));
        CHECK(cudaGetFuncBySymbol((cudaFunction_t *)&second, (void *)mark));
        if (!way.is_graph) return;
        DRIVER(cuGraphCreate(&graph, 0));
        CUgraphNode node, last;
        int count = 1;
        void *arguments[] = {&out, &count}, *of_mark[] = {(void *)&word};
        CUDA_KERNEL_NODE_PARAMS given = {};
        given.func = first, given.gridDimX = given.gridDimY = given.gridDimZ = 1, given.blockDimX = 32, given.blockDimY = given.blockDimZ = 1, given.kernelParams = arguments;
        DRIVER(cuGraphAddKernelNode(&node, graph, nullptr, 0, &given));
        if (way.end == End::Value) {
            CUstreamBatchMemOpParams write = {};
            write.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
            write.writeValue.address = (CUdeviceptr)word, write.writeValue.value64 = 1;
            CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {primary, 1, &write, 0};
            DRIVER(cuGraphAddBatchMemOpNode(&last, graph, &node, 1, &batch));
        } else {
            CUgraphNodeParams params = {};
            params.type = CU_GRAPH_NODE_TYPE_KERNEL;
            params.kernel.func = second, params.kernel.gridDimX = params.kernel.gridDimY = params.kernel.gridDimZ = 1;
            params.kernel.blockDimX = params.kernel.blockDimY = params.kernel.blockDimZ = 1, params.kernel.kernelParams = of_mark;
            CUgraphEdgeData edge = {};
            if (way.end == End::Early) edge.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, edge.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
            DRIVER(cuGraphAddNode(&last, graph, &node, &edge, 1, &params));
        }
        DRIVER(cuGraphInstantiate(&made, graph, 0));
    }

    void launch(const Way &way) {
        *word = 0;
        if (way.is_graph) {
            DRIVER(cuGraphLaunch(made, stream));
            return;
        }
        int count = 1;
        void *arguments[] = {&out, &count}, *of_mark[] = {(void *)&word};
        DRIVER(cuLaunchKernel(first, 1, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr));
        if (way.end == End::Value) DRIVER(cuStreamWriteValue64(stream, (CUdeviceptr)word, 1, 0));
        if (way.end == End::Kernel) DRIVER(cuLaunchKernel(second, 1, 1, 1, 1, 1, 1, 0, stream, of_mark, nullptr));
        if (way.end == End::Early) {
            CUlaunchAttribute early = {};
            early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, early.value.programmaticStreamSerializationAllowed = 1;
            CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, &early, 1};
            DRIVER(cuLaunchKernelEx(&config, second, of_mark, nullptr));
        }
    }

    bool is_done(const Way &way) {
        if (way.end == End::Synchronize) return cuStreamQuery(stream) == CUDA_SUCCESS;
        return *word == 1;
    }

    void end() {
        DRIVER(cuStreamSynchronize(stream));
        if (made) DRIVER(cuGraphExecDestroy(made));
        if (graph) DRIVER(cuGraphDestroy(graph));
        DRIVER(cuStreamDestroy(stream));
        made = nullptr, graph = nullptr;
    }
};

static void one_at_a_time(const Way &way, CUgreenCtx green, double seconds) {
    Lane lane;
    lane.prepare(way, green);
    std::vector<double> calls, whole;
    const auto begun = Clock::now();
    while (since(begun) < seconds) {
        const auto before = Clock::now();
        lane.launch(way);
        calls.push_back(since(before) * 1e6);
        if (way.end == End::Synchronize) DRIVER(cuStreamSynchronize(lane.stream));
        else while (!lane.is_done(way)) {}
        whole.push_back(since(before) * 1e6);
    }
    lane.end();
    std::sort(calls.begin(), calls.end()), std::sort(whole.begin(), whole.end());
    std::printf("%-28s call %5.2f us, until it is known %6.2f us (p50), %6.2f (p99)\n", way.name, calls[calls.size() / 2], whole[whole.size() / 2], whole[whole.size() * 99 / 100]);
}

// What a client asks, a cache line each.
struct alignas(64) Asked {
    std::atomic<unsigned> wanted{0};
    alignas(64) std::atomic<unsigned> done{0};
};

static void eight(const Way &way, CUcontext *contexts, CUgreenCtx *greens, int threads, double seconds) {
    constexpr int CLIENTS = 8;
    static Asked asked[CLIENTS];
    std::atomic<bool> over{false};
    std::atomic<int> ready{0};
    std::vector<std::thread> all;
    std::atomic<unsigned long> kernels{0};
    for (int number = 0; number < threads; ++number)
        all.emplace_back([&, number] {
            DRIVER(cuCtxSetCurrent(contexts[number]));
            Lane lanes[CLIENTS];
            unsigned launched[CLIENTS], told[CLIENTS];
            for (int client = number; client < CLIENTS; client += threads) {
                lanes[client].prepare(way, greens[number]);
                launched[client] = told[client] = asked[client].done.load();
            }
            ++ready;
            while (!over)
                for (int client = number; client < CLIENTS; client += threads) {
                    if (launched[client] != told[client] && lanes[client].is_done(way)) asked[client].done.store(++told[client], std::memory_order_release);
                    if (launched[client] == told[client] && asked[client].wanted.load(std::memory_order_acquire) != launched[client]) {
                        lanes[client].launch(way);
                        ++launched[client];
                    }
                }
            for (int client = number; client < CLIENTS; client += threads) {
                lanes[client].end();
                asked[client].done = asked[client].wanted.load();
            }
        });
    while (ready < threads) {}
    for (int client = 0; client < CLIENTS; ++client)
        all.emplace_back([&, client] {
            unsigned long count = 0;
            while (!over) {
                const unsigned wanted = asked[client].wanted.fetch_add(1, std::memory_order_release) + 1;
                while (asked[client].done.load(std::memory_order_acquire) != wanted && !over) __builtin_ia32_pause();
                ++count;
            }
            kernels += count;
        });
    const auto begun = Clock::now();
    while (since(begun) < seconds) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    over = true;
    const double took = since(begun);
    for (std::thread &thread : all) thread.join();
    std::printf("%-28s %d threads %8.0f kernels a second, %5.1f us each\n", way.name, threads, kernels / took, 8e6 * took / kernels);
}

int main(int argc, char **argv) {
    const double seconds = argc > 1 ? std::atof(argv[1]) : 0.3;
    const int most = argc > 2 ? std::min(std::atoi(argv[2]), 8) : 4;
    CHECK(cudaFree(nullptr));
    CUdevice device;
    DRIVER(cuCtxGetDevice(&device));
    DRIVER(cuCtxGetCurrent(&primary));
    CUgreenCtx greens[8];
    CUcontext contexts[8];
    for (int at = 0; at < most; ++at) {
        greens[at] = make_green(device);
        DRIVER(cuCtxFromGreenCtx(&contexts[at], greens[at]));
    }
    for (int turn = 0; turn < 2; ++turn)
        for (const Way &way : ways) one_at_a_time(way, greens[0], seconds);
    for (const Way &way : ways)
        for (int threads = 1; threads <= most; ++threads) eight(way, contexts, greens, threads, seconds);
}
