// Whether green contexts of the whole card share the queues of their context, divide them, or have
// some of their own:
//   CUDA_DEVICE_MAX_CONNECTIONS=20 CUDA_DEVICE_MAX_COPY_CONNECTIONS=2 green_queues [GREENS] [STREAMS]
// There are STREAMS streams (8) in each of GREENS green contexts (3; 0 = in the primary context).
// - One stream of each context has a kernel that does not end. All others get a short one: those
//   that still have it after 0.2 s share a queue with one that does not end. First one stream after
//   the other, then all at once.
// - Then all streams have kernels of 0.1 ms, three ahead. Streams that share a queue run in turn, so
//   fewer kernels run at a time than there are streams.
#include <chrono>
#include <thread>
#include <vector>
#include "green.cuh"

using Streams = std::vector<cudaStream_t>;

static double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

__global__ void wait_for(volatile unsigned *word) { while (!*word) {} }
__global__ void add(unsigned *out) { *out += 1; }
__global__ void busy(long long ns) {
    long long from, t;
    asm volatile("mov.u64 %0,%globaltimer;" : "=l"(from));
    do asm volatile("mov.u64 %0,%globaltimer;" : "=l"(t)); while (t - from < ns);
}

// How many of these streams have work for 0.2 s.
static int stand_still(const Streams &streams) {
    const double until = now() + 0.2;
    int left;
    do {
        left = 0;
        for (auto stream : streams) left += cudaStreamQuery(stream) == cudaErrorNotReady;
    } while (left && now() < until);
    return left;
}

static void beside_endless(const std::vector<Streams> &all, volatile unsigned *word, unsigned *out, bool at_once) {
    *word = 0;
    for (auto &streams : all) wait_for<<<1, 1, 0, streams[0]>>>(word);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::printf("%s beside one kernel that does not end in each context, stand still:", at_once ? "all at once" : "one after the other");
    Streams others;
    for (auto &streams : all) others.insert(others.end(), streams.begin() + 1, streams.end());
    int still = 0;
    for (auto stream : others) {
        add<<<1, 1, 0, stream>>>(out);
        if (!at_once) still += stand_still({stream});
    }
    if (at_once) still = stand_still(others);
    std::printf(" %d of %zu\n", still, others.size());
    *word = 1;
    CHECK(cudaDeviceSynchronize());
}

static void never_without_work(const std::vector<Streams> &all) {
    constexpr int ROUNDS = 500, AHEAD = 3;
    Streams streams;
    for (auto &some : all) streams.insert(streams.end(), some.begin(), some.end());
    std::vector<cudaEvent_t> ends(streams.size() * AHEAD);
    for (auto &end : ends) CHECK(cudaEventCreateWithFlags(&end, cudaEventDisableTiming));
    const double begun = now();
    for (int round = 0; round < ROUNDS; ++round) {
        for (size_t at = 0; at < streams.size(); ++at) {
            auto end = ends[at * AHEAD + round % AHEAD];
            if (round >= AHEAD) CHECK(cudaEventSynchronize(end));
            busy<<<1, 32, 0, streams[at]>>>(100000);
            CHECK(cudaEventRecord(end, streams[at]));
        }
    }
    CHECK(cudaDeviceSynchronize());
    std::printf("never without work: %.1f of %zu kernels at a time\n", streams.size() * ROUNDS * 1e-4 / (now() - begun), streams.size());
}

int main(int count, char **words) {
    const int greens = count > 1 ? std::atoi(words[1]) : 3, each = count > 2 ? std::atoi(words[2]) : 8;
    CHECK(cudaSetDevice(0));
    CHECK(cudaFree(nullptr));
    unsigned *word, *out;
    CHECK(cudaMallocHost((void **)&word, 64));
    CHECK(cudaMalloc(&out, 64));
    std::vector<Streams> all(greens ? greens : 1, Streams(each));
    for (auto &streams : all) {
        CUgreenCtx green = greens ? make_green(0) : nullptr;
        for (auto &stream : streams) {
            if (green) DRIVER(cuGreenCtxStreamCreate((CUstream *)&stream, green, CU_STREAM_NON_BLOCKING, 0));
            else CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
            add<<<1, 1, 0, stream>>>(out);
            CHECK(cudaStreamSynchronize(stream));
        }
    }
    beside_endless(all, word, out, false);
    beside_endless(all, word, out, true);
    never_without_work(all);
}
