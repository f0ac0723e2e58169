// What one program does with two cards:
//   twocards info                what it sees, and how the cards reach each other
//   twocards copy MIB REPEATS    bandwidth of copies between the cards, with and without peer access, and of a kernel that reads the other's memory
//   twocards steady SECONDS      works on both cards and copies between them, checks every result, and prints one line as `steady` does
//   twocards long SECONDS        one kernel of so many seconds on the first card; prints "running", and at the end whether its result is right
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>
#include <cuda_runtime.h>

static double now() { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
static void fail(cudaError_t error, int line) {
    std::printf("error twocards %d %s line %d\n", int(error), cudaGetErrorName(error), line);
    std::fflush(stdout);
    std::_Exit(2);
}
#define DO(call) do { cudaError_t e_ = (call); if (e_ != cudaSuccess) fail(e_, __LINE__); } while (0)

__global__ void fill(unsigned *v, size_t n, unsigned salt) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) v[i] = (unsigned)i * 2654435761u + salt;
}
__global__ void check(const unsigned *v, size_t n, unsigned salt, unsigned *wrong) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        if (v[i] != (unsigned)i * 2654435761u + salt) atomicAdd(wrong, 1u);
}
__global__ void read(const uint4 *v, size_t n, unsigned *out) {
    unsigned sum = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) { uint4 x = v[i]; sum += x.x ^ x.y ^ x.z ^ x.w; }
    if (sum == 77) *out = sum;
}
__global__ void spin(unsigned *out, long long ns) {
    long long from, t;
    asm volatile("mov.u64 %0,%globaltimer;" : "=l"(from));
    do { asm volatile("mov.u64 %0,%globaltimer;" : "=l"(t)); } while (t - from < ns);
    out[threadIdx.x] += threadIdx.x + 1;
}

static int info() {
    int count = 0;
    DO(cudaGetDeviceCount(&count));
    std::printf("devices %d\n", count);
    for (int d = 0; d < count; ++d) {
        cudaDeviceProp p;
        size_t free = 0, total = 0;
        DO(cudaSetDevice(d));
        DO(cudaGetDeviceProperties(&p, d));
        DO(cudaMemGetInfo(&free, &total));
        std::printf("device %d %s sms %d total %zu MiB free %zu MiB pci %02x uuid ", d, p.name, p.multiProcessorCount, total >> 20, free >> 20, p.pciBusID);
        for (char byte : p.uuid.bytes) std::printf("%02x", (unsigned char)byte);
        std::printf("\n");
    }
    for (int a = 0; a < count; ++a)
        for (int b = 0; b < count; ++b) {
            int can = 0, rank = 0, atomics = 0;
            if (a == b) continue;
            DO(cudaDeviceCanAccessPeer(&can, a, b));
            DO(cudaDeviceGetP2PAttribute(&rank, cudaDevP2PAttrPerformanceRank, a, b));
            DO(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, a, b));
            std::printf("peer %d %d can %d rank %d atomics %d\n", a, b, can, rank, atomics);
        }
    return 0;
}

static int copies(size_t bytes, int repeats) {
    unsigned *memory[2], *wrong[2];
    cudaStream_t stream[2];
    const size_t n = bytes / 4;
    for (int d = 0; d < 2; ++d) {
        DO(cudaSetDevice(d));
        DO(cudaMalloc(&memory[d], bytes));
        DO(cudaMalloc(&wrong[d], 4));
        DO(cudaMemset(wrong[d], 0, 4));
        DO(cudaStreamCreate(&stream[d]));
    }
    for (int access = 0; access < 2; ++access) {
        for (int d = 0; access && d < 2; ++d) {
            DO(cudaSetDevice(d));
            if (cudaError_t error = cudaDeviceEnablePeerAccess(1 - d, 0)) { std::printf("access %d no %s\n", d, cudaGetErrorName(error)); return 0; }
        }
        for (int from = 0; from < 2; ++from) {
            const int to = 1 - from;
            const unsigned salt = 17 + access * 2 + from;
            DO(cudaSetDevice(from));
            fill<<<264, 512, 0, stream[from]>>>(memory[from], n, salt);
            DO(cudaStreamSynchronize(stream[from]));
            DO(cudaMemcpyPeerAsync(memory[to], to, memory[from], from, bytes, stream[from]));
            DO(cudaStreamSynchronize(stream[from]));
            std::vector<double> rates;
            for (int batch = 0; batch < 5; ++batch) {
                const double begun = now();
                for (int i = 0; i < repeats; ++i) DO(cudaMemcpyPeerAsync(memory[to], to, memory[from], from, bytes, stream[from]));
                const double called = now();
                DO(cudaStreamSynchronize(stream[from]));
                rates.push_back(bytes * (double)repeats / (now() - begun) / 1e6);
                if (batch == 4) std::printf("call access %d from %d us %.1f\n", access, from, (called - begun) * 1e3 / repeats);
            }
            std::sort(rates.begin(), rates.end());
            DO(cudaSetDevice(to));
            check<<<264, 512, 0, stream[to]>>>(memory[to], n, salt, wrong[to]);
            DO(cudaStreamSynchronize(stream[to]));
            unsigned bad = 0;
            DO(cudaMemcpy(&bad, wrong[to], 4, cudaMemcpyDefault));
            std::printf("copy access %d from %d GB/s %.2f wrong %u\n", access, from, rates[2], bad);
            std::fflush(stdout);
        }
    }
    for (int d = 0; d < 2; ++d) {
        DO(cudaSetDevice(d));
        read<<<528, 512, 0, stream[d]>>>((const uint4 *)memory[1 - d], n / 4, wrong[d]);
        DO(cudaStreamSynchronize(stream[d]));
        const double begun = now();
        for (int i = 0; i < repeats; ++i) read<<<528, 512, 0, stream[d]>>>((const uint4 *)memory[1 - d], n / 4, wrong[d]);
        DO(cudaStreamSynchronize(stream[d]));
        std::printf("read by %d GB/s %.2f\n", d, bytes * (double)repeats / (now() - begun) / 1e6);
        // Writes across, and atomics.
        DO(cudaSetDevice(d));
        fill<<<264, 512, 0, stream[d]>>>(memory[1 - d], n, 99 + d);
        DO(cudaStreamSynchronize(stream[d]));
        DO(cudaSetDevice(1 - d));
        DO(cudaMemset(wrong[1 - d], 0, 4));
        check<<<264, 512>>>(memory[1 - d], n, 99 + d, wrong[1 - d]);
        unsigned bad = 0;
        DO(cudaMemcpy(&bad, wrong[1 - d], 4, cudaMemcpyDefault));
        std::printf("write by %d wrong %u\n", d, bad);
    }
    return 0;
}

static int steady(double seconds) {
    const size_t n = 1 << 20;
    unsigned *a[2], *b[2], *wrong[2];
    for (int d = 0; d < 2; ++d) {
        DO(cudaSetDevice(d));
        DO(cudaMalloc(&a[d], n * 4));
        DO(cudaMalloc(&b[d], n * 4));
        DO(cudaMalloc(&wrong[d], 4));
        DO(cudaMemset(wrong[d], 0, 4));
    }
    std::printf("ready\n");
    std::fflush(stdout);
    const double until = now() + seconds * 1e3;
    double longest = 0, last = now();
    std::string pauses;
    int rounds = 0;
    while (now() < until) {
        for (int d = 0; d < 2; ++d) {
            DO(cudaSetDevice(d));
            fill<<<64, 256>>>(a[d], n, rounds * 2 + d);
            DO(cudaGetLastError());
        }
        for (int d = 0; d < 2; ++d) DO(cudaMemcpyPeer(b[1 - d], 1 - d, a[d], d, n * 4));
        for (int d = 0; d < 2; ++d) {
            DO(cudaSetDevice(d));
            check<<<64, 256>>>(b[d], n, rounds * 2 + 1 - d, wrong[d]);
            unsigned bad = 0;
            DO(cudaMemcpy(&bad, wrong[d], 4, cudaMemcpyDefault));
            if (bad) { std::printf("WRONG twocards round %d device %d\n", rounds, d); return 1; }
        }
        ++rounds;
        const double took = now() - last;
        last = now();
        longest = std::max(longest, took);
        if (took > 25) pauses += (pauses.empty() ? "" : ",") + std::to_string(took).substr(0, 6);
    }
    std::printf("right twocards rounds %d longest %.1f pauses %s\n", rounds, longest, pauses.c_str());
    return 0;
}

static int longer(double seconds) {
    unsigned *out, found[32];
    DO(cudaMalloc(&out, sizeof found));
    DO(cudaMemset(out, 0, sizeof found));
    spin<<<1, 32>>>(out, 1000);
    DO(cudaDeviceSynchronize());
    std::printf("ready\n");
    const double begun = now();
    spin<<<1, 32>>>(out, (long long)(seconds * 1e9));
    std::printf("running\n");
    std::fflush(stdout);
    DO(cudaDeviceSynchronize());
    DO(cudaMemcpy(found, out, sizeof found, cudaMemcpyDefault));
    for (unsigned i = 0; i < 32; ++i)
        if (found[i] != 2 * (i + 1)) { std::printf("WRONG long %u is %u\n", i, found[i]); return 1; }
    std::printf("right long rounds 1 longest %.1f pauses \n", now() - begun);
    return 0;
}

int main(int argc, char **argv) {
    const std::string mode = argc > 1 ? argv[1] : "info";
    const double number = argc > 2 ? std::atof(argv[2]) : 1;
    if (mode == "copy") return copies((size_t)number << 20, argc > 3 ? std::atoi(argv[3]) : 10);
    if (mode == "steady") return steady(number);
    if (mode == "long") return longer(number);
    return info();
}
