// Kernels that launch kernels: what comes after what, what the calls answer, and what memory they
// see. The argument names the part; each prints its name with PASS, or what is wrong.
// nvcc: -rdc=true -lcudadevrt -gencode arch=compute_75,code=compute_75
#include "../../examples/example.cuh"

#include <algorithm>
#include <cstring>
#include <string>
#include <unistd.h>

constexpr int ROOM = 1 << 14;
// What has run, in its order.
__device__ int journal[ROOM];
__device__ unsigned noted;
__device__ void note(int what) {
    const unsigned at = atomicAdd(&noted, 1);
    if (at < ROOM) journal[at] = what;
}

__global__ void say(int what) { note(what); }
__global__ void say_later(int what, int turns) {
    for (volatile int turn = 0; turn < turns; turn = turn + 1) {}
    note(what);
}

static std::vector<int> read_journal() {
    unsigned count, none = 0;
    std::vector<int> all(ROOM);
    CHECK(cudaMemcpyFromSymbol(&count, noted, sizeof count));
    CHECK(cudaMemcpyFromSymbol(all.data(), journal, sizeof(int) * ROOM));
    CHECK(cudaMemcpyToSymbol(noted, &none, sizeof none));
    all.resize(count);
    return all;
}

static bool right = true;
static void expect(bool holds, const char *what) {
    if (!holds) std::printf("wrong: %s\n", what);
    right &= holds;
}

// ---- order

__global__ void in_order() {
    const int mine = 10 * blockIdx.x;
    say<<<1, 1, 0, cudaStreamTailLaunch>>>(mine + 8);
    say_later<<<1, 1>>>(mine + 1, 20000);
    say<<<1, 1>>>(mine + 2);
    cudaStream_t one, other;
    cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    cudaEvent_t event;
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    say_later<<<1, 1, 0, one>>>(mine + 3, 40000);
    cudaEventRecord(event, one);
    say<<<1, 1, 0, one>>>(mine + 4);
    cudaStreamWaitEvent(other, event, 0);
    say<<<1, 1, 0, other>>>(mine + 5);
    cudaEventDestroy(event);
    cudaStreamDestroy(one);
    cudaStreamDestroy(other);
    say_later<<<1, 1, 0, cudaStreamFireAndForget>>>(mine + 6, 60000);
    say<<<1, 1, 0, cudaStreamTailLaunch>>>(mine + 9);
}

static void order() {
    constexpr int BLOCKS = 5;
    in_order<<<BLOCKS, 1>>>();
    say<<<1, 1>>>(99);
    CHECK(cudaDeviceSynchronize());
    const std::vector<int> all = read_journal();
    auto at = [&](int what) { return std::find(all.begin(), all.end(), what) - all.begin(); };
    expect(all.size() == 8 * BLOCKS + 1 && all.back() == 99, "the next kernel of the stream comes last");
    for (int mine = 0; mine < 10 * BLOCKS; mine += 10) {
        expect(at(mine + 1) < at(mine + 2), "the default stream of a block");
        expect(at(mine + 3) < at(mine + 4), "a stream of the grid");
        expect(at(mine + 3) < at(mine + 5), "a stream that waits for an event, which is destroyed meanwhile");
        for (int tail = 0; tail < 10 * BLOCKS; tail += 10)
            for (int child = 1; child < 7; ++child) expect(at(mine + child) < at(tail + 8), "the tail comes after all of the grid");
        expect(at(mine + 8) < at(mine + 9), "the tail is in order");
    }
}

__global__ void with_events() {
    cudaStream_t one, other;
    cudaEvent_t event;
    cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    for (int round = 0; round < 10; ++round) {
        say_later<<<1, 1, 0, one>>>(2 * round, 5000);
        cudaEventRecord(event, one);
        cudaStreamWaitEvent(other, event, 0);
        say<<<1, 1, 0, other>>>(2 * round + 1);
        cudaEventRecord(event, other);
        cudaStreamWaitEvent(one, event, 0);
    }
}

static void events() {
    with_events<<<1, 1>>>();
    CHECK(cudaDeviceSynchronize());
    const std::vector<int> all = read_journal();
    expect(all.size() == 20, "all have run");
    for (size_t at = 0; at < all.size(); ++at) expect(all[at] == int(at), "two streams that wait for each other");
}

// ---- many

// Adds up by halves: a grid for each half, until they are short.
__global__ void add_up(const int *values, unsigned long long *sum, int count) {
    if (count > 32) {
        if (threadIdx.x == 0) {
            add_up<<<1, 32>>>(values, sum, count / 2);
            add_up<<<1, 32, 0, cudaStreamFireAndForget>>>(values + count / 2, sum, count - count / 2);
            if (cudaGetLastError() != cudaSuccess) note(-1);
        }
    } else if (threadIdx.x < count) {
        atomicAdd(sum, (unsigned long long)values[threadIdx.x]);
    }
}

__global__ void again(int left) {
    if (threadIdx.x == 0) note(left);
    if (threadIdx.x == 0 && left > 0) again<<<1, 32, 0, cudaStreamTailLaunch>>>(left - 1);
}

static void many() {
    constexpr int COUNT = 20000;
    std::vector<int> values(COUNT);
    unsigned long long expected = 0, sum;
    for (int i = 0; i < COUNT; ++i) expected += values[i] = i * 7 % 1001;
    int *device;
    unsigned long long *out;
    CHECK(cudaMalloc(&device, COUNT * sizeof(int)));
    CHECK(cudaMalloc(&out, sizeof *out));
    CHECK(cudaMemcpy(device, values.data(), COUNT * sizeof(int), cudaMemcpyHostToDevice));
    CHECK(cudaMemset(out, 0, sizeof *out));
    add_up<<<1, 32>>>(device, out, COUNT);
    CHECK(cudaMemcpy(&sum, out, sizeof sum, cudaMemcpyDeviceToHost));
    expect(sum == expected, "a tree of grids");
    again<<<1, 32>>>(3000);
    CHECK(cudaDeviceSynchronize());
    const std::vector<int> all = read_journal();
    expect(all.size() == 3001, "a grid that goes on as its own tail");
    for (size_t at = 0; at < all.size(); ++at) expect(all[at] == 3000 - int(at), "in order");
}

// ---- memory

struct Mixed {
    char letter;
    double number;
    short shorts[3];
};

__global__ void take(char first, Mixed mixed, const int *from, int *to, int count) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) to[at] = from[at] + first + mixed.letter + int(mixed.number) + mixed.shorts[2];
}

__global__ void pass_on(int *data, int *scratch, int count) {
    // All of the block's writes are there for what it launches after a barrier.
    for (int i = threadIdx.x; i < count; i += blockDim.x) data[i] = 3 * i;
    __syncthreads();
    if (threadIdx.x != 0) return;
    const Mixed mixed = {2, 30.5, {0, 0, 400}};
    take<<<(count + 63) / 64, 64>>>(1, mixed, data, scratch, count);
    cudaMemcpyAsync(data, scratch, count * sizeof(int), cudaMemcpyDeviceToDevice, 0);
    cudaMemsetAsync(scratch, 0xff, count * sizeof(int), 0);
    cudaMemcpy2DAsync(scratch, 16, data, 8, 8, 4, cudaMemcpyDeviceToDevice, 0);
    cudaMemset2DAsync(scratch + 64, 16, 1, 4, 3, 0);
    int *own = nullptr;
    if (cudaMalloc(&own, 64 * sizeof(int)) != cudaSuccess) note(-1);
    if (cudaFree(own) != cudaSuccess) note(-2);
    void (*chosen)(int) = say;
    chosen<<<1, 1>>>(7);
}

static void memory() {
    constexpr int COUNT = 1000;
    int *data, *scratch;
    CHECK(cudaMalloc(&data, COUNT * sizeof(int)));
    CHECK(cudaMalloc(&scratch, COUNT * sizeof(int)));
    pass_on<<<1, 128>>>(data, scratch, COUNT);
    std::vector<int> got(COUNT), left(COUNT);
    CHECK(cudaMemcpy(got.data(), data, COUNT * sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(left.data(), scratch, COUNT * sizeof(int), cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; ++i) expect(got[i] == 3 * i + 433, "a child sees what was written before its launch, and its parameters");
    for (int i = 0; i < COUNT; ++i) {
        int value = -1;
        if (i < 16 && i % 4 < 2) value = got[i / 4 * 2 + i % 4];
        if (i >= 64 && i < 76 && i % 4 == 0) value = 0x01010101;
        const std::string what = "copies and sets: " + std::to_string(left[i]) + " at " + std::to_string(i) + ", not " + std::to_string(value);
        expect(left[i] == value, what.c_str());
    }
    expect(read_journal() == std::vector<int>{7}, "a kernel by its address");
}

// ---- answers

__device__ int answers[64];

__global__ void ask(cudaFuncAttributes *attributes) {
    int at = 0;
    say<<<0, 1>>>(-1);
    answers[at++] = cudaPeekAtLastError();
    answers[at++] = cudaGetLastError();
    answers[at++] = cudaGetLastError();
    say<<<1, 2000>>>(-1);
    answers[at++] = cudaGetLastError();
    say<<<1, 1, 60000>>>(-1);
    answers[at++] = cudaGetLastError();
    cudaStream_t stream;
    answers[at++] = cudaStreamCreateWithFlags(&stream, cudaStreamDefault);
    answers[at++] = cudaStreamDestroy(0);
    cudaEvent_t event;
    answers[at++] = cudaEventCreateWithFlags(&event, cudaEventDefault);
    void *memory;
    answers[at++] = cudaMalloc(&memory, size_t(1) << 40);
    answers[at++] = cudaMalloc(&memory, 0);
    int in_local = 0;
    answers[at++] = cudaMemsetAsync(&in_local, 0, 4, 0);
    answers[at++] = cudaMemcpyAsync(journal, journal + 1, 4, cudaMemcpyHostToDevice, 0);
    cudaGetLastError();
    answers[at++] = cudaFuncGetAttributes(attributes, say_later);
    cudaDeviceGetAttribute(&answers[at++], cudaDevAttrMultiProcessorCount, 0);
    size_t pending = 0;
    cudaDeviceGetLimit(&pending, cudaLimitDevRuntimePendingLaunchCount);
    answers[at++] = int(pending);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&answers[at++], say_later, 256, 0);
    printf("%s: %s\n", cudaGetErrorName(cudaErrorInvalidConfiguration), cudaGetErrorString(cudaErrorInvalidConfiguration));
}

// Each thread has errors of its own.
__global__ void ask_each(int *errors) {
    if (threadIdx.x == 1) say<<<1, 5000>>>(-1);
    __syncthreads();
    errors[threadIdx.x] = cudaGetLastError();
}

// Of the tail as much may wait as the limit says.
__global__ void fill_up(int *out, int tries) {
    int launched = 0, error = 0;
    for (int i = 0; i < tries; ++i) {
        say<<<1, 1, 0, cudaStreamTailLaunch>>>(i);
        const cudaError_t wrong = cudaGetLastError();
        if (wrong == cudaSuccess) ++launched;
        else error = wrong;
    }
    out[0] = launched;
    out[1] = error;
}

static void calls() {
    cudaFuncAttributes *on_device, from_device, from_host;
    CHECK(cudaMalloc(&on_device, sizeof from_device));
    CHECK(cudaDeviceSetLimit(cudaLimitDevRuntimePendingLaunchCount, 100));
    ask<<<1, 1>>>(on_device);
    CHECK(cudaDeviceSynchronize());
    int got[64], multiprocessors, blocks;
    CHECK(cudaMemcpyFromSymbol(got, answers, sizeof got));
    CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, say_later, 256, 0));
    const int expected[] = {cudaErrorInvalidConfiguration, cudaErrorInvalidConfiguration, cudaSuccess, cudaErrorInvalidConfiguration,
                            cudaErrorInvalidConfiguration, cudaSuccess, cudaErrorInvalidValue, cudaErrorInvalidValue,
                            cudaErrorMemoryAllocation, cudaErrorInvalidValue, cudaErrorInvalidValue, cudaErrorInvalidMemcpyDirection,
                            cudaSuccess, multiprocessors, 100, blocks};
    for (size_t at = 0; at < sizeof expected / sizeof *expected; ++at)
        if (got[at] != expected[at]) std::printf("wrong: answer %zu is %d, not %d\n", at, got[at], expected[at]), right = false;
    CHECK(cudaFuncGetAttributes(&from_host, say_later));
    CHECK(cudaMemcpy(&from_device, on_device, sizeof from_device, cudaMemcpyDeviceToHost));
    expect(from_device.maxThreadsPerBlock == from_host.maxThreadsPerBlock && from_device.numRegs == from_host.numRegs, "attributes of a kernel");
    expect(from_device.localSizeBytes == from_host.localSizeBytes && from_device.ptxVersion == from_host.ptxVersion, "more of them");
    int *out, host[4];
    CHECK(cudaMalloc(&out, sizeof host));
    ask_each<<<1, 4>>>(out);
    CHECK(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
    expect(host[0] == 0 && host[1] == cudaErrorInvalidConfiguration && host[2] == 0 && host[3] == 0, "each thread has its own errors");
    fill_up<<<1, 1>>>(out, 150);
    CHECK(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
    expect(host[0] == 100 && host[1] == cudaErrorLaunchPendingCountExceeded, "as many launches may wait as the limit says");
    expect(read_journal().size() == 100, "and these run");
}

// ---- what is printed, and what goes wrong

__global__ void print_child(int number) { printf("child %d\n", number); }
__global__ void print_parent() {
    printf("parent\n");
    print_child<<<1, 1>>>(1);
    print_child<<<1, 1>>>(2);
}

static void printing() {
    print_parent<<<1, 1>>>();
    CHECK(cudaDeviceSynchronize());
}

__global__ void bad_child(int *nowhere) { *nowhere = 1; }
__global__ void bad_parent(int *good) {
    bad_child<<<1, 1>>>(nullptr);
    for (int i = 0; i < 100; ++i) say_later<<<1, 1>>>(i, 1000);
    *good = 1;
}

static void fault() {
    int *memory;
    CHECK(cudaMalloc(&memory, sizeof(int)));
    bad_parent<<<4, 1>>>(memory);
    const cudaError_t wait = cudaDeviceSynchronize();
    std::printf("wait: %s\nagain: %s\n", cudaGetErrorName(wait), cudaGetErrorName(cudaFree(memory)));
}

// ---- a takeover while a child runs and its parent's blocks are done

__global__ void wait_for_host(volatile int *word, int *out) {
    word[0] = 1;
    while (!word[1]) {}
    *out = 1;
}
__global__ void leave_to_child(volatile int *word, int *out) { wait_for_host<<<1, 1>>>(word, out); }

static void takeover() {
    volatile int *word;
    int *out;
    CHECK(cudaHostAlloc((void **)&word, 2 * sizeof(int), cudaHostAllocMapped));
    CHECK(cudaMalloc(&out, sizeof(int)));
    word[0] = word[1] = 0;
    leave_to_child<<<1, 1>>>(word, out);
    while (!word[0]) usleep(1000);
    std::printf("ready\n");
    std::fflush(stdout);
    char line[16];
    if (!std::fgets(line, sizeof line, stdin)) return;
    word[1] = 1;
    std::printf("wait: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
}

int main(int argc, char **argv) {
    const std::string part = argc > 1 ? argv[1] : "";
    const struct {
        const char *name;
        void (*run)();
    } parts[] = {{"order", order}, {"events", events}, {"many", many}, {"memory", memory}, {"calls", calls}, {"printing", printing}, {"fault", fault}, {"takeover", takeover}};
    for (const auto &one : parts)
        if (part == one.name) {
            one.run();
            std::printf("%s: %s\n", one.name, right ? "PASS" : "FAIL");
            return right ? 0 : 1;
        }
    std::printf("no part '%s'\n", part.c_str());
    return 2;
}
