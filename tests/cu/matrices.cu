// Products of matrices in all the ways that a program has: `wmma` of each type, `mma` with `ldmatrix`,
// fed by asynchronous copies, barriers and pipelines. Compares with what the CPU finds.
#include "../../examples/example.cuh"

#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <mma.h>

#pragma nv_diag_suppress 20054

using namespace nvcuda;
namespace cg = cooperative_groups;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define RECENT 1
#endif

template <int M, int N, int K, typename Factor, typename Sum, typename LayoutA, typename LayoutB, typename Stored>
__global__ void multiply(const Stored *a, const Stored *b, Sum *c, int lda, int ldb) {
#ifdef RECENT
    wmma::fragment<wmma::matrix_a, M, N, K, Factor, LayoutA> fa;
    wmma::fragment<wmma::matrix_b, M, N, K, Factor, LayoutB> fb;
    wmma::fragment<wmma::accumulator, M, N, K, Sum> fc;
    wmma::fill_fragment(fc, Sum(1));
    wmma::load_matrix_sync(fa, a, lda);
    wmma::load_matrix_sync(fb, b, ldb);
    wmma::mma_sync(fc, fa, fb, fc);
    for (int i = 0; i < fc.num_elements; ++i) fc.x[i] = fc.x[i] + fc.x[i];
    wmma::store_matrix_sync(c, fc, M, wmma::mem_col_major);
#endif
}

static bool right = true;
static long long checked = 0;

template <typename Sum>
static double number(Sum value) { return double(float(value)); }

template <int M, int N, int K, typename Factor, typename Sum, typename LayoutA, typename LayoutB, typename Stored = Factor>
static void try_one(const char *name) {
    bool a_by_row = std::is_same<LayoutA, wmma::row_major>::value, b_by_row = std::is_same<LayoutB, wmma::row_major>::value;
    int lda = (a_by_row ? K : M) + 16, ldb = (b_by_row ? N : K) + 16;
    Stored *a, *b;
    Sum *c;
    CHECK(cudaMallocManaged(&a, sizeof(Stored) * lda * (a_by_row ? M : K)));
    CHECK(cudaMallocManaged(&b, sizeof(Stored) * ldb * (b_by_row ? K : N)));
    CHECK(cudaMallocManaged(&c, sizeof(Sum) * M * N));
    auto at_a = [&](int row, int k) -> Stored & { return a[a_by_row ? row * lda + k : k * lda + row]; };
    auto at_b = [&](int k, int column) -> Stored & { return b[b_by_row ? k * ldb + column : column * ldb + k]; };
    for (int i = 0; i < M; ++i)
        for (int k = 0; k < K; ++k) at_a(i, k) = Stored(float((i * 7 + k * 3) % 9));
    for (int k = 0; k < K; ++k)
        for (int j = 0; j < N; ++j) at_b(k, j) = Stored(float((k * 5 + j * 2) % 7));
    multiply<M, N, K, Factor, Sum, LayoutA, LayoutB><<<1, 32>>>(a, b, c, lda, ldb);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    int wrong = 0;
    for (int i = 0; i < M; ++i) {
        for (int j = 0; j < N; ++j) {
            double sum = 1;
            for (int k = 0; k < K; ++k) sum += number(at_a(i, k)) * number(at_b(k, j));
            wrong += number(c[j * M + i]) != number(Sum(float(2 * sum)));
            ++checked;
        }
    }
    if (wrong) std::printf("%s: %d wrong\n", name, wrong);
    right &= wrong == 0;
}

// One tile of 16 by 8 from rows of 32 halves, through shared memory.
__global__ void by_hand(const __half *a, const __half *b, float *c) {
#ifdef RECENT
    __shared__ __align__(16) __half sa[16 * 16], sb[8 * 16];
    __shared__ cuda::barrier<cuda::thread_scope_block> arrived;
    auto block = cg::this_thread_block();
    if (threadIdx.x == 0) init(&arrived, blockDim.x);
    __syncthreads();
    cuda::memcpy_async(block, sa, a, sizeof sa, arrived);
    cuda::memcpy_async(block, sb, b, sizeof sb, arrived);
    arrived.arrive_and_wait();
    unsigned ra[4], rb[2];
    float rc[4] = {};
    int lane = threadIdx.x;
    unsigned at_a = __cvta_generic_to_shared(sa + (lane % 16) * 16 + lane / 16 * 8);
    unsigned at_b = __cvta_generic_to_shared(sb + (lane % 8) * 16 + lane / 8 % 2 * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(at_a));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(rb[0]), "=r"(rb[1]) : "r"(at_b));
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(rc[0]), "+f"(rc[1]), "+f"(rc[2]), "+f"(rc[3])
                 : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
    int row = lane / 4, column = lane % 4 * 2;
    c[row * 8 + column] = rc[0];
    c[row * 8 + column + 1] = rc[1];
    c[(row + 8) * 8 + column] = rc[2];
    c[(row + 8) * 8 + column + 1] = rc[3];
#endif
}

static void try_by_hand() {
    __half *a, *b;
    float *c;
    CHECK(cudaMallocManaged(&a, 16 * 16 * sizeof(__half)));
    CHECK(cudaMallocManaged(&b, 8 * 16 * sizeof(__half)));
    CHECK(cudaMallocManaged(&c, 16 * 8 * sizeof(float)));
    for (int i = 0; i < 256; ++i) a[i] = __float2half(i % 13 - 6);
    for (int i = 0; i < 128; ++i) b[i] = __float2half(i % 11 - 5);
    by_hand<<<1, 32>>>(a, b, c);
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 16; ++i) {
        for (int j = 0; j < 8; ++j, ++checked) {
            float sum = 0;
            for (int k = 0; k < 16; ++k) sum += __half2float(a[i * 16 + k]) * __half2float(b[j * 16 + k]);
            if (c[i * 8 + j] != sum) {
                std::printf("by hand: %d %d is %g, not %g\n", i, j, c[i * 8 + j], sum);
                right = false;
            }
        }
    }
}

// Two stages: while one is summed, the next is copied.
__global__ void staged(const int *from, int *to, int pieces) {
#ifdef RECENT
    __shared__ int stages[2][64];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cg::this_thread_block();
    auto pipeline = cuda::make_pipeline(block, &state);
    int sum = 0;
    for (int next = 0, done = 0; done < pieces; ++done) {
        for (; next < pieces && next < done + 2; ++next) {
            pipeline.producer_acquire();
            cuda::memcpy_async(block, stages[next % 2], from + 64 * next, sizeof stages[0], pipeline);
            pipeline.producer_commit();
        }
        pipeline.consumer_wait();
        sum += stages[done % 2][63 - threadIdx.x];
        pipeline.consumer_release();
    }
    to[threadIdx.x] = sum;
#endif
}

static void try_staged() {
    int *from, *to;
    CHECK(cudaMallocManaged(&from, 64 * 9 * sizeof(int)));
    CHECK(cudaMallocManaged(&to, 64 * sizeof(int)));
    for (int i = 0; i < 64 * 9; ++i) from[i] = i * i;
    staged<<<1, 64>>>(from, to, 9);
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 64; ++i, ++checked) {
        int sum = 0;
        for (int piece = 0; piece < 9; ++piece) sum += from[64 * piece + 63 - i];
        right &= to[i] == sum;
    }
}

// There and back in eight bits.
__global__ void narrow(const float *from, float *to) {
    to[2 * threadIdx.x] = float(__nv_fp8_e4m3(from[threadIdx.x]));
    to[2 * threadIdx.x + 1] = float(__nv_fp8_e5m2(from[threadIdx.x]));
}

static void try_narrow() {
    float *from, *to;
    CHECK(cudaMallocManaged(&from, 256 * sizeof(float)));
    CHECK(cudaMallocManaged(&to, 512 * sizeof(float)));
    for (int i = 0; i < 256; ++i) from[i] = (i - 128) * (i % 3 ? 0.0371f : 900.5f);
    narrow<<<1, 256>>>(from, to);
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 256; ++i, ++checked) {
        // The header computes the same in software on the host.
        right &= to[2 * i] == float(__nv_fp8_e4m3(from[i])) && to[2 * i + 1] == float(__nv_fp8_e5m2(from[i]));
    }
}

int main() {
    using Row = wmma::row_major;
    using Column = wmma::col_major;
    try_one<16, 16, 16, __half, float, Row, Column>("half to float");
    try_one<16, 16, 16, __half, float, Column, Row>("half to float, by columns");
    try_one<32, 8, 16, __half, __half, Row, Row>("half to half");
    try_one<8, 32, 16, __half, float, Column, Column>("half to float, wide");
    try_one<16, 16, 16, signed char, int, Row, Column>("signed char");
    try_one<32, 8, 16, unsigned char, int, Column, Row>("unsigned char");
#ifdef RECENT
    try_one<16, 16, 16, __nv_bfloat16, float, Row, Column>("bfloat16");
    try_one<8, 32, 16, __nv_bfloat16, float, Row, Row>("bfloat16, wide");
    try_one<16, 16, 8, wmma::precision::tf32, float, Row, Column, float>("tf32");
    try_one<8, 8, 4, double, double, Row, Column>("double");
#endif
    try_by_hand();
    try_staged();
    try_narrow();
    return finish("matrices", right, checked);
}
