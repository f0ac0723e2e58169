// Kernels of which some say how a graph goes on: directly, through a function, and through an
// address. The image beside this file is made of it with nvcc 13.0: nvcc -arch=sm_90 -cubin
#include <cuda_runtime.h>

typedef void (*Tells)(cudaGraphConditionalHandle, unsigned);

__device__ __noinline__ void tell(cudaGraphConditionalHandle handle, unsigned value) { cudaGraphSetConditional(handle, value * 3); }

extern "C" __global__ void decide(cudaGraphConditionalHandle handle, unsigned *left) { cudaGraphSetConditional(handle, --*left > 0); }
extern "C" __global__ void through_helper(cudaGraphConditionalHandle handle, unsigned value) { tell(handle, value); }
extern "C" __global__ void address_of(Tells *out) { *out = tell; }
extern "C" __global__ void through_address(cudaGraphConditionalHandle handle, Tells tells) { tells(handle, 1); }
extern "C" __global__ void add(unsigned *word) { *word += 1; }
