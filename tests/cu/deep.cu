// Kernels whose stack is unbounded: one calls itself, one calls through an address. After "ready"
// each line on the standard input is an order:
//   plain        a kernel without calls
//   deep N       a kernel that calls itself N times
//   behind MS    the same, 5 times, behind a kernel of so many milliseconds in another stream
//   address I    a kernel that calls through an address: 0 and 1 are functions, 2 is none
// Answers with the result ("plain right", "deep 100 right") or the name of the error.
#include "../../examples/example.cuh"

#include <cstring>
#include <string>

typedef unsigned (*Step)(unsigned);

static __device__ __noinline__ unsigned twice(unsigned x) { return 2 * x + 1; }
static __device__ __noinline__ unsigned thrice(unsigned x) { return 3 * x + 1; }

__device__ Step steps[2] = {twice, thrice};

static __device__ __noinline__ unsigned sum(unsigned n) {
    volatile unsigned here[16];
    here[n & 15] = n;
    return n == 0 ? 0 : sum(n - 1) + here[n & 15];
}

__global__ void plain(unsigned *out, unsigned n) { *out = n + 7; }

__global__ void deep(unsigned *out, unsigned n) { *out = sum(n); }

__global__ void through_address(unsigned *out, unsigned which) { *out = steps[which](20); }

typedef void (*Function)(unsigned *);

__global__ void to_nothing(unsigned *out, unsigned long long where) { ((Function)where)(out); }

__global__ void spin(long long ns) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while ((long long)(now - begin) < ns);
}

int main() {
    unsigned *out;
    CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 32 << 10));
    CHECK(cudaMalloc(&out, sizeof *out));
    CHECK(cudaMemset(out, 0, sizeof *out));
    cudaStream_t other;
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    std::puts("ready");
    std::fflush(stdout);
    char order[32];
    unsigned n = 0;
    while (std::scanf("%31s", order) == 1) {
        unsigned expected = 0;
        if (!std::strcmp(order, "plain")) {
            plain<<<1, 1>>>(out, n = 5);
            expected = 12;
        } else if (std::scanf("%u", &n) == 1 && !std::strcmp(order, "deep")) {
            deep<<<1, 1>>>(out, n);
            expected = n * (n + 1) / 2;
        } else if (!std::strcmp(order, "behind")) {
            spin<<<1, 1, 0, other>>>(1000000ll * n);
            deep<<<1, 1>>>(out, 5);
            expected = 15;
        } else {
            // An address that no program has. Natively, on an H100, jumps to 0x7ffffff00 and to the
            // last 64 KiB of all addresses do not end, and one to 0x10 returns as if nothing had
            // been; this one is an invalid program counter.
            if (n < 2) through_address<<<1, 1>>>(out, n);
            else to_nothing<<<1, 1>>>(out, 1ull << 48);
            expected = n == 0 ? 41 : 61;
        }
        unsigned found = 0;
        cudaError_t error = cudaGetLastError();
        if (error == cudaSuccess) error = cudaMemcpy(&found, out, sizeof found, cudaMemcpyDeviceToHost);
        std::string what = std::string(order) + (!std::strcmp(order, "plain") ? "" : " " + std::to_string(n));
        std::printf("%s %s\n", what.c_str(), error != cudaSuccess ? cudaGetErrorName(error) : found == expected ? "right" : "WRONG");
        std::fflush(stdout);
    }
    return 0;
}
