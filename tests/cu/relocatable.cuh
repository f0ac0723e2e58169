// One kernel, and what its launch is told.
#pragma once

#include <cstdio>
#include <cuda_runtime.h>

__global__ void seven(int *value) {
#ifdef NESTED
    cudaGraphLaunch(cudaGraphExec_t(value), cudaStreamFireAndForget);
#endif
    *value = 7;
}

int main() {
    int *device;
    if (cudaMalloc(&device, 2 * sizeof(int)) != cudaSuccess) return 1;
    seven<<<1, 1>>>(device);
    std::printf("launch: %s\n", cudaGetErrorName(cudaGetLastError()));
    return 0;
}
