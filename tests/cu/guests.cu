// A guest with kernels of its own: runs of many different kernels, some that repeat themselves and some that do not, each continuing from the last, so that a
// kernel that ran twice, not at all, out of order or with another's parameters shows. The variable makes the module one program's own.
//   guests ROUNDS SEED     prints "ready" after the first round
#include "../../examples/example.cuh"

#include <algorithm>

constexpr int N = 32, KINDS = 24, PATTERNS = 6;
__device__ unsigned salt;

#ifndef WORDS
#define WORDS (K * K)
#endif
#ifndef LOCAL
#define LOCAL (K % 4 == 1 ? K * 24 : 0)
#endif

// Parameters of many sizes (24 bytes to 2.3 KiB): what belongs to another kernel does not fit.
template <int K> struct Given {
    unsigned *values;
    unsigned words[WORDS];
    unsigned *same;
};

__host__ __device__ inline unsigned step(unsigned value, unsigned word, unsigned i) { return (value ^ (value >> 13)) * 2654435761u + word + i; }

template <int K> __global__ void turn(Given<K> given) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned value = given.values[i] + salt;
    if constexpr (LOCAL > 0) {
        // Some need memory for each thread, of many sizes.
        volatile unsigned mine[LOCAL + 1];
        for (int k = 0; k < WORDS; ++k) mine[(i + k * 7) % LOCAL] = given.words[k], value = step(value, mine[(i + k * 7) % LOCAL], i);
    } else {
        for (int k = 0; k < WORDS; ++k) value = step(value, given.words[k], i);
    }
    given.same[i] = value;
}

template <int K> constexpr int words() { return WORDS; }

using Launch = void (*)(unsigned *, unsigned, cudaStream_t);

template <int K> void launch(unsigned *values, unsigned first, cudaStream_t stream) {
    Given<K> given = {values, {}, values};
    for (int k = 0; k < WORDS; ++k) given.words[k] = first * 31 + k;
    turn<K><<<1 << K % 3, N >> K % 3, K % 4 * 128, stream>>>(given);
}

template <int... K> std::vector<Launch> all(std::integer_sequence<int, K...>) { return {launch<K + 1>...}; }
template <int... K> std::vector<int> counts(std::integer_sequence<int, K...>) { return {words<K + 1>()...}; }

int main(int argc, char **argv) {
    const int count = rounds(argc, argv, 200);
    const unsigned seed = argc > 2 ? std::atoi(argv[2]) : 1;
    unsigned state = seed * 7919 + 17;
    auto random = [&](unsigned below) { return ((state = state * 1664525u + 1013904223u) >> 8) % below; };
    auto kinds = all(std::make_integer_sequence<int, KINDS>());
    auto lengths = counts(std::make_integer_sequence<int, KINDS>());
    // Which kernels a run has, and with what: the even patterns repeat themselves to the last word.
    std::vector<std::vector<int>> patterns(PATTERNS);
    for (auto &pattern : patterns) {
        pattern.resize(1 + random(40));
        for (auto &kind : pattern) kind = random(KINDS);
    }
    std::vector<unsigned> expected(N), found(N);
    for (int i = 0; i < N; ++i) expected[i] = i * 2654435761u + seed;
    unsigned *values;
    cudaStream_t stream;
    CHECK(cudaMemcpyToSymbol(salt, &seed, sizeof seed));
    CHECK(cudaMalloc(&values, N * sizeof(unsigned)));
    CHECK(cudaMemcpy(values, expected.data(), N * sizeof(unsigned), cudaMemcpyHostToDevice));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    long long checked = 0;
    for (int round = 0; round < count; ++round) {
        int which = random(PATTERNS);
        unsigned first = which % 2 ? random(1000) : which;
        for (int kind : patterns[which]) {
            kinds[kind](values, first + kind, stream);
            for (int i = 0; i < N; ++i) {
                expected[i] += seed;
                for (int k = 0; k < lengths[kind]; ++k) expected[i] = step(expected[i], (first + kind) * 31 + k, i);
            }
        }
        CHECK(cudaGetLastError());
        if (random(3) == 0) CHECK(cudaStreamSynchronize(stream));
        if (random(16) == 0 || round + 1 == count) {
            CHECK(cudaMemcpyAsync(found.data(), values, N * sizeof(unsigned), cudaMemcpyDeviceToHost, stream));
            CHECK(cudaStreamSynchronize(stream));
            checked += N;
            if (found != expected) {
                std::printf("FAIL: wrong after round %d\n", round);
                return 1;
            }
        }
        if (round == 0) {
            std::puts("ready");
            std::fflush(stdout);
        }
    }
    return finish("guests", true, checked);
}
