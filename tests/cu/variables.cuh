// State of a program that does not lie in its own allocations: variables of all kinds, constants written between kernels, pointers to variables and functions.
//
// Prints "ready". For each line on standard input it works on what the lines before have left, and prints "phase N right", or which part is not.
#pragma once

#include "../../examples/example.cuh"

#include <cstring>
#include <string>

typedef int (*Function)(int);

__device__ int counters[4] = {1, 2, 3, 4};
__device__ unsigned long long zeroed[1 << 16];
static __device__ int own = 77;
struct Node {
    int value;
    Node *next;
};
__device__ Node last = {5, nullptr};
__device__ Node first = {4, &last};
__device__ int *third = &counters[2];
__device__ const char *words[2] = {"even", "odd"};
__constant__ float factors[64];
__constant__ int fixed_table[4] = {10, 20, 30, 40};
__constant__ int *pointer_to_last = &last.value;
#ifdef WITH_FUNCTIONS
__device__ __noinline__ int twice(int x) { return 2 * x; }
__device__ __noinline__ int thrice(int x) { return 3 * x; }
__device__ Function functions[2] = {twice, thrice};
__device__ Function chosen;
__global__ void choose(int which) { chosen = which ? thrice : twice; }
__global__ void call(int *out, int i) {
    out[0] = chosen(7);
    out[1] = functions[i & 1](7);
}
#endif

struct Found {
    int counter, own, calls, list, third, word, table, last;
    unsigned long long zeroed;
    float factors[64];
    float through_pointer;
};

__global__ void work(Found *found, int phase, const float *constants) {
    static int calls = 0;
    int i = threadIdx.x;
    found->factors[i] = factors[i];
    if (i != 0) return;
    found->counter = atomicAdd(&counters[phase & 3], phase);
    found->own = own++;
    found->calls = ++calls;
    found->list = first.next->value++;
    found->third = *third;
    found->word = words[phase & 1][0];
    found->table = fixed_table[phase & 3];
    found->last = *pointer_to_last;
    zeroed[phase * 11] += phase;
    found->zeroed = zeroed[(phase - 1) * 11];
    found->through_pointer = constants[5];
    printf("phase %d of a kernel\n", phase);
}

static bool expect(const char *what, double is, double should) {
    if (is == should) return true;
    std::printf("%s: %g instead of %g\n", what, is, should);
    return false;
}

int main() {
    Found *found;
    CHECK(cudaMalloc(&found, sizeof(Found)));
    float *constants, *source;
    CHECK(cudaGetSymbolAddress((void **)&constants, factors));
    CHECK(cudaMalloc(&source, 64 * sizeof(float)));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    int counters_should[4] = {1, 2, 3, 4};
    float factors_should[64] = {};
    std::puts("ready");
    std::fflush(stdout);
    std::string line;
    for (int phase = 1, c; (c = std::getchar()) != EOF;) {
        if (c != '\n') continue;
        bool right = true;
        // What was written before the last line is still there.
        float before[64];
        CHECK(cudaMemcpyFromSymbol(before, factors, sizeof before));
        for (int i = 0; i < 64; ++i) right &= expect("a constant from before", before[i], factors_should[i]);
        work<<<1, 64>>>(found, phase, constants);
        Found seen;
        CHECK(cudaMemcpy(&seen, found, sizeof seen, cudaMemcpyDeviceToHost));
        for (int i = 0; i < 64; ++i) right &= expect("a constant in a kernel", seen.factors[i], factors_should[i]);
        right &= expect("a constant through a pointer", seen.through_pointer, factors_should[5]);
        right &= expect("a counter", seen.counter, counters_should[phase & 3]);
        counters_should[phase & 3] += phase;
        right &= expect("a static variable", seen.own, 76 + phase);
        right &= expect("a variable of a function", seen.calls, phase);
        right &= expect("a list", seen.list, 4 + phase);
        right &= expect("a pointer in a constant", seen.last, 5 + phase);
        right &= expect("a pointer", seen.third, counters_should[2]);
        right &= expect("a text", seen.word, phase & 1 ? 'o' : 'e');
        right &= expect("a table", seen.table, 10 * ((phase & 3) + 1));
        right &= expect("zeroed memory", seen.zeroed, phase - 1);
        // Constants are written in many ways, one phase after another.
        float fresh[64];
        for (int i = 0; i < 64; ++i) fresh[i] = phase * 100 + i;
        CHECK(cudaMemcpyToSymbol(factors, fresh, 16 * sizeof(float)));
        CHECK(cudaMemcpyToSymbolAsync(factors, fresh + 16, 8 * sizeof(float), 16 * sizeof(float), cudaMemcpyHostToDevice, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaMemcpy(source, fresh, sizeof fresh, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpyToSymbol(factors, source + 24, 8 * sizeof(float), 24 * sizeof(float), cudaMemcpyDeviceToDevice));
        CHECK(cudaMemcpy2D(constants + 32, 8 * sizeof(float), fresh + 32, 4 * sizeof(float), 4 * sizeof(float), 4, cudaMemcpyHostToDevice));
        std::memcpy(factors_should, fresh, 32 * sizeof(float));
        for (int row = 0; row < 4; ++row) std::memcpy(factors_should + 32 + 8 * row, fresh + 32 + 4 * row, 4 * sizeof(float));
        CHECK(cudaMemset(constants + 36, 0, 4 * sizeof(float)));
        std::memset(factors_should + 36, 0, 4 * sizeof(float));
#ifdef WITH_FUNCTIONS
        int *out, called[2];
        CHECK(cudaMalloc(&out, sizeof called));
        // Before the pointer is chosen anew, so that it is what the line before has left.
        if (phase > 1) {
            call<<<1, 1>>>(out, phase);
            CHECK(cudaMemcpy(called, out, sizeof called, cudaMemcpyDeviceToHost));
            right &= expect("a pointer to a function", called[0], phase & 1 ? 14 : 21);
            right &= expect("a table of functions", called[1], phase & 1 ? 21 : 14);
        }
        choose<<<1, 1>>>(phase & 1);
        CHECK(cudaFree(out));
#endif
        CHECK(cudaDeviceSynchronize());
        std::printf("phase %d %s\n", phase, right ? "right" : "wrong");
        std::fflush(stdout);
        if (!right) return 1;
        ++phase;
    }
    return 0;
}
