// Source of the cubins whose names begin with "variables" and "functions":
//   nvcc -cubin -arch=sm_90 -o variables.sm_90.cubin variables.cu
//   nvcc -cubin -arch=sm_80 -o variables.sm_80.cubin variables.cu
//   nvcc -cubin -arch=sm_90 -G -o variables.debug.cubin variables.cu
//   nvcc -cubin -arch=sm_90 -rdc=true -o part.cubin variables.cu && nvlink -arch=sm_90 -o variables.linked.cubin part.cubin
//   nvcc -cubin -arch=sm_100 -o variables.sm_100.cubin variables.cu
//   nvcc -cubin -arch=sm_90 -DFUNCTIONS -o functions.sm_90.cubin variables.cu
//   nvcc -cubin -arch=sm_90 -DFUNCTIONS -G -o functions.debug.cubin variables.cu
//   nvcc -cubin -arch=sm_90 -DHEAP -o heap.sm_90.cubin variables.cu
//   nvcc -cubin -arch=sm_90 -rdc=true -DTABLE -o part.cubin variables.cu && nvlink -arch=sm_90 -o table.linked.cubin part.cubin
//   nvcc -cubin -arch=sm_90 -DMANAGED -o managed.sm_90.cubin variables.cu
#include <cstdio>

extern "C" {
__device__ int counters[4] = {1, 2, 3, 4};
__device__ unsigned zeroed[8];
__device__ int *pointer = &counters[2];
__device__ unsigned *into_zeroed = &zeroed[5];
struct __attribute__((packed)) Packed { char c; int *pointer; };
__device__ Packed packed = {7, &counters[1]};
__device__ const char *words[2] = {"one", "two"};
__constant__ float factors[4] = {1, 2, 3, 4};
__constant__ int *constant_pointer = &counters[3];

__global__ void count(int *out, int i) {
    static int calls = 5;
    out[0] = atomicAdd(&counters[i], 10) + *pointer + *into_zeroed + *packed.pointer + words[i][0];
    out[1] = (int)factors[i] + *constant_pointer + ++calls;
    zeroed[i] += 1;
    packed.c += 1;
    printf("counted %d\n", i);
}

#ifdef FUNCTIONS
typedef int (*Function)(int);
__device__ __noinline__ int twice(int x) { return 2 * x; }
__device__ __noinline__ int thrice(int x) { return 3 * x; }
__device__ Function table[2] = {twice, thrice};
__device__ Function chosen;
__global__ void choose(int i) { chosen = i ? twice : thrice; }
__global__ void use(int *out, int i) { out[0] = chosen(i) + table[i](i); }
#endif
#ifdef HEAP
__global__ void allocate(int **out) { *out = (int *)malloc(64); }
#endif
}

#ifdef TABLE
typedef void (*Work)(int *);
__device__ __noinline__ void double_it(int *x) { *x *= 2; }
__device__ __noinline__ void triple_it(int *x) { *x *= 3; }
__device__ Work const ncclDevFuncTable[2] = {double_it, triple_it};
__device__ int times = 1;

extern "C" __global__ void work(int *x, int i) { ncclDevFuncTable[i](x); *x += times++; }
#endif
#ifdef MANAGED
__managed__ int managed_count = 5;
__device__ int beside = 6;
__managed__ float managed_table[4] = {1, 2, 3, 4};
__managed__ int managed_zero[3];
__device__ int zero_beside[3];

extern "C" __global__ void manage(float *out) {
    int i = threadIdx.x;
    atomicAdd(&managed_count, beside);
    for (float *p = managed_table; p != managed_table + 4; p++) *p += zero_beside[i];
    managed_zero[i] = i;
    out[i] = managed_table[i];
}
#endif
