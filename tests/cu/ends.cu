// Prints "ready", then waits for a kernel that does not end by itself and could be done again at any time, and prints the error that ends the waiting.
#include "../../examples/example.cuh"

__global__ void work(float *out, unsigned long long steps) {
    float value = threadIdx.x;
    for (unsigned long long i = 0; i < steps; ++i) value = value * 0.999f + 1.0f;
    out[threadIdx.x] = value;
}

int main() {
    float *out;
    CHECK(cudaMalloc(&out, 64 * sizeof(float)));
    work<<<1, 64>>>(out, 1ull << 44);
    CHECK(cudaGetLastError());
    std::puts("ready");
    std::fflush(stdout);
    std::printf("sync %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    return 0;
}
