// Steady work of all kinds with a checkable end: a variable and a constant of the module, two streams
// joined by events, a graph, and a kernel that prints. Prints "ready" after the first round, a line
// from the card in each, and a digest at the end: the same for every run of the same arguments
// (rounds, seed).
#include "../../examples/example.cuh"

__device__ unsigned counter;
__constant__ unsigned salt;

__global__ void mix(unsigned *values, int n, int turns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned value = values[i];
    for (int k = 0; k < turns; ++k) value = (value ^ (value >> 15)) * 2246822519u + salt + k;
    values[i] = value;
    if (i == 0) counter += value;
}

__global__ void add(unsigned *values, int n, unsigned what) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] += what;
}

__global__ void say(int round) {
    counter = counter * 3 + round;
    printf("round %d counter %08x\n", round, counter);
}

int main(int argc, char **argv) {
    const int n = 4096, turns = 100, count = rounds(argc, argv, 20);
    const unsigned seed = argc > 2 ? std::atoi(argv[2]) : 1;
    std::vector<unsigned> expected(n), found(n);
    for (int i = 0; i < n; ++i) expected[i] = i * 2654435761u + seed;
    unsigned total = seed;
    unsigned *device;
    cudaStream_t stream[2];
    cudaEvent_t half;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaMalloc(&device, n * sizeof(unsigned)));
    CHECK(cudaMemcpy(device, expected.data(), n * sizeof(unsigned), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyToSymbol(counter, &seed, sizeof seed));
    for (auto &one : stream) CHECK(cudaStreamCreate(&one));
    CHECK(cudaEventCreate(&half));
    CHECK(cudaStreamBeginCapture(stream[1], cudaStreamCaptureModeGlobal));
    for (unsigned k = 1; k <= 3; ++k) add<<<n / 256, 256, 0, stream[1]>>>(device, n, k);
    CHECK(cudaStreamEndCapture(stream[1], &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < count; ++round) {
        const unsigned value = seed + round;
        CHECK(cudaMemcpyToSymbolAsync(salt, &value, sizeof value, 0, cudaMemcpyHostToDevice, stream[0]));
        mix<<<n / 256, 256, 0, stream[0]>>>(device, n, turns);
        CHECK(cudaGetLastError());
        CHECK(cudaEventRecord(half, stream[0]));
        CHECK(cudaStreamWaitEvent(stream[1], half, 0));
        CHECK(cudaGraphLaunch(exec, stream[1]));
        say<<<1, 1, 0, stream[1]>>>(round);
        CHECK(cudaGetLastError());
        CHECK(cudaStreamSynchronize(stream[1]));
        for (int i = 0; i < n; ++i) {
            for (int k = 0; k < turns; ++k) expected[i] = (expected[i] ^ (expected[i] >> 15)) * 2246822519u + value + k;
            if (i == 0) total += expected[i];
            expected[i] += 6;
        }
        total = total * 3 + round;
        if (round == 0) {
            std::puts("ready");
            std::fflush(stdout);
        }
    }
    unsigned counted = 0;
    CHECK(cudaMemcpyFromSymbol(&counted, counter, sizeof counted));
    CHECK(cudaMemcpy(found.data(), device, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
    unsigned long long digest = 14695981039346656037ull;
    bool right = counted == total;
    for (int i = 0; i < n; ++i) {
        right &= found[i] == expected[i];
        digest = (digest ^ found[i]) * 1099511628211ull;
    }
    std::printf("digest %016llx\n", digest);
    return finish("mixed", right, n);
}
