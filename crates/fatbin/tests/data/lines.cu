// Source of the cubins whose names begin with "lines":
//   nvcc -cubin -arch=sm_90 -lineinfo -o lines.sm_90.cubin lines.cu
//   nvcc -cubin -arch=sm_100 -lineinfo -o lines.sm_100.cubin lines.cu
//   nvcc -cubin -arch=sm_90 -G -o lines.debug.cubin lines.cu
//   R="nvcc -cubin -arch=sm_90 -lineinfo -rdc=true lines.cu -o"; $R one.cubin; $R two.cubin -DSECOND
//   nvlink -arch=sm_90 -o lines.linked.cubin one.cubin two.cubin
#include "lines.cuh"

extern "C" {
#ifndef SECOND
__global__ void store(int *values, int at) {
    values[at] = 1;
}

__global__ void inlined(int *values) {
    values[0] = 5;
    values[1] = sum_of(values, 7);
}
#else
__device__ __noinline__ int called(const int *values, int at) {
    return values[at] * 3;
}

__global__ void calls(int *values) {
    values[2] = called(values, values[3]);
}
#endif
}
