// Makes the fault that its argument names, after a line on its standard input, and says what the
// wait for it answers. The name of the fault is the last line that it prints. Its images have line
// information.
// nvcc: -lineinfo -gencode arch=compute_75,code=compute_75 -gencode arch=compute_90,code=[sm_90,compute_90]
#include "../../examples/example.cuh"

#include <cassert>
#include <cstring>

__global__ void work(int *values, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] += i;
}

__global__ void store(int *address) { *address = 1; }

static __device__ __forceinline__ void put(int *address) {
    *address = 2;
}

__global__ void inlined(int *address) {
    put(address);
}

__global__ void load(const int *address, int *out) { *out = *address; }

__global__ void trap() { asm volatile("trap;"); }

__global__ void check(int limit) {
    if (threadIdx.x == 3) printf("thread %d of block %d is about to fail", threadIdx.x, blockIdx.x);
    assert(int(threadIdx.x) < limit);
}

int main(int argc, char **argv) {
    const char *kind = argc > 1 ? argv[1] : "store";
    const int n = 4096;
    int *device;
    CHECK(cudaMalloc(&device, n * sizeof(int)));
    CHECK(cudaMemset(device, 0, n * sizeof(int)));
    work<<<n / 256, 256>>>(device, n);
    CHECK(cudaDeviceSynchronize());
    std::puts("ready");
    std::fflush(stdout);
    std::getchar();
    // Work of its own around the fault: nothing of it is done afterwards.
    work<<<n / 256, 256>>>(device, n);
    if (!std::strcmp(kind, "store")) store<<<1, 1>>>((int *)0xdead0000ull);
    if (!std::strcmp(kind, "inlined")) inlined<<<1, 1>>>((int *)0xdead0000ull);
    if (!std::strcmp(kind, "load")) load<<<1, 1>>>((const int *)0xdead0000ull, device);
    if (!std::strcmp(kind, "misaligned")) store<<<1, 1>>>((int *)((char *)device + 2));
    if (!std::strcmp(kind, "trap")) trap<<<4, 32>>>();
    if (!std::strcmp(kind, "assertion")) check<<<1, 4>>>(3);
    work<<<n / 256, 256>>>(device, n);
    std::printf("wait: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    std::printf("again: %s\n", cudaGetErrorName(cudaMalloc(&device, 4)));
    std::printf("%s\n", kind);
    return 0;
}
