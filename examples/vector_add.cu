// Adds vectors in four streams, each with its own copies in, kernel and copy out, so that transfers and kernels overlap.
#include "example.cuh"

__global__ void add(const float *a, const float *b, float *sum, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) sum[i] = a[i] + b[i];
}

int main(int argc, char **argv) {
    const int streams = 4, n = 1 << 18, count = rounds(argc, argv, 8);
    const size_t bytes = n * sizeof(float);
    cudaStream_t stream[streams];
    float *a[streams], *b[streams], *sum[streams], *device[streams];
    for (int s = 0; s < streams; ++s) {
        CHECK(cudaStreamCreate(&stream[s]));
        CHECK(cudaMallocHost(&a[s], bytes));
        CHECK(cudaMallocHost(&b[s], bytes));
        CHECK(cudaMallocHost(&sum[s], bytes));
        CHECK(cudaMalloc(&device[s], 3 * bytes));
    }
    bool right = true;
    long long checked = 0;
    for (int round = 0; round < count; ++round) {
        for (int s = 0; s < streams; ++s) {
            for (int i = 0; i < n; ++i) {
                a[s][i] = float(i % 1000 + round);
                b[s][i] = float(s * 1000 - i % 777);
            }
            float *x = device[s], *y = x + n, *z = y + n;
            CHECK(cudaMemcpyAsync(x, a[s], bytes, cudaMemcpyHostToDevice, stream[s]));
            CHECK(cudaMemcpyAsync(y, b[s], bytes, cudaMemcpyHostToDevice, stream[s]));
            add<<<(n + 255) / 256, 256, 0, stream[s]>>>(x, y, z, n);
            CHECK(cudaGetLastError());
            CHECK(cudaMemcpyAsync(sum[s], z, bytes, cudaMemcpyDeviceToHost, stream[s]));
        }
        for (int s = 0; s < streams; ++s) {
            CHECK(cudaStreamSynchronize(stream[s]));
            for (int i = 0; i < n; ++i, ++checked) right &= sum[s][i] == a[s][i] + b[s][i];
        }
    }
    for (int s = 0; s < streams; ++s) {
        CHECK(cudaFree(device[s]));
        CHECK(cudaStreamDestroy(stream[s]));
    }
    return finish("vector_add", right, checked);
}
