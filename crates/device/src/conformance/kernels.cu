// Kernels of the conformance suite. kernels.ptx is made from this file: nvcc -ptx -arch=compute_75 kernels.cu, without the leading comments, and
// with .visible before the variables `table` and `counter`.
#include <cassert>
#include <cooperative_groups.h>
#include <cstdio>

extern "C" {

__device__ unsigned table[4] = {10, 20, 30, 40};
__device__ unsigned *into_table = &table[2];
__device__ unsigned counter;
__constant__ unsigned offset = 7;

__global__ void empty() {}

__global__ void fill(unsigned *out, unsigned n, unsigned value) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = value;
}

__global__ void add_one(unsigned *p, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) p[i] += 1;
}

// Not idempotent, and slow enough to be interrupted: n rounds of x = 3x + 1 through memory.
__global__ void grind(unsigned *p, unsigned n, unsigned rounds) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    for (unsigned r = 0; r < rounds; r++) {
        p[i] = p[i] * 3 + 1;
        __syncthreads();
    }
}

__global__ void add_atomically(unsigned *sum, unsigned rounds) {
    for (unsigned r = 0; r < rounds; r++) atomicAdd(sum, 1);
}

__global__ void store(unsigned long long address, unsigned value) { *(unsigned *)address = value; }

__global__ void store_byte(unsigned long long address, unsigned value) { *(unsigned char *)address = value; }

__global__ void load(unsigned long long address, unsigned *out) { *out = *(unsigned *)address; }

__global__ void trap_if(unsigned which) {
    if (blockIdx.x * blockDim.x + threadIdx.x == which) asm volatile("trap;");
}

__global__ void assert_small(unsigned limit) { assert(threadIdx.x < limit); }

__global__ void say(unsigned number) { printf("number %u\n", number + threadIdx.x); }

// Runs until somebody stores something at `stop`.
__global__ void until(volatile unsigned *stop) {
    while (*stop == 0) {
    }
}

// Never ends and touches no memory.
__global__ void endless(unsigned *out) {
    unsigned x = threadIdx.x;
    for (;;) asm volatile("add.u32 %0, %0, 1;" : "+r"(x));
    *out = x;
}

// Every block waits until all have come: they must all be resident and make progress.
__global__ void meet(unsigned *arrived, unsigned *out) {
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1);
        while (atomicAdd(arrived, 0) < gridDim.x) {
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = *(volatile unsigned *)arrived;
}

// Block i waits for block i - 1.
__global__ void chain(volatile unsigned *sums) {
    if (threadIdx.x == 0) {
        unsigned before = 0;
        if (blockIdx.x > 0)
            while ((before = sums[blockIdx.x - 1]) == 0) {
            }
        __threadfence();
        sums[blockIdx.x] = before + 1;
    }
}

__global__ void sync_grid(unsigned *values, unsigned *out, unsigned rounds) {
    auto grid = cooperative_groups::this_grid();
    for (unsigned r = 0; r < rounds; r++) {
        if (threadIdx.x == 0) values[blockIdx.x] = values[blockIdx.x] + 1;
        grid.sync();
        unsigned neighbour = ((volatile unsigned *)values)[(blockIdx.x + 1) % gridDim.x];
        if (threadIdx.x == 0 && neighbour != r + 1) out[blockIdx.x] = 1;
        grid.sync();
    }
}

__global__ void read_table(unsigned *out) {
    out[threadIdx.x] = table[threadIdx.x] + offset;
    if (threadIdx.x == 0) out[4] = *into_table;
}

__global__ void count(unsigned *out) { *out = ++counter; }

__global__ void where(unsigned *smid, unsigned *threads) {
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    if (threadIdx.x == 0) {
        smid[blockIdx.x] = sm;
        threads[blockIdx.x] = blockDim.x;
    }
}

__global__ void reverse_shared(unsigned *p) {
    extern __shared__ unsigned buffer[];
    buffer[threadIdx.x] = p[threadIdx.x];
    __syncthreads();
    p[threadIdx.x] = buffer[blockDim.x - 1 - threadIdx.x];
}
}
