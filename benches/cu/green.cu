// What green contexts of the whole card cost and share, beside the primary context: memory of the
// card, local memory, and whether a kernel that needs local memory for the first time waits for one
// that runs in another context.
#include <chrono>
#include <thread>
#include "green.cuh"

__global__ void nothing() {}
__global__ void wait_for(volatile unsigned *word) { while (!*word) {} }

// A kernel with so many bytes of local memory at least.
template <int BYTES> __global__ void local(int first, int second, int *out) {
    volatile int room[BYTES / 4];
    room[first & (BYTES / 4 - 1)] = first;
    *out = room[second & (BYTES / 4 - 1)];
}

constexpr int MOST = 3;
static CUgreenCtx greens[MOST];
static cudaStream_t streams[MOST + 1];

static size_t used_before;
static void report(const char *what) {
    size_t left, all;
    CHECK(cudaMemGetInfo(&left, &all));
    std::printf("%-60s %+5.0f MiB\n", what, double(all - left) / (1 << 20) - double(used_before) / (1 << 20));
    used_before = all - left;
}

template <int BYTES> static void run_local(int at, int *out, const char *what) {
    const auto begun = std::chrono::steady_clock::now();
    local<BYTES><<<1, 1, 0, streams[at]>>>(1, 1, out);
    const auto launched = std::chrono::steady_clock::now();
    CHECK(cudaStreamSynchronize(streams[at]));
    const auto ended = std::chrono::steady_clock::now();
    std::printf("%s in %s %d: launched after %.1f ms, over after %.1f ms\n", what, at ? "green context" : "the primary context", at,
                std::chrono::duration<double, std::milli>(launched - begun).count(), std::chrono::duration<double, std::milli>(ended - begun).count());
    report(what);
}

int main() {
    CHECK(cudaSetDevice(0));
    CHECK(cudaFree(nullptr));
    int *out;
    unsigned *word;
    CHECK(cudaMalloc(&out, 64));
    CHECK(cudaMallocHost((void **)&word, 64));
    report("the primary context");
    for (int at = 0; at < MOST; ++at) {
        greens[at] = make_green(0);
        report("a green context");
    }
    CHECK(cudaStreamCreateWithFlags(&streams[0], cudaStreamNonBlocking));
    for (int at = 0; at < MOST; ++at) DRIVER(cuGreenCtxStreamCreate((CUstream *)&streams[at + 1], greens[at], CU_STREAM_NON_BLOCKING, 0));
    report("a stream in each");
    for (int at = 0; at <= MOST; ++at) {
        nothing<<<1, 1, 0, streams[at]>>>();
        CHECK(cudaStreamSynchronize(streams[at]));
        report("its first kernel");
    }
    for (int at = 0; at < MOST; ++at) run_local<1024>(at, out, "1 KiB of local memory");
    // Beside a kernel that runs for 0.5 s in green context 1.
    for (int round = 0; round < 2; ++round) {
        *word = 0;
        wait_for<<<1, 1, 0, streams[1]>>>(word);
        std::thread later([word] { std::this_thread::sleep_for(std::chrono::milliseconds(500)); *(volatile unsigned *)word = 1; });
        if (round == 0) run_local<1024>(3, out, "the same beside a kernel that runs elsewhere");
        else run_local<4096>(2, out, "4 KiB beside a kernel that runs elsewhere");
        later.join();
        CHECK(cudaStreamSynchronize(streams[1]));
    }
    for (int at = 0; at <= MOST; ++at) run_local<4096>(at, out, "4 KiB of local memory");
}
