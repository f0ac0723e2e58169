// The kernels of the prebuilt PTX examples. kernels.ptx is made from this file by `cargo xtask ptx-examples`; host.c runs it.

extern "C" __global__ void vector_add(const unsigned *a, const unsigned *b, unsigned *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}

// Squares of n x n entries, n a multiple of 16.
extern "C" __global__ void matrix_multiply(const unsigned *a, const unsigned *b, unsigned *out, unsigned n) {
    __shared__ unsigned left[16][16], right[16][16];
    unsigned row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x, sum = 0;
    for (unsigned k = 0; k < n; k += 16) {
        left[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
        __syncthreads();
        for (unsigned i = 0; i < 16; ++i) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    out[row * n + column] = sum;
}

// out[block] = sum of the block's 256 entries.
extern "C" __global__ void reduction(const unsigned *a, const unsigned *, unsigned *out, unsigned n) {
    __shared__ unsigned part[256];
    unsigned i = blockIdx.x * 256 + threadIdx.x;
    part[threadIdx.x] = i < n ? a[i] : 0;
    __syncthreads();
    for (unsigned step = 128; step > 0; step /= 2) {
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}

// out[value & 255] counts.
extern "C" __global__ void histogram(const unsigned *a, const unsigned *, unsigned *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&out[a[i] & 255], 1u);
}

// Running sums of blocks of 256.
extern "C" __global__ void scan(const unsigned *a, const unsigned *, unsigned *out, unsigned n) {
    __shared__ unsigned part[2][256];
    unsigned i = blockIdx.x * 256 + threadIdx.x, from = 0;
    part[0][threadIdx.x] = i < n ? a[i] : 0;
    __syncthreads();
    for (unsigned step = 1; step < 256; step *= 2, from = 1 - from) {
        unsigned value = part[from][threadIdx.x];
        if (threadIdx.x >= step) value += part[from][threadIdx.x - step];
        part[1 - from][threadIdx.x] = value;
        __syncthreads();
    }
    if (i < n) out[i] = part[from][threadIdx.x];
}

// Turns of a generator, as in a Monte-Carlo run.
extern "C" __global__ void generator(const unsigned *a, const unsigned *b, unsigned *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned state = a[i] | 1, hits = 0;
    for (unsigned k = 0; k < 500; ++k) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        hits += (state & 255) < (b[i] & 255);
    }
    out[i] = hits;
}

// Steps until a number comes down to 1 by the Collatz rule.
extern "C" __global__ void collatz(const unsigned *a, const unsigned *, unsigned *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned long long value = (a[i] & 0xffff) + 1;
    unsigned steps = 0;
    for (; value != 1 && steps < 1000; ++steps) value = value % 2 ? 3 * value + 1 : value / 2;
    out[i] = steps;
}

// Runs for hours; writes a word first.
extern "C" __global__ void long_kernel(const unsigned *, const unsigned *, unsigned *out, unsigned n) {
    volatile unsigned *word = out;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *word = 1;
        __threadfence_system();
    }
    float value = threadIdx.x;
    for (unsigned long long i = 0; i < 1ull << 44; ++i) value = value * 0.999f + 1.0f;
    out[1 + threadIdx.x] = unsigned(value);
}

extern "C" __global__ void illegal_access(const unsigned *, const unsigned *, unsigned *, unsigned) { *(volatile unsigned *)0xdead0000ull = 1; }
