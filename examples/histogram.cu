// Counts bytes: atomics in shared memory for each block, then atomics in global memory.
#include "example.cuh"

__global__ void count_bytes(const unsigned char *data, int n, unsigned *bins) {
    __shared__ unsigned local[256];
    local[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[data[i]], 1u);
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}

int main(int argc, char **argv) {
    const int n = 1 << 20, count = rounds(argc, argv, 6);
    std::vector<unsigned char> data(n);
    std::vector<unsigned> expected(256), found(256);
    unsigned state = 1;
    for (auto &byte : data) {
        state = state * 1664525u + 1013904223u;
        byte = (state >> 24) * (state >> 16 & 255) >> 8; // Not even: some bins are crowded.
    }
    unsigned char *device;
    unsigned *bins;
    CHECK(cudaMalloc(&device, n));
    CHECK(cudaMalloc(&bins, 256 * sizeof(unsigned)));
    CHECK(cudaMemcpy(device, data.data(), n, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(bins, 0, 256 * sizeof(unsigned)));
    for (int round = 0; round < count; ++round) {
        count_bytes<<<64, 256>>>(device, n, bins);
        CHECK(cudaGetLastError());
        for (auto byte : data) ++expected[byte];
    }
    CHECK(cudaMemcpy(found.data(), bins, 256 * sizeof(unsigned), cudaMemcpyDeviceToHost));
    CHECK(cudaFree(device));
    CHECK(cudaFree(bins));
    return finish("histogram", found == expected, 256);
}
