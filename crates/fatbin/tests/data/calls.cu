// Kernels with calls of all kinds. The images beside this file are made of it with nvcc 13.0:
//   nvcc -arch=sm_90 -cubin                                    calls.sm_90.cubin
//   nvcc -arch=sm_90 -G -cubin                                 calls.debug.cubin
//   nvcc -arch=sm_90 -rdc=true -cubin, nvlink -arch=sm_90      calls.linked.cubin
//   nvcc -arch=sm_80 -cubin                                    calls.sm_80.cubin
//   nvcc -arch=sm_100 -cubin                                   calls.sm_100.cubin
#include <cstdio>

typedef int (*Function)(int);

__device__ __noinline__ int square(int x) { return x * x + 7; }
__device__ __noinline__ int around(int x) { return square(x) + square(x + 1); }

__device__ __noinline__ int depth(int n) {
    volatile int here[8];
    here[n & 7] = n;
    return n == 0 ? 0 : depth(n - 1) + here[n & 7];
}

__device__ int odd(int n);
__device__ __noinline__ int even(int n) { return n == 0 ? 1 : odd(n - 1) + n; }
__device__ __noinline__ int odd(int n) { return n == 0 ? 0 : even(n - 1) * 3; }

__device__ __noinline__ int indirectly(int n) { return depth(n) + 1; }

__device__ Function table[2] = {square, around};

extern "C" __global__ void plain(int *out) { *out += 1; }
extern "C" __global__ void calls(int *out) { *out = around(*out); }
extern "C" __global__ void divides(float *out, float by) { *out = sqrtf(*out) / by; }
extern "C" __global__ void says(int *out) { printf("%d\n", *out); }
extern "C" __global__ void recursive(int *out) { *out = depth(*out); }
extern "C" __global__ void mutual(int *out) { *out = even(*out); }
extern "C" __global__ void deeper(int *out) { *out = indirectly(*out); }
extern "C" __global__ void by_table(int *out, int which) { *out = table[which](*out); }
extern "C" __global__ void by_parameter(int *out, Function function) { *out = function(*out); }
