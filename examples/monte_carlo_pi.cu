// Throws darts at a quarter circle. The generator is made of integers, so the CPU counts exactly the same hits.
#include "example.cuh"

#include <cmath>

__host__ __device__ inline unsigned hits(unsigned seed, int darts) {
    unsigned state = seed * 747796405u + 2891336453u, inside = 0;
    for (int i = 0; i < darts; ++i) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        unsigned x = state >> 16, y = state & 0xffff;
        inside += x * x + 1ull * y * y < 0x100000000ull;
    }
    return inside;
}

// One instruction where the card has it, five exchanges elsewhere.
__device__ inline unsigned warp_sum(unsigned value) {
#if __CUDA_ARCH__ >= 800
    return __reduce_add_sync(0xffffffff, value);
#else
    for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xffffffff, value, step);
    return value;
#endif
}

__global__ void throw_darts(unsigned first_seed, int darts, unsigned long long *total) {
    unsigned inside = hits(first_seed + blockIdx.x * blockDim.x + threadIdx.x, darts);
    inside = warp_sum(inside);
    if (threadIdx.x % 32 == 0) atomicAdd(total, (unsigned long long)inside);
}

int main(int argc, char **argv) {
    const int blocks = 32, threads = 256, darts = 400, count = rounds(argc, argv, 2);
    unsigned long long *total, found = 0, expected = 0;
    CHECK(cudaMalloc(&total, sizeof *total));
    CHECK(cudaMemset(total, 0, sizeof *total));
    for (int round = 0; round < count; ++round) {
        throw_darts<<<blocks, threads>>>(round * blocks * threads, darts, total);
        CHECK(cudaGetLastError());
    }
    CHECK(cudaMemcpy(&found, total, sizeof found, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(total));
    for (int seed = 0; seed < count * blocks * threads; ++seed) expected += hits(seed, darts);
    double pi = 4.0 * found / (1.0 * count * blocks * threads * darts);
    return finish("monte_carlo_pi", found == expected && std::fabs(pi - M_PI) < 0.01, 1ll * count * blocks * threads * darts);
}
