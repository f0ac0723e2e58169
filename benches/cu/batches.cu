// How many kernels a second the driver and the card alone can do for eight clients that launch a
// hundred and wait for them, by the chains of which such a batch is made.
//   batches [SECONDS] [CLIENTS]     0.4 of each, 8
// Threads with a green context each serve the clients. A chain is a graph of kernels in a row and a
// kernel of one thread that writes the chain's word. No client takes part: a batch begins as soon
// as its thread sees the end of the one before, or so many microseconds later (the time that a
// client takes to launch its hundred), the chains after the first one after another such time.
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

__global__ void mark(unsigned long long *word) { asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(word), "l"(1ull) : "memory"); }

using Clock = std::chrono::steady_clock;
static double since(Clock::time_point begun) { return std::chrono::duration<double>(Clock::now() - begun).count(); }

constexpr int MOST_THREADS = 4;
static CUgreenCtx greens[MOST_THREADS];
static CUcontext contexts[MOST_THREADS];

struct Chain {
    CUgraph graph = nullptr;
    CUgraphExec made = nullptr;
    volatile unsigned long long *word;
};

struct Way {
    std::vector<int> sizes;
    double head_us, rest_us;  // from the end of the batch before; from the head
};

struct Client {
    float *out;
    CUstream stream = nullptr;
    std::vector<Chain> chains;
    size_t launched = 0;
    Clock::time_point due;

    void prepare(const Way &way, CUgreenCtx green) {
        CHECK(cudaMalloc(&out, 4096));
        DRIVER(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
        CUfunction first, second;
        CHECK(cudaGetFuncBySymbol((cudaFunction_t *)&first, (void *)work));
        CHECK(cudaGetFuncBySymbol((cudaFunction_t *)&second, (void *)mark));
        for (int size : way.sizes) {
            Chain chain;
            CHECK(cudaHostAlloc((void **)&chain.word, 4096, cudaHostAllocMapped));
            *chain.word = 1;
            DRIVER(cuGraphCreate(&chain.graph, 0));
            CUgraphNode before = nullptr, node;
            int count = 1;
            void *arguments[] = {&out, &count}, *of_mark[] = {(void *)&chain.word};
            CUDA_KERNEL_NODE_PARAMS given = {};
            given.func = first, given.gridDimX = given.gridDimY = given.gridDimZ = 1, given.blockDimX = 32, given.blockDimY = given.blockDimZ = 1, given.kernelParams = arguments;
            for (int at = 0; at < size; ++at) {
                DRIVER(cuGraphAddKernelNode(&node, chain.graph, before ? &before : nullptr, before ? 1 : 0, &given));
                before = node;
            }
            given.func = second, given.blockDimX = 1, given.kernelParams = of_mark;
            DRIVER(cuGraphAddKernelNode(&node, chain.graph, &before, 1, &given));
            DRIVER(cuGraphInstantiate(&chain.made, chain.graph, 0));
            chains.push_back(chain);
        }
        launched = chains.size();
    }

    // One look. Adds the kernels of a batch that has ended, and the time of the launches.
    void serve(const Way &way, double &kernels, double &spent, double &launches) {
        if (launched == chains.size()) {
            for (const Chain &chain : chains)
                if (*chain.word != 1) return;
            for (int size : way.sizes) kernels += size;
            launched = 0;
            due = Clock::now() + std::chrono::nanoseconds(long(way.head_us * 1e3));
        }
        auto before = Clock::now();
        while (launched < chains.size() && before >= due) {
            const bool is_head = launched == 0;
            *chains[launched].word = 0;
            DRIVER(cuGraphLaunch(chains[launched].made, stream));
            ++launched, ++launches;
            const auto after = Clock::now();
            spent += std::chrono::duration<double, std::micro>(after - before).count();
            if (is_head) due += std::chrono::nanoseconds(long(way.rest_us * 1e3));
            before = after;
        }
    }

    void end() {
        DRIVER(cuStreamSynchronize(stream));
        for (Chain &chain : chains) {
            DRIVER(cuGraphExecDestroy(chain.made));
            DRIVER(cuGraphDestroy(chain.graph));
        }
        DRIVER(cuStreamDestroy(stream));
    }
};

static void measure(const Way &way, int clients, int threads, double seconds) {
    std::atomic<int> ready{0};
    std::vector<double> kernels(threads), spent(threads), launches(threads);
    std::vector<std::thread> all;
    for (int number = 0; number < threads; ++number)
        all.emplace_back([&, number] {
            DRIVER(cuCtxSetCurrent(contexts[number]));
            std::vector<Client> mine;
            for (int client = number; client < clients; client += threads) mine.emplace_back().prepare(way, greens[number]);
            ++ready;
            while (ready < threads) {}
            const auto begun = Clock::now();
            while (since(begun) < seconds)
                for (Client &client : mine) client.serve(way, kernels[number], spent[number], launches[number]);
            for (Client &client : mine) client.end();
        });
    for (std::thread &thread : all) thread.join();
    double total = 0, time = 0, calls = 0;
    for (int number = 0; number < threads; ++number) total += kernels[number], time += spent[number], calls += launches[number];
    std::string sizes;
    int batch = 0;
    for (int size : way.sizes) sizes += (sizes.empty() ? "" : "+") + std::to_string(size), batch += size;
    std::printf("%d threads, %-24s head after %4.1f us, rest after %4.1f us: %5.0f thousand kernels a second, %6.1f us a batch, a launch %.2f us\n", threads,
                sizes.c_str(), way.head_us, way.rest_us, total / seconds / 1e3, seconds * 1e6 * clients * batch / total, time / calls);
    std::fflush(stdout);
}

int main(int argc, char **argv) {
    const double seconds = argc > 1 ? std::atof(argv[1]) : 0.4;
    const int clients = argc > 2 ? std::atoi(argv[2]) : 8;
    CHECK(cudaFree(nullptr));
    for (int at = 0; at < MOST_THREADS; ++at) {
        greens[at] = make_green(0);
        DRIVER(cuCtxFromGreenCtx(&contexts[at], greens[at]));
    }
    const Way ways[] = {
        {{100}, 0, 0}, {{16, 84}, 0, 0}, {{16, 16, 68}, 0, 0}, {{16, 32, 52}, 0, 0}, {{32, 68}, 0, 0}, {{8, 16, 76}, 0, 0}, {{50, 50}, 0, 0}, {{16, 16, 16, 16, 16, 20}, 0, 0},
        {{100}, 25, 0}, {{16, 84}, 5, 20}, {{16, 32, 52}, 5, 20}, {{8, 92}, 3, 22}, {{16, 84}, 10, 20},
    };
    for (const Way &way : ways)
        for (int threads : {3, 1}) measure(way, clients, threads, seconds);
}
