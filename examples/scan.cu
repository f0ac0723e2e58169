// Running sums of a million integers: each block in shared memory, the blocks' sums by themselves, then added up.
#include "example.cuh"

constexpr int threads = 512;

__global__ void scan_blocks(const unsigned *input, unsigned *output, unsigned *sums, int n) {
    __shared__ unsigned part[2][threads];
    int i = blockIdx.x * threads + threadIdx.x, from = 0;
    part[0][threadIdx.x] = i < n ? input[i] : 0;
    __syncthreads();
    for (int step = 1; step < threads; step *= 2, from = 1 - from) {
        unsigned value = part[from][threadIdx.x];
        if (threadIdx.x >= step) value += part[from][threadIdx.x - step];
        part[1 - from][threadIdx.x] = value;
        __syncthreads();
    }
    if (i < n) output[i] = part[from][threadIdx.x];
    if (sums && threadIdx.x == threads - 1) sums[blockIdx.x] = part[from][threadIdx.x];
}

__global__ void add_sums(unsigned *output, const unsigned *sums, int n) {
    int i = blockIdx.x * threads + threadIdx.x;
    if (blockIdx.x > 0 && i < n) output[i] += sums[blockIdx.x - 1];
}

// Scans on the device; each level keeps one sum a block.
static void scan(const unsigned *input, unsigned *output, int n) {
    int blocks = (n + threads - 1) / threads;
    unsigned *sums;
    CHECK(cudaMalloc(&sums, blocks * sizeof(unsigned)));
    scan_blocks<<<blocks, threads>>>(input, output, sums, n);
    CHECK(cudaGetLastError());
    if (blocks > 1) {
        scan(sums, sums, blocks);
        add_sums<<<blocks, threads>>>(output, sums, n);
        CHECK(cudaGetLastError());
    }
    CHECK(cudaFree(sums));
}

int main(int argc, char **argv) {
    const int n = 300000, count = rounds(argc, argv, 2);
    std::vector<unsigned> input(n), found(n);
    unsigned *device, *output;
    CHECK(cudaMalloc(&device, n * sizeof(unsigned)));
    CHECK(cudaMalloc(&output, n * sizeof(unsigned)));
    bool right = true;
    for (int round = 0; round < count; ++round) {
        for (int i = 0; i < n; ++i) input[i] = (i + round) * 40503u >> 8;
        CHECK(cudaMemcpy(device, input.data(), n * sizeof(unsigned), cudaMemcpyHostToDevice));
        scan(device, output, n);
        CHECK(cudaMemcpy(found.data(), output, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
        unsigned sum = 0;
        for (int i = 0; i < n; ++i) right &= found[i] == (sum += input[i]);
    }
    CHECK(cudaFree(device));
    CHECK(cudaFree(output));
    return finish("scan", right, 1ll * n * count);
}
