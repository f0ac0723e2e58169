// Steady work with a checkable end: many kernels, each continuing from the last, in two streams with copies between. Prints "ready" after the
// first round and a digest of all results at the end: the same for every run of the same arguments (rounds, seed).
#include "../../examples/example.cuh"

__global__ void mix(unsigned *values, int n, unsigned salt, int turns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned value = values[i];
    for (int k = 0; k < turns; ++k) value = (value ^ (value >> 15)) * 2246822519u + salt + k;
    values[i] = value;
}

int main(int argc, char **argv) {
    const int n = 8192, turns = 200, count = rounds(argc, argv, 40);
    const unsigned seed = argc > 2 ? std::atoi(argv[2]) : 1;
    std::vector<unsigned> expected(2 * n), found(2 * n);
    for (int i = 0; i < 2 * n; ++i) expected[i] = i * 2654435761u + seed;
    unsigned *device;
    cudaStream_t stream[2];
    CHECK(cudaMalloc(&device, 2 * n * sizeof(unsigned)));
    CHECK(cudaMemcpy(device, expected.data(), 2 * n * sizeof(unsigned), cudaMemcpyHostToDevice));
    for (auto &one : stream) CHECK(cudaStreamCreate(&one));
    for (int round = 0; round < count; ++round) {
        for (int half = 0; half < 2; ++half) {
            mix<<<n / 256, 256, 0, stream[half]>>>(device + half * n, n, seed + round, turns);
            CHECK(cudaGetLastError());
        }
        // Each round waits, so that a takeover meets work in every state.
        for (auto one : stream) CHECK(cudaStreamSynchronize(one));
        if (round == 0) {
            std::puts("ready");
            std::fflush(stdout);
        }
    }
    CHECK(cudaMemcpy(found.data(), device, 2 * n * sizeof(unsigned), cudaMemcpyDeviceToHost));
    unsigned long long digest = 14695981039346656037ull;
    bool right = true;
    for (int i = 0; i < 2 * n; ++i) {
        for (int round = 0; round < count; ++round)
            for (int k = 0; k < turns; ++k) expected[i] = (expected[i] ^ (expected[i] >> 15)) * 2246822519u + seed + round + k;
        right &= found[i] == expected[i];
        digest = (digest ^ found[i]) * 1099511628211ull;
    }
    std::printf("digest %016llx\n", digest);
    return finish("busy", right, 2 * n);
}
