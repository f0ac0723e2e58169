// Warp and block cooperation, atomics, shared memory, initialised variables, printf, assert.
#include <cassert>
#include <cooperative_groups.h>
#include <cstdio>
namespace cg = cooperative_groups;

struct Record { char a; short b; int c; double d; const int *e; };

__device__ int counter;
__device__ __managed__ int managed = 4;
__constant__ float table[256] = {1.f, 2.5f, -3.f};
__device__ int grid[2][3] = {{1, 2, 3}, {4, 5}};
__device__ const char *names[] = {"one", "two", "three"};
__device__ int *inner = &grid[1][0];
__device__ Record records[2] = {{1, 2, 3, 4.5, &grid[0][1]}, {5, 6, 7, 8.5, nullptr}};
__device__ double doubles[2] = {1e-300, -0.0};

extern "C" __global__ void warps(int *out, unsigned *u, unsigned long long *wide, float *f, double *d) {
    int i = threadIdx.x;
    out[i] = __shfl_sync(~0u, i, 3) + __shfl_up_sync(~0u, i, 1) + __shfl_down_sync(~0u, i, 1, 16) +
             __shfl_xor_sync(~0u, i, 4) + __syncthreads_count(i) + __syncthreads_and(i) + __syncthreads_or(i);
    int same;
    u[i] = __ballot_sync(~0u, i & 1) + __all_sync(~0u, i) + __any_sync(~0u, i) + __activemask() +
           __match_any_sync(~0u, i) + __match_all_sync(~0u, i, &same) + same;
    __syncwarp(0xff);
    __threadfence();
    __threadfence_block();
    __threadfence_system();
    atomicAdd(&counter, 1); atomicMin(out, 3); atomicMax(u, 4u); atomicInc(u, 5); atomicAnd(out, 7);
    atomicExch(f, 1.f); atomicCAS(wide, 1ull, 2ull); atomicAdd(f, 1.f); atomicAdd(d, 1.0);
    atomicAdd_block(out, 3); atomicAdd_system(out, 4);
    out[1] = atomicCAS(out, 10, 11);
    f[i] += table[i] + grid[i & 1][1] + names[i % 3][0] + records[i & 1].d + *inner + doubles[i & 1] + managed;
}

extern "C" __global__ void groups(int *out, int n) {
    extern __shared__ int dynamic[];
    __shared__ int tile[64];
    auto block = cg::this_thread_block();
    auto eight = cg::tiled_partition<8>(block);
    tile[threadIdx.x] = n;
    dynamic[threadIdx.x] = n;
    block.sync();
    eight.sync();
    out[0] = eight.shfl_xor(n, 1) + cg::coalesced_threads().size() + tile[n] + dynamic[n];
    cg::this_grid().sync();
}

extern "C" __global__ void talk(int n, double d, const char *text) {
    printf("hello %d %f %s\n", n, d, text);
    assert(n > 3);
    if (n == 9) __trap();
    if (clock64() & 1) __nanosleep(100);
    int *p = (int *)malloc(n);
    if (p) p[0] = n;
    free(p);
}

// Two loops with the same label names: each in its own scope.
extern "C" __global__ void waits(volatile int *flag) {
    asm volatile("{ .reg .pred p; .reg .u32 v; WAIT: ld.volatile.global.u32 v, [%0]; setp.eq.u32 p, v, 3; @p bra DONE; bra WAIT; DONE: }" ::"l"(flag));
    asm volatile("{ .reg .pred p; .reg .u32 v; WAIT: ld.volatile.global.u32 v, [%0+4]; setp.eq.u32 p, v, 3; @!p bra WAIT; }" ::"l"(flag));
    asm volatile("bar.sync 1, 64; bar.arrive 2, 64; barrier.sync.aligned 3, 32;");
}
