// A kernel that runs until this program lets it go. "hold" starts one and answers "round N running"
// when it runs; "go" lets it end and answers "round N right" when its results are there; "step"
// does both. What a kernel does builds on the one before, so that doing it twice or not at all is
// seen: in memory, in a variable and in a constant of the module, in the program's second stream,
// in a graph. Prints "ready" at the start.
#include "../../examples/example.cuh"

#include <cstring>

__device__ unsigned counter;
__constant__ unsigned salt;

__global__ void hold(volatile int *flags, unsigned *values, int n, int round) {
    if (threadIdx.x == 0) {
        flags[0] = round;
        __threadfence_system();
        while (flags[1] < round) {
        }
        counter = counter * 3 + round;
    }
    __syncthreads();
    if (threadIdx.x < n) values[threadIdx.x] = values[threadIdx.x] * 5 + salt + round;
}

__global__ void add(unsigned *values, int n) {
    if (threadIdx.x < n) values[threadIdx.x] += 7;
}

int main() {
    const int n = 64;
    std::vector<unsigned> expected(n), found(n);
    for (int i = 0; i < n; ++i) expected[i] = i;
    unsigned total = 11, counted = 0;
    const unsigned grain = 13;
    volatile int *flags;
    int *flags_on_device;
    unsigned *device;
    cudaStream_t streams[2];
    cudaEvent_t event;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaHostAlloc((void **)&flags, 2 * sizeof(int), cudaHostAllocMapped));
    CHECK(cudaHostGetDevicePointer((void **)&flags_on_device, (void *)flags, 0));
    CHECK(cudaMalloc(&device, n * sizeof(unsigned)));
    CHECK(cudaMemcpy(device, expected.data(), n * sizeof(unsigned), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyToSymbol(counter, &total, sizeof total));
    CHECK(cudaMemcpyToSymbol(salt, &grain, sizeof grain));
    for (auto &one : streams) CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&event));
    CHECK(cudaStreamBeginCapture(streams[1], cudaStreamCaptureModeGlobal));
    add<<<1, n, 0, streams[1]>>>(device, n);
    CHECK(cudaStreamEndCapture(streams[1], &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    flags[0] = flags[1] = 0;
    std::puts("ready");
    std::fflush(stdout);
    int round = 0;
    char line[64];
    while (std::fgets(line, sizeof line, stdin)) {
        const bool step = !std::strncmp(line, "step", 4);
        if (step || !std::strncmp(line, "hold", 4)) {
            ++round;
            if (step) flags[1] = round;
            hold<<<1, n, 0, streams[0]>>>((volatile int *)flags_on_device, device, n, round);
            CHECK(cudaGetLastError());
            CHECK(cudaEventRecord(event, streams[0]));
            CHECK(cudaStreamWaitEvent(streams[1], event, 0));
            CHECK(cudaGraphLaunch(exec, streams[1]));
            while (flags[0] != round) {
                cudaError_t state = cudaStreamQuery(streams[0]);
                if (state != cudaErrorNotReady && flags[0] != round) {
                    std::printf("held: FAIL, the kernel ended at once: %s\n", cudaGetErrorString(state));
                    return 1;
                }
            }
            std::printf("round %d running\n", round);
            std::fflush(stdout);
        }
        if (step || !std::strncmp(line, "go", 2)) {
            flags[1] = round;
            cudaError_t end = cudaStreamSynchronize(streams[1]);
            if (end != cudaSuccess) {
                std::printf("round %d: %s\n", round, cudaGetErrorName(end));
                return 1;
            }
            CHECK(cudaMemcpy(found.data(), device, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
            CHECK(cudaMemcpyFromSymbol(&counted, counter, sizeof counted));
            total = total * 3 + round;
            bool right = counted == total;
            for (int i = 0; i < n; ++i) {
                expected[i] = expected[i] * 5 + grain + round + 7;
                right &= found[i] == expected[i];
            }
            std::printf(right ? "round %d right\n" : "round %d WRONG\n", round);
            std::fflush(stdout);
            if (!right) return 1;
        }
    }
    return 0;
}
