// A client of the crash matrix (crates/testkit/src/chaos). It times every CUDA call it makes and prints, one a line:
//
//   ready             its first results are there, or its first long kernel is under way
//   first AT TOOK     its first call: nanoseconds of CLOCK_MONOTONIC, and how long it took
//   round N           idle: the kernel for the line that it read is done
//   longest AT TOOK   the longest of all other calls
//   told NAME by CALL a call failed with this CUDA error; the program ends with status 3
//   digest X          of all results: the same for every run of the same arguments
//
// Modes: "work ROUNDS SEED" runs kernels in two streams that wait for each other; "wait COUNT TURNS" waits for one long kernel after the other;
// "idle" runs a kernel for each line that it reads.
#include "../../examples/example.cuh"

#include <cstring>
#include <ctime>

static long long now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ll + time.tv_nsec;
}

static long long longest_at, longest_took;
static bool begun;

static void say_longest() {
    std::printf("longest %lld %lld\n", longest_at, longest_took);
    std::fflush(stdout);
}

template <typename Call>
static void timed(const char *name, Call call) {
    const long long at = now();
    const cudaError_t result = call();
    const long long took = now() - at;
    if (!begun) {
        begun = true;
        std::printf("first %lld %lld\n", at, took);
        std::fflush(stdout);
    } else if (took > longest_took) {
        longest_at = at;
        longest_took = took;
    }
    if (result != cudaSuccess) {
        std::printf("told %s by %s\n", cudaGetErrorName(result), name);
        say_longest();
        std::exit(3);
    }
}

#define CALL(expression) timed(#expression, [&] { return expression; })

static unsigned long long digest = 14695981039346656037ull;

static void take(const std::vector<unsigned> &values) {
    for (unsigned value : values) digest = (digest ^ value) * 1099511628211ull;
}

static int done() {
    say_longest();
    std::printf("digest %016llx\n", digest);
    return 0;
}

__global__ void fill(unsigned *values, int n, unsigned seed) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = i * 2654435761u + seed;
}

// Each element goes on from what it was and from what the other half has: a round that is lost, or done twice, changes everything after it.
__global__ void mix(unsigned *values, const unsigned *other, int n, unsigned salt, int turns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned value = values[i] + other[n - 1 - i];
    for (int k = 0; k < turns; ++k) value = (value ^ (value >> 15)) * 2246822519u + salt + k;
    values[i] = value;
}

static int work(int count, unsigned seed) {
    const int n = 2048, turns = 100;
    unsigned *halves, *copy = nullptr;
    cudaStream_t stream[2];
    cudaEvent_t event;
    std::vector<unsigned> found(2 * n);
    CALL(cudaMalloc(&halves, 2 * n * sizeof(unsigned)));
    for (auto &one : stream) CALL(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    CALL(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    fill<<<2 * n / 256, 256, 0, stream[0]>>>(halves, 2 * n, seed);
    CALL(cudaGetLastError());
    for (int round = 0; round < count; ++round) {
        for (int half = 0; half < 2; ++half) {
            mix<<<n / 256, 256, 0, stream[half]>>>(halves + half * n, halves + (1 - half) * n, n, seed + round, turns);
            CALL(cudaGetLastError());
            CALL(cudaEventRecord(event, stream[half]));
            CALL(cudaStreamWaitEvent(stream[1 - half], event, 0));
        }
        if (round % 8 == 3) {
            // What comes and goes must survive a takeover as what stays.
            CALL(cudaMalloc(&copy, n * sizeof(unsigned)));
            CALL(cudaMemcpyAsync(copy, halves, n * sizeof(unsigned), cudaMemcpyDeviceToDevice, stream[0]));
        }
        for (auto one : stream) CALL(cudaStreamSynchronize(one));
        if (copy) {
            CALL(cudaMemcpy(found.data(), copy, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
            take(found);
            CALL(cudaFree(copy));
            copy = nullptr;
        }
        if (round == 0) {
            std::puts("ready");
            std::fflush(stdout);
        }
    }
    CALL(cudaMemcpy(found.data(), halves, 2 * n * sizeof(unsigned), cudaMemcpyDeviceToHost));
    take(found);
    return done();
}

static int wait(int count, int turns) {
    const int n = 32;
    unsigned *values;
    std::vector<unsigned> found(n);
    CALL(cudaMalloc(&values, 2 * n * sizeof(unsigned)));
    fill<<<1, 2 * n>>>(values, 2 * n, 7);
    CALL(cudaGetLastError());
    CALL(cudaDeviceSynchronize());
    for (int kernel = 0; kernel < count; ++kernel) {
        mix<<<1, n>>>(values, values + n, n, kernel, turns);
        CALL(cudaGetLastError());
        if (kernel == 0) {
            std::puts("ready");
            std::fflush(stdout);
        }
        CALL(cudaDeviceSynchronize());
    }
    CALL(cudaMemcpy(found.data(), values, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
    take(found);
    return done();
}

static int idle() {
    const int n = 4096;
    unsigned *values;
    std::vector<unsigned> found(n);
    CALL(cudaMalloc(&values, n * sizeof(unsigned)));
    for (unsigned round = 0;; ++round) {
        fill<<<n / 128, 128>>>(values, n, round);
        CALL(cudaGetLastError());
        CALL(cudaMemcpy(found.data(), values, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
        take(found);
        if (round == 0) {
            std::puts("ready");
        } else {
            std::printf("round %u\n", round);
        }
        std::fflush(stdout);
        int letter;
        while ((letter = std::getchar()) != '\n' && letter != EOF) continue;
        if (letter == EOF) return done();
    }
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    if (!std::strcmp(mode, "work") && argc > 3) return work(std::atoi(argv[2]), std::atoi(argv[3]));
    if (!std::strcmp(mode, "wait") && argc > 3) return wait(std::atoi(argv[2]), std::atoi(argv[3]));
    if (!std::strcmp(mode, "idle")) return idle();
    std::puts("usage: chaos work ROUNDS SEED | wait COUNT TURNS | idle");
    return 2;
}
