// Kernels that use the stack in different ways: nvcc -cubin -arch=sm_90 stacks.cu
#include <alloca.h>

// As much as its parameter says, of which the compiler's figures say nothing.
extern "C" __global__ void by_parameter(int *out, int count) {
    int *room = (int *)alloca(count * sizeof(int));
    for (int at = 0; at < count; at++) room[at] = out[at] * at;
    int sum = 0;
    for (int at = 0; at < count; at++) sum += room[(at * 7) % count];
    out[threadIdx.x] = sum;
}

extern "C" __global__ void of_one_size(int *out, int count) {
    volatile int room[50];
    for (int at = 0; at < count; at++) room[at % 50] = out[at] * at;
    int sum = 0;
    for (int at = 0; at < count; at++) sum += room[(at * 7) % 50];
    out[threadIdx.x] = sum;
}

extern "C" __global__ void none(int *out, int count) { out[threadIdx.x] = count; }
