// Two files that are compiled apart (`nvcc -rdc=true`) and call each other on the device: functions,
// variables, constants, managed memory, a table of functions, kernels that both have.
// nvcc: -rdc=true -gencode arch=compute_75,code=compute_75 -x cu separate.cuh
#define FIRST_HALF
#include "separate.cuh"
#include "../../examples/example.cuh"

static __device__ int hidden = 50;
__device__ int twice(int value) { return 2 * value; }
__device__ int (*chosen)(int) = twice;

__global__ void compute(int *out) {
    atomicAdd_system(&calls, 1);
    out[threadIdx.x] = weigh(int(threadIdx.x)) + hidden;
}

int main() {
    int *device, host[64];
    CHECK(cudaMalloc(&device, sizeof host));
    fill<int><<<1, 64>>>(device, 7);
    CHECK(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost));
    for (int value : host)
        if (value != 7) return std::printf("FAIL: %d is not 7\n", value), 1;
    int five = 5;
    CHECK(cudaMemcpyToSymbol(weight, &five, sizeof five));
    compute<<<1, 64>>>(device);
    CHECK(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost));
    const int steps_here[] = {1, 10, 100, 1000};
    for (int i = 0; i < 64; ++i) {
        const int expected = i * 5 + steps_here[i & 3] + 40 + 2 * i + 2 + 50;
        if (host[i] != expected) return std::printf("FAIL: %d: %d is not %d\n", i, host[i], expected), 1;
    }
    if (calls != 64) return std::printf("FAIL: %d calls\n", calls), 1;
    std::printf("OK\n");
    return 0;
}
