// Sums integers: each warp by shuffles, each block in shared memory, the blocks' sums by a second kernel. Exact.
#include "example.cuh"

__device__ unsigned long long warp_sum(unsigned long long value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xffffffff, value, step);
    return value;
}

template <typename Input>
__global__ void reduce(const Input *input, unsigned long long *sums, int n) {
    __shared__ unsigned long long part[32];
    unsigned long long sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += input[i];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = warp_sum(threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0);
        if (threadIdx.x == 0) sums[blockIdx.x] = sum;
    }
}

int main(int argc, char **argv) {
    const int n = 1 << 21, blocks = 128, threads = 256, count = rounds(argc, argv, 6);
    std::vector<unsigned> input(n);
    unsigned *device;
    unsigned long long *sums;
    CHECK(cudaMalloc(&device, n * sizeof(unsigned)));
    CHECK(cudaMalloc(&sums, (blocks + 1) * sizeof(unsigned long long)));
    bool right = true;
    for (int round = 0; round < count; ++round) {
        unsigned long long expected = 0, found = 0;
        for (int i = 0; i < n; ++i) expected += input[i] = (i + round) * 2654435761u;
        CHECK(cudaMemcpy(device, input.data(), n * sizeof(unsigned), cudaMemcpyHostToDevice));
        reduce<<<blocks, threads>>>(device, sums, n);
        reduce<<<1, threads>>>(sums, sums + blocks, blocks);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpy(&found, sums + blocks, sizeof found, cudaMemcpyDeviceToHost));
        right &= found == expected;
    }
    CHECK(cudaFree(device));
    CHECK(cudaFree(sums));
    return finish("reduction", right, count);
}
