// Kernels of which one says how a graph goes on. The image beside this file is made of it with nvcc
// 13.0: nvcc -arch=sm_90 -cubin
#include <cuda_runtime.h>

extern "C" __global__ void decide(cudaGraphConditionalHandle handle, unsigned *left) { cudaGraphSetConditional(handle, --*left > 0); }
extern "C" __global__ void add(unsigned *word) { *word += 1; }
