// Runs of many short kernels in two streams, with small sets and copies among them and parameters
// that change: `runs ROUNDS SEED [held]`. Every run is checked on the CPU. With "held" it stays
// until it gets a line.
#include "../../examples/example.cuh"

static const int COUNT = 256;

__global__ void mix(unsigned *values, unsigned salt) {
    unsigned x = values[threadIdx.x];
    values[threadIdx.x] = (x ^ (x >> 15)) * 2246822519u + salt;
}

__global__ void add(unsigned *values, const unsigned *others, unsigned factor) { values[threadIdx.x] += others[threadIdx.x] * factor; }

int main(int count, char **arguments) {
    const int rounds = count > 1 ? std::atoi(arguments[1]) : 3;
    const unsigned seed = count > 2 ? std::atoi(arguments[2]) : 0;
    cudaStream_t streams[2];
    unsigned *device[2], *other[2];
    for (int s = 0; s < 2; ++s) {
        CHECK(cudaStreamCreateWithFlags(&streams[s], cudaStreamNonBlocking));
        CHECK(cudaMalloc(&device[s], COUNT * sizeof(unsigned)));
        CHECK(cudaMalloc(&other[s], COUNT * sizeof(unsigned)));
    }
    std::puts("ready");
    std::fflush(stdout);
    for (int round = 0; round < rounds; ++round) {
        std::vector<unsigned> begin[2], found[2], expected[2];
        for (int s = 0; s < 2; ++s) {
            begin[s].resize(COUNT);
            found[s].resize(COUNT);
            for (int i = 0; i < COUNT; ++i) begin[s][i] = seed * 7919 + round * 131 + s * 17 + i;
            CHECK(cudaMemcpyAsync(device[s], begin[s].data(), COUNT * sizeof(unsigned), cudaMemcpyHostToDevice, streams[s]));
            CHECK(cudaMemsetAsync(other[s], 1, COUNT * sizeof(unsigned), streams[s]));
            std::vector<unsigned> value = begin[s], beside(COUNT, 0x01010101u);
            for (int k = 0; k < 40; ++k) {
                const unsigned salt = seed + k * (round % 3 + 1);
                mix<<<1, COUNT, 0, streams[s]>>>(device[s], salt);
                for (unsigned &x : value) x = (x ^ (x >> 15)) * 2246822519u + salt;
                if (k % 5 == 4) {
                    add<<<1, COUNT, 0, streams[s]>>>(device[s], other[s], k);
                    for (int i = 0; i < COUNT; ++i) value[i] += beside[i] * k;
                }
                if (k == 20) {
                    CHECK(cudaMemcpyAsync(other[s], device[s], COUNT * sizeof(unsigned), cudaMemcpyDeviceToDevice, streams[s]));
                    beside = value;
                }
            }
            CHECK(cudaMemcpyAsync(found[s].data(), device[s], COUNT * sizeof(unsigned), cudaMemcpyDeviceToHost, streams[s]));
            expected[s] = value;
        }
        for (int s = 0; s < 2; ++s) {
            CHECK(cudaStreamSynchronize(streams[s]));
            for (int i = 0; i < COUNT; ++i) {
                if (found[s][i] != expected[s][i]) {
                    std::printf("WRONG in round %d at %d: %u, not %u\n", round, i, found[s][i], expected[s][i]);
                    return 1;
                }
            }
        }
    }
    std::puts("PASS");
    std::fflush(stdout);
    char line[8];
    if (count > 3 && !std::fgets(line, sizeof line, stdin)) return 2;
    return 0;
}
