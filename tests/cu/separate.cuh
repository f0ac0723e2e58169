// What the two halves of `separate` share. Compiled by itself, it is the second half.
template <typename T>
__global__ void fill(T *values, T value) {
    values[threadIdx.x] = value;
}

#ifdef FIRST_HALF
extern __device__ int weight;
extern __constant__ int steps[4];
extern __managed__ int calls;
extern __device__ int weigh(int value);
#else
__device__ int weight = 3;
__constant__ int steps[4] = {1, 10, 100, 1000};
__managed__ int calls = 0;
// Both halves have a variable of this name for themselves.
static __device__ int hidden = 40;

extern __device__ int (*chosen)(int);
extern __device__ int twice(int value);

__device__ int weigh(int value) {
    __shared__ int together;
    if (threadIdx.x == 0) together = hidden;
    __syncthreads();
    return value * weight + steps[threadIdx.x & 3] + together + chosen(value) + twice(1);
}

// The same kernel as in the other half: one of them counts.
template __global__ void fill<int>(int *, int);
#endif
