// How long making a graph takes beside a kernel that runs: instantiating it, uploading it in a
// stream of the same priority and in one of the greatest, and launching one that was not uploaded.
//   CUDA_DEVICE_MAX_CONNECTIONS=16 upload [STREAMS] [KERNEL_MS] [GRAPHS] [BEFORE]
// The kernel runs in each of so many streams in turn, once for each kind of call with so many
// graphs, after BEFORE graphs that were made and destroyed. Prints a line for each, in milliseconds:
// the longest call of each kind, and "waited" where one took a third of the kernel's time.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#define CHECK(call)                                                                              \
    do {                                                                                         \
        cudaError_t status = (call);                                                             \
        if (status != cudaSuccess) {                                                             \
            std::printf("%s: %s\n", #call, cudaGetErrorName(status));                            \
            std::exit(1);                                                                        \
        }                                                                                        \
    } while (0)

__global__ void spin(unsigned long long ns) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - begin < ns);
}
__global__ void tiny(int *out) { if (out) *out = 1; }

static double now_ms() {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <typename F>
static double took(F act) {
    double begun = now_ms();
    act();
    return now_ms() - begun;
}

struct Made {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
};

static Made add(int nodes) {
    Made made{};
    CHECK(cudaGraphCreate(&made.graph, 0));
    cudaGraphNode_t before{};
    int *none = nullptr;
    void *arguments[] = {&none};
    for (int i = 0; i < nodes; ++i) {
        cudaKernelNodeParams node{};
        node.func = (void *)tiny;
        node.gridDim = node.blockDim = dim3(1);
        node.kernelParams = arguments;
        cudaGraphNode_t added;
        CHECK(cudaGraphAddKernelNode(&added, made.graph, i ? &before : nullptr, i ? 1 : 0, &node));
        before = added;
    }
    return made;
}

int main(int argc, char **argv) {
    int streams = argc > 1 ? std::atoi(argv[1]) : 18, kernel_ms = argc > 2 ? std::atoi(argv[2]) : 120, graphs = argc > 3 ? std::atoi(argv[3]) : 12;
    int least, greatest;
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    cudaStream_t same, urgent, launches, busy;
    CHECK(cudaStreamCreateWithPriority(&same, cudaStreamNonBlocking, 0));
    CHECK(cudaStreamCreateWithPriority(&urgent, cudaStreamNonBlocking, greatest));
    CHECK(cudaStreamCreateWithPriority(&launches, cudaStreamNonBlocking, 0));
    CHECK(cudaStreamCreateWithPriority(&busy, cudaStreamNonBlocking, 0));
    std::vector<cudaStream_t> all(streams);
    for (cudaStream_t &stream : all) CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0));
    tiny<<<1, 1, 0, busy>>>(nullptr);
    spin<<<1, 1, 0, busy>>>(1);
    CHECK(cudaDeviceSynchronize());
    int before = argc > 4 ? std::atoi(argv[4]) : 0;
    std::vector<Made> early(before);
    for (int i = 0; i < before; ++i) {
        early[i] = add(1 + i % 8);
        CHECK(cudaGraphInstantiate(&early[i].executable, early[i].graph, 0));
    }
    for (Made &made : early) {
        CHECK(cudaGraphExecDestroy(made.executable));
        CHECK(cudaGraphDestroy(made.graph));
    }
    std::atomic<bool> ends{false};
    // As an engine does beside the thread that makes graphs.
    std::thread other([&] {
        while (!ends) {
            tiny<<<1, 1, 0, busy>>>(nullptr);
            while (cudaStreamQuery(busy) == cudaErrorNotReady && !ends) {}
        }
    });
    int waited[4] = {};
    for (int at = 0; at < streams; ++at) {
        double longest[4] = {};
        // Each kind beside a kernel of its own, so that one does not pay for another.
        for (int kind = 0; kind < 4; ++kind) {
            spin<<<1, 1, 0, all[at]>>>(1000000ull * kernel_ms);
            for (int i = 0; i < graphs; ++i) {
                Made made = add(1 + i % 8);
                double instantiates = took([&] { CHECK(cudaGraphInstantiate(&made.executable, made.graph, 0)); });
                longest[0] = std::max(longest[0], instantiates);
                double rest = 0;
                if (kind == 1) rest = took([&] { CHECK(cudaGraphUpload(made.executable, same)); });
                if (kind == 2) rest = took([&] { CHECK(cudaGraphUpload(made.executable, urgent)); });
                if (kind == 3) rest = took([&] { CHECK(cudaGraphLaunch(made.executable, launches)); });
                longest[kind] = std::max(longest[kind], rest);
                // They stay: whether the driver needs more memory for them is part of the question.
            }
            CHECK(cudaStreamSynchronize(all[at]));
        }
        std::printf("stream %2d: instantiate %7.2f  upload %7.2f  upload, greatest priority %7.2f  launch %7.2f", at, longest[0], longest[1], longest[2], longest[3]);
        for (int kind = 0; kind < 4; ++kind) {
            if (longest[kind] * 3 > kernel_ms) ++waited[kind], std::printf("  waited %d", kind);
        }
        std::puts("");
        std::fflush(stdout);
    }
    ends = true;
    other.join();
    std::printf("waited: instantiate %d, upload %d, upload with the greatest priority %d, launch %d of %d\n", waited[0], waited[1], waited[2], waited[3], streams);
    return 0;
}
