// Keeps a list in memory that kernels allocate on the card. Prints "ready"; after a line on standard input "right", or the error that it gets.
#include "../../examples/example.cuh"

__device__ int *kept;
__global__ void allocate() { kept = (int *)malloc(64), kept[3] = 4711; }
__global__ void read(int *out) { *out = kept[3]; }

int main() {
    int *out, value = 0;
    CHECK(cudaMalloc(&out, sizeof *out));
    allocate<<<1, 1>>>();
    CHECK(cudaDeviceSynchronize());
    std::puts("ready");
    std::fflush(stdout);
    std::getchar();
    read<<<1, 1>>>(out);
    cudaError_t error = cudaMemcpy(&value, out, sizeof value, cudaMemcpyDeviceToHost);
    if (error != cudaSuccess) std::printf("told %s\n", cudaGetErrorName(error));
    else std::puts(value == 4711 ? "right" : "wrong");
    return 0;
}
