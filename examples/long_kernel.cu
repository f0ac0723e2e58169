// A kernel that would run for hours. Says when it runs, so that somebody can kill this program in the middle of it.
#include "example.cuh"

__global__ void work(volatile int *running, float *out, unsigned long long steps) {
    float value = threadIdx.x;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *running = 1;
        __threadfence_system();
    }
    for (unsigned long long i = 0; i < steps; ++i) value = value * 0.999f + 1.0f;
    out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

int main() {
    const int blocks = 8, threads = 64;
    volatile int *running;
    int *running_on_device;
    float *out;
    CHECK(cudaHostAlloc((void **)&running, sizeof(int), cudaHostAllocMapped));
    CHECK(cudaHostGetDevicePointer((void **)&running_on_device, (void *)running, 0));
    CHECK(cudaMalloc(&out, blocks * threads * sizeof(float)));
    *running = 0;
    work<<<blocks, threads>>>(running_on_device, out, 1ull << 44);
    CHECK(cudaGetLastError());
    while (!*running) {
        cudaError_t state = cudaStreamQuery(0);
        if (state != cudaErrorNotReady) {
            std::printf("long_kernel: FAIL, the kernel ended at once: %s\n", cudaGetErrorString(state));
            return 1;
        }
    }
    std::puts("kernel running");
    std::fflush(stdout);
    cudaError_t end = cudaDeviceSynchronize();
    std::printf("long_kernel: %s\n", cudaGetErrorString(end));
    return end == cudaSuccess ? 0 : 1;
}
