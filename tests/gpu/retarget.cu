// Does the driver keep parameters apart when nodes of an executable graph are set to other functions? (decision 0110; runs without cumux)
//   nvcc -O3 -cudart static -std=c++17 -arch=sm_90 retarget.cu -o retarget
//   retarget SECONDS MODE     letters of MODE: s waits for the stream before nodes are set (else a mark in host memory is enough), d no kernel with more
//                             parameters than the node was made with, e only with as many, f only the same, h a thread makes and destroys graphs meanwhile
// Exit status 0: all results were right.
#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#define CHECK(call)                                                                                        \
    do {                                                                                                   \
        cudaError_t check_result = (call);                                                                 \
        if (check_result != cudaSuccess) {                                                                 \
            std::printf("FAIL: %s: %s (line %d)\n", #call, cudaGetErrorString(check_result), __LINE__);    \
            std::exit(1);                                                                                  \
        }                                                                                                  \
    } while (0)

constexpr int THREADS = 32, KINDS = 24, EXECUTABLES = 16;

// 24 bytes to 2.3 KiB.
template <int K> struct Given {
    unsigned *values;
    unsigned words[K * K];
    unsigned *same;
};

__host__ __device__ inline unsigned step(unsigned value, unsigned word, unsigned i) { return (value ^ (value >> 13)) * 2654435761u + word + i; }

template <int K> __global__ void turn(Given<K> given) {
    int i = threadIdx.x;
    unsigned value = given.values[i];
    for (int k = 0; k < K * K; ++k) value = step(value, given.words[k], i);
    given.same[i] = value;
}

__global__ void mark(unsigned long long *word) { *(volatile unsigned long long *)word = 1; }

struct Kind {
    void *function;
    size_t bytes;
    int words;
};

template <int... K> std::vector<Kind> all(std::integer_sequence<int, K...>) { return {Kind{(void *)turn<K + 1>, sizeof(Given<K + 1>), (K + 1) * (K + 1)}...}; }
static const std::vector<Kind> kinds = all(std::make_integer_sequence<int, KINDS>());

struct Parameters {
    alignas(8) unsigned char bytes[4096];
    void *list[1] = {bytes};
    cudaKernelNodeParams node(int kind, unsigned *values, unsigned first) {
        std::memcpy(bytes, &values, 8);
        for (int k = 0; k < kinds[kind].words; ++k) reinterpret_cast<unsigned *>(bytes + 8)[k] = first * 31 + k;
        std::memcpy(bytes + kinds[kind].bytes - 8, &values, 8);
        cudaKernelNodeParams node = {};
        node.func = kinds[kind].function, node.gridDim = 1, node.blockDim = THREADS, node.kernelParams = list;
        return node;
    }
};

struct Chain {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaStream_t stream;
    std::vector<cudaGraphNode_t> nodes;
    std::vector<int> made_with;
    volatile unsigned long long *word;
    unsigned *values;
    std::vector<unsigned> expected;
    bool launched = false;

    void make(int length, std::minstd_rand &random, unsigned long long *at) {
        Parameters parameters;
        nodes.resize(length), made_with.resize(length), word = at;
        CHECK(cudaGraphCreate(&graph, 0));
        for (int i = 0; i < length; ++i) {
            auto node = parameters.node(made_with[i] = random() % KINDS, values, 1);
            CHECK(cudaGraphAddKernelNode(&nodes[i], graph, i ? &nodes[i - 1] : nullptr, i ? 1 : 0, &node));
        }
        cudaGraphNode_t last;
        void *list[] = {&at};
        cudaKernelNodeParams node = {};
        node.func = (void *)mark, node.gridDim = 1, node.blockDim = 1, node.kernelParams = list;
        CHECK(cudaGraphAddKernelNode(&last, graph, &nodes[length - 1], 1, &node));
        CHECK(cudaGraphInstantiate(&executable, graph, 0));
    }
};

int main(int argc, char **argv) {
    const double seconds = argc > 1 ? std::atof(argv[1]) : 4;
    const std::string mode = argc > 2 ? argv[2] : "w";
    auto has = [&](char letter) { return mode.find(letter) != std::string::npos; };
    unsigned long long *words;
    CHECK(cudaHostAlloc(&words, 64 * (EXECUTABLES + 1), cudaHostAllocMapped));
    std::minstd_rand random(7);
    std::vector<Chain> chains(EXECUTABLES);
    for (int n = 0; n < EXECUTABLES; ++n) {
        auto &chain = chains[n];
        for (int i = 0; i < THREADS; ++i) chain.expected.push_back(i * 77 + n);
        CHECK(cudaMalloc(&chain.values, THREADS * 4));
        CHECK(cudaMemcpy(chain.values, chain.expected.data(), THREADS * 4, cudaMemcpyHostToDevice));
        CHECK(cudaStreamCreateWithFlags(&chain.stream, cudaStreamNonBlocking));
        chain.make(4 + n % 4 * 4, random, words + n * 8);
    }
    std::atomic<bool> over{false};
    std::thread helper([&] {
        std::minstd_rand own(9);
        Chain other;
        CHECK(cudaMalloc(&other.values, THREADS * 4));
        while (has('h') && !over) {
            other.make(8, own, words + EXECUTABLES * 8);
            CHECK(cudaGraphExecDestroy(other.executable));
            CHECK(cudaGraphDestroy(other.graph));
        }
    });
    const auto begin = std::chrono::steady_clock::now();
    long launches = 0, wrong = 0;
    std::vector<unsigned> found(THREADS);
    Parameters parameters;
    while (wrong == 0 && std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < seconds) {
        auto &chain = chains[random() % EXECUTABLES];
        if (chain.launched && !*chain.word) continue;
        if (chain.launched && has('s')) CHECK(cudaStreamSynchronize(chain.stream));
        if (chain.launched && random() % 8 == 0) {
            CHECK(cudaMemcpyAsync(found.data(), chain.values, THREADS * 4, cudaMemcpyDeviceToHost, chain.stream));
            CHECK(cudaStreamSynchronize(chain.stream));
            wrong += found != chain.expected;
        }
        for (size_t i = 0; i < chain.nodes.size(); ++i) {
            const int first = chain.made_with[i];
            int kind = random() % KINDS;
            while ((has('e') && kinds[kind].bytes != kinds[first].bytes) || (has('d') && kinds[kind].bytes > kinds[first].bytes) || (has('f') && kind != first))
                kind = random() % KINDS;
            const unsigned with = random() % 1000;
            auto node = parameters.node(kind, chain.values, with);
            CHECK(cudaGraphExecKernelNodeSetParams(chain.executable, chain.nodes[i], &node));
            for (int t = 0; t < THREADS; ++t)
                for (int w = 0; w < kinds[kind].words; ++w) chain.expected[t] = step(chain.expected[t], with * 31 + w, t);
        }
        *chain.word = 0;
        CHECK(cudaGraphLaunch(chain.executable, chain.stream));
        chain.launched = true, ++launches;
    }
    over = true;
    helper.join();
    std::printf("%s: %ld launches, %s\n", mode.c_str(), launches, wrong ? "WRONG results" : cudaGetErrorString(cudaDeviceSynchronize()));
    return wrong != 0;
}
