// An innocent client: `steady KIND SECONDS` does one kind of work over and over, checks every result on the CPU, and prints one line at the end:
//   right KIND rounds N longest MS pauses MS,MS,…     all results right; the longest time between the ends of two rounds, and those over 25 ms
//   WRONG KIND …                                      a wrong result without an error
//   error KIND CODE NAME …                            a CUDA call failed
// Kinds: vector reduce stencil atomics graph streams copies sets constant variable printf managedless tiny long_kernel longer_kernel
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>
#include <cuda_runtime.h>

using clk = std::chrono::steady_clock;
static double now() { return std::chrono::duration<double, std::milli>(clk::now().time_since_epoch()).count(); }
static std::string kind;
static void fail(cudaError_t error, int line) {
    std::printf("error %s %d %s line %d\n", kind.c_str(), int(error), cudaGetErrorName(error), line);
    std::fflush(stdout);
    std::_Exit(2);
}
#define DO(call) do { cudaError_t e_ = (call); if (e_ != cudaSuccess) fail(e_, __LINE__); } while (0)

__constant__ unsigned table[64];
__device__ unsigned counter;
__device__ unsigned history[64] = {3, 1, 4, 1, 5};

__global__ void mix(unsigned *v, int n, unsigned salt, int turns) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned x = v[i];
        for (int k = 0; k < turns; ++k) x = (x ^ (x >> 15)) * 2246822519u + salt + k;
        v[i] = x;
    }
}
__global__ void sum(const unsigned *v, int n, unsigned *out) {
    __shared__ unsigned part[256];
    unsigned s = 0;
    for (int i = threadIdx.x; i < n; i += 256) s += v[i];
    part[threadIdx.x] = s;
    for (int half = 128; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0) *out = part[0];
}
__global__ void smooth(const unsigned *from, unsigned *to, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = from[i] + from[(i + 1) % n] * 3 + from[(i + n - 1) % n] * 5;
}
__global__ void count_up(unsigned *bins, int turns) {
    for (int k = 0; k < turns; ++k) atomicAdd(&bins[(threadIdx.x * 7 + blockIdx.x + k) % 64], k + 1);
}
__global__ void look_up(unsigned *v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] = v[i] * 31 + table[i % 64];
}
__global__ void remember(unsigned *out) {
    unsigned old = counter;
    counter = old * 5 + history[old % 64];
    history[old % 64] = counter;
    *out = counter;
}
__global__ void say(unsigned value) { std::printf("said %u\n", value); }
__global__ void busy(long long ns, unsigned *v) {
    long long from, t;
    asm volatile("mov.u64 %0,%globaltimer;" : "=l"(from));
    do asm volatile("mov.u64 %0,%globaltimer;" : "=l"(t)); while (t - from < ns);
    if (threadIdx.x == 0 && blockIdx.x == 0) *v += 1;
}
static unsigned mixed(unsigned x, unsigned salt, int turns) {
    for (int k = 0; k < turns; ++k) x = (x ^ (x >> 15)) * 2246822519u + salt + k;
    return x;
}

int main(int argc, char **argv) {
    if (argc < 3) return 9;
    kind = argv[1];
    const int n = 16384;
    std::vector<unsigned> mirror(n), other(n), found(n);
    unsigned *a, *b, *one;
    DO(cudaMalloc(&a, n * 4));
    DO(cudaMalloc(&b, n * 4));
    DO(cudaMalloc(&one, 256 * 4));
    DO(cudaMemset(one, 0, 256 * 4));
    cudaStream_t s[3];
    for (auto &x : s) DO(cudaStreamCreateWithFlags(&x, cudaStreamNonBlocking));
    for (int i = 0; i < n; ++i) mirror[i] = i * 2654435761u + 7;
    DO(cudaMemcpy(a, mirror.data(), n * 4, cudaMemcpyHostToDevice));
    std::vector<unsigned> bins(64), past(64);
    past[0] = 3, past[1] = 1, past[2] = 4, past[3] = 1, past[4] = 5;
    unsigned state = 0, *pinned;
    DO(cudaHostAlloc(&pinned, n * 4, cudaHostAllocDefault));
    cudaGraphExec_t exec = nullptr;
    if (kind == "graph") {
        cudaGraph_t graph;
        DO(cudaStreamBeginCapture(s[0], cudaStreamCaptureModeRelaxed));
        mix<<<16, 256, 0, s[0]>>>(a, n, 5, 20);
        mix<<<16, 256, 0, s[0]>>>(a, n, 9, 30);
        sum<<<1, 256, 0, s[0]>>>(a, n, one);
        DO(cudaStreamEndCapture(s[0], &graph));
        DO(cudaGraphInstantiate(&exec, graph, 0));
    }
    // A copy out of pageable memory may still be on its way.
    DO(cudaDeviceSynchronize());
    std::printf("ready\n");
    std::fflush(stdout);
    // The seconds are those of work, without the start.
    const double until = now() + std::atof(argv[2]) * 1e3;
    long round = 0;
    double last = now(), longest = 0;
    std::vector<double> pauses;
    bool right = true;
    auto check = [&](unsigned *device, const std::vector<unsigned> &expected, size_t count) {
        DO(cudaMemcpyAsync(found.data(), device, count * 4, cudaMemcpyDeviceToHost, s[0]));
        DO(cudaStreamSynchronize(s[0]));
        right &= !std::memcmp(found.data(), expected.data(), count * 4);
    };
    for (; now() < until && right; ++round) {
        const unsigned salt = unsigned(round);
        if (kind == "vector") {
            for (int k = 0; k < 4; ++k) mix<<<32, 256, 0, s[0]>>>(a, n, salt + k, 25);
            for (auto &x : mirror) for (int k = 0; k < 4; ++k) x = mixed(x, salt + k, 25);
            check(a, mirror, n);
        } else if (kind == "reduce" || kind == "graph") {
            unsigned total = 0, got;
            if (exec) { DO(cudaGraphLaunch(exec, s[0])); for (auto &x : mirror) x = mixed(mixed(x, 5, 20), 9, 30); }
            else { mix<<<16, 256, 0, s[0]>>>(a, n, salt, 3); sum<<<1, 256, 0, s[0]>>>(a, n, one); for (auto &x : mirror) x = mixed(x, salt, 3); }
            for (auto x : mirror) total += x;
            DO(cudaMemcpyAsync(&got, one, 4, cudaMemcpyDeviceToHost, s[0]));
            DO(cudaStreamSynchronize(s[0]));
            right &= got == total;
        } else if (kind == "stencil") {
            smooth<<<n / 256, 256, 0, s[0]>>>(a, b, n);
            smooth<<<n / 256, 256, 0, s[0]>>>(b, a, n);
            for (int k = 0; k < 2; ++k) {
                for (int i = 0; i < n; ++i) other[i] = mirror[i] + mirror[(i + 1) % n] * 3 + mirror[(i + n - 1) % n] * 5;
                mirror.swap(other);
            }
            check(a, mirror, n);
        } else if (kind == "atomics") {
            count_up<<<4, 64, 0, s[0]>>>(one, 16);
            for (unsigned block = 0; block < 4; ++block) for (unsigned t = 0; t < 64; ++t) for (unsigned k = 0; k < 16; ++k) bins[(t * 7 + block + k) % 64] += k + 1;
            check(one, bins, 64);
        } else if (kind == "streams") {
            for (int k = 0; k < 2; ++k) for (int j = 0; j < 4; ++j) mix<<<8, 256, 0, s[1 + k]>>>(a + k * n / 2, n / 2, salt + j, 10);
            for (auto &x : mirror) for (int j = 0; j < 4; ++j) x = mixed(x, salt + j, 10);
            for (auto x : {s[1], s[2]}) DO(cudaStreamSynchronize(x));
            check(a, mirror, n);
        } else if (kind == "copies") {
            for (int i = 0; i < n; ++i) pinned[i] = mirror[i] = i * salt + 3;
            DO(cudaMemcpyAsync(b, pinned, n * 4, cudaMemcpyHostToDevice, s[0]));
            DO(cudaMemcpyAsync(a, b, n * 4, cudaMemcpyDeviceToDevice, s[0]));
            DO(cudaMemcpy2DAsync(a, 256, b + 64, 256, 128, 32, cudaMemcpyDeviceToDevice, s[0]));
            for (int row = 0; row < 32; ++row) for (int i = 0; i < 32; ++i) mirror[row * 64 + i] = pinned[row * 64 + 64 + i];
            check(a, mirror, n);
        } else if (kind == "sets") {
            DO(cudaMemsetAsync(a, int(round) & 255, n * 4, s[0]));
            mix<<<16, 256, 0, s[0]>>>(a, n, 1, 2);
            unsigned value = (salt & 255) * 0x01010101u;
            for (auto &x : mirror) x = mixed(value, 1, 2);
            check(a, mirror, n);
        } else if (kind == "constant") {
            unsigned words[64];
            for (int i = 0; i < 64; ++i) words[i] = i * 17 + salt;
            if (round % 8 == 0) { DO(cudaMemcpyToSymbolAsync(table, words, sizeof words, 0, cudaMemcpyHostToDevice, s[0])); std::memcpy(past.data(), words, sizeof words); }
            look_up<<<n / 256, 256, 0, s[0]>>>(a, n);
            for (int i = 0; i < n; ++i) mirror[i] = mirror[i] * 31 + past[i % 64];
            check(a, mirror, n);
        } else if (kind == "variable") {
            for (int k = 0; k < 3; ++k) {
                remember<<<1, 1, 0, s[0]>>>(one);
                unsigned old = state;
                state = old * 5 + past[old % 64];
                past[old % 64] = state;
            }
            unsigned got;
            DO(cudaMemcpyAsync(&got, one, 4, cudaMemcpyDeviceToHost, s[0]));
            DO(cudaStreamSynchronize(s[0]));
            right &= got == state;
        } else if (kind == "printf") {
            mix<<<16, 256, 0, s[0]>>>(a, n, salt, 3);
            for (auto &x : mirror) x = mixed(x, salt, 3);
            if (round % 64 == 0) say<<<1, 1, 0, s[0]>>>(unsigned(round));
            check(a, mirror, n);
        } else if (kind == "tiny") {
            mix<<<1, 32, 0, s[0]>>>(a, 32, salt, 1);
            for (int i = 0; i < 32; ++i) mirror[i] = mixed(mirror[i], salt, 1);
            check(a, mirror, 32);
        } else if (kind == "long_kernel" || kind == "longer_kernel") {
            busy<<<4, 64, 0, s[0]>>>(kind == "long_kernel" ? 20000000 : 300000000, one);
            bins[0] += 1;
            check(one, bins, 1);
        } else {
            return 9;
        }
        const double end = now();
        if (end - last > 25) pauses.push_back(end - last);
        if (end - last > longest) longest = end - last;
        last = end;
    }
    std::printf("%s %s rounds %ld longest %.1f pauses ", right ? "right" : "WRONG", kind.c_str(), round, longest);
    for (size_t i = 0; i < pauses.size(); ++i) std::printf("%s%.1f", i ? "," : "", pauses[i]);
    std::printf("\n");
    std::fflush(stdout);
    std::_Exit(right ? 0 : 1);
}
