// What a launch costs from two threads, by the contexts in which their streams and graphs are: only
// one thread at a time holds the lock of a context.
//   submit [CLIENTS] [SECONDS]     8, 0.4 of each
// A client's work is a kernel of one block and a kernel that counts a word in host memory up, which
// the host looks at, in one graph.
#include <atomic>
#include <chrono>
#include <thread>
#include "green.cuh"

__global__ void work(float *out) { out[threadIdx.x] = out[threadIdx.x] * .5f + 1; }
__global__ void mark(volatile unsigned *word) { *word = *word + 1; }

struct Client {
    float *out;
    volatile unsigned *word;
    unsigned launched = 0;
    cudaGraph_t made = nullptr;
    cudaGraphExec_t graph = nullptr;
    cudaStream_t stream = nullptr;
    cudaGraphNode_t first;
};

enum class Streams { OfOne, OfGreens, OfOneAndGreens, InGreens };
enum class Lock { Drivers, Ours, Helper };

struct Way {
    const char *name;
    int threads;
    Streams streams;
    Lock lock;
    int sets = 0;  // so many nodes are set before each launch
};

// Contexts of the whole card in the address space of the primary one.
constexpr int MOST = 3;
static CUgreenCtx greens[MOST];
static CUcontext contexts[MOST];

static void make_greens(CUdevice device) {
    for (int at = 0; at < MOST; ++at) {
        greens[at] = make_green(device);
        DRIVER(cuCtxFromGreenCtx(&contexts[at], greens[at]));
    }
}

static void prepare(Client &client, int green, const Way &way) {
    if (way.streams == Streams::OfOne || (way.streams == Streams::OfOneAndGreens && green == 0)) CHECK(cudaStreamCreateWithFlags(&client.stream, cudaStreamNonBlocking));
    else DRIVER(cuGreenCtxStreamCreate((CUstream *)&client.stream, greens[green], CU_STREAM_NON_BLOCKING, 0));
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t &first = client.first, second;
    void *out[] = {&client.out}, *word[] = {(void *)&client.word};
    cudaKernelNodeParams given = {};
    given.func = (void *)work, given.gridDim = dim3(1), given.blockDim = dim3(32), given.kernelParams = out;
    CHECK(cudaGraphAddKernelNode(&first, graph, nullptr, 0, &given));
    given.func = (void *)mark, given.blockDim = dim3(1), given.kernelParams = word;
    CHECK(cudaGraphAddKernelNode(&second, graph, &first, 1, &given));
    CHECK(cudaGraphInstantiate(&client.graph, graph, 0));
    client.made = graph;
    client.launched = *client.word;
}

static std::atomic<bool> taken;
// Of each thread: what the helper is to launch, until it has.
static std::atomic<Client *> asked[MOST];
static std::atomic<bool> over;

static void launch_now(Client &client, const Way &way) {
    cudaKernelNodeParams given = {};
    void *out[] = {&client.out};
    given.func = (void *)work, given.gridDim = dim3(1), given.blockDim = dim3(32), given.kernelParams = out;
    for (int set = 0; set < way.sets; ++set) CHECK(cudaGraphExecKernelNodeSetParams(client.graph, client.first, &given));
    CHECK(cudaGraphLaunch(client.graph, client.stream));
}

static void launch(Client &client, int number, const Way &way) {
    if (way.lock == Lock::Helper) {
        asked[number].store(&client, std::memory_order_release);
        while (asked[number].load(std::memory_order_acquire)) __builtin_ia32_pause();
        return;
    }
    if (way.lock == Lock::Ours) while (taken.exchange(true, std::memory_order_acquire)) __builtin_ia32_pause();
    launch_now(client, way);
    if (way.lock == Lock::Ours) taken.store(false, std::memory_order_release);
}

static void help(const Way &way) {
    while (!over)
        for (std::atomic<Client *> &one : asked)
            if (Client *client = one.load(std::memory_order_acquire)) {
                launch_now(*client, way);
                one.store(nullptr, std::memory_order_release);
            }
}

static double serve(std::vector<Client *> &clients, int number, const Way &way, double seconds, double &spent) {
    using clock = std::chrono::steady_clock;
    if (way.streams == Streams::InGreens) DRIVER(cuCtxSetCurrent(contexts[number]));
    for (Client *client : clients) prepare(*client, number, way);
    double kernels = 0;
    spent = 0;
    const auto begun = clock::now();
    while (std::chrono::duration<double>(clock::now() - begun).count() < seconds)
        for (Client *client : clients) {
            if (*client->word != client->launched) continue;
            ++client->launched;
            const auto before = clock::now();
            launch(*client, number, way);
            spent += std::chrono::duration<double, std::micro>(clock::now() - before).count();
            ++kernels;
        }
    spent /= kernels;
    for (Client *client : clients) {
        CHECK(cudaStreamSynchronize(client->stream));
        CHECK(cudaGraphExecDestroy(client->graph));
        CHECK(cudaGraphDestroy(client->made));
        CHECK(cudaStreamDestroy(client->stream));
    }
    return kernels / seconds;
}

int main(int count, char **words) {
    const int clients = count > 1 ? std::atoi(words[1]) : 8;
    const double seconds = count > 2 ? std::atof(words[2]) : .4;
    CHECK(cudaSetDevice(0));
    CHECK(cudaFree(nullptr));
    size_t before, after, all_memory;
    CHECK(cudaMemGetInfo(&before, &all_memory));
    make_greens(0);
    CHECK(cudaMemGetInfo(&after, &all_memory));
    std::printf("%d green contexts: %zu MiB of the card\n", MOST, (before - after) >> 20);
    std::vector<Client> all(clients);
    for (Client &client : all) {
        CHECK(cudaMalloc(&client.out, 32 * sizeof(float)));
        CHECK(cudaMallocHost((void **)&client.word, 64));
        *client.word = 0;
    }
    const Way ways[] = {
        {"one thread", 1, Streams::OfOne, Lock::Drivers},
        {"two threads", 2, Streams::OfOne, Lock::Drivers},
        {"two threads with a lock that spins", 2, Streams::OfOne, Lock::Ours},
        {"two threads ask a third one", 2, Streams::OfOne, Lock::Helper},
        {"two threads, streams of two green contexts", 2, Streams::OfGreens, Lock::Drivers},
        {"two threads, streams of the primary and of a green one", 2, Streams::OfOneAndGreens, Lock::Drivers},
        {"two threads in two green contexts", 2, Streams::InGreens, Lock::Drivers},
        {"three threads, streams of three green contexts", 3, Streams::OfGreens, Lock::Drivers},
        {"4 sets, one thread", 1, Streams::OfOne, Lock::Drivers, 4},
        {"4 sets, two threads with a lock that spins", 2, Streams::OfOne, Lock::Ours, 4},
        {"4 sets, two threads ask a third one", 2, Streams::OfOne, Lock::Helper, 4},
        {"4 sets, two threads, streams of two green contexts", 2, Streams::OfGreens, Lock::Drivers, 4},
        {"4 sets, two threads, the primary and a green one", 2, Streams::OfOneAndGreens, Lock::Drivers, 4},
        {"4 sets, two threads in two green contexts", 2, Streams::InGreens, Lock::Drivers, 4},
        {"4 sets, three threads, streams of three green contexts", 3, Streams::OfGreens, Lock::Drivers, 4},
    };
    for (const Way &way : ways) {
        std::vector<std::vector<Client *>> of(way.threads);
        for (int at = 0; at < clients; ++at) of[at % way.threads].push_back(&all[at]);
        std::vector<double> rates(way.threads), spent(way.threads);
        std::vector<std::thread> running;
        over = false;
        std::thread helper([&] { if (way.lock == Lock::Helper) help(way); });
        for (int at = 0; at < way.threads; ++at) running.emplace_back([&, at] { rates[at] = serve(of[at], at, way, seconds, spent[at]); });
        for (std::thread &one : running) one.join();
        over = true;
        helper.join();
        double rate = 0;
        for (double one : rates) rate += one;
        std::printf("%-55s %5.0f thousand kernels a second, a launch %.2f us\n", way.name, rate / 1e3, spent[0]);
        std::fflush(stdout);
    }
}
