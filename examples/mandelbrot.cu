// Draws the Mandelbrot set by rows in two streams. Rounded step by step (no fused operations), so the CPU gets the same picture.
#include "example.cuh"

constexpr int width = 256, height = 192, limit = 200;

__host__ __device__ inline float times(float a, float b) {
#ifdef __CUDA_ARCH__
    return __fmul_rn(a, b);
#else
    volatile float product = a * b;
    return product;
#endif
}

__host__ __device__ inline int escape(int column, int row) {
    float x = times(column, 3.0f / width) - 2.0f, y = times(row, 2.0f / height) - 1.0f, re = 0, im = 0;
    int i = 0;
    for (; i < limit && times(re, re) + times(im, im) < 4.0f; ++i) {
        float next = times(re, re) - times(im, im) + x;
        im = times(2.0f, times(re, im)) + y;
        re = next;
    }
    return i;
}

__global__ void draw(int *picture, int first_row) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = first_row + blockIdx.y;
    if (column < width && row < height) picture[row * width + column] = escape(column, row);
}

int main(int argc, char **argv) {
    const int count = rounds(argc, argv, 2);
    const int pixels = width * height;
    int *device;
    std::vector<int> found(pixels), expected(pixels);
    cudaStream_t stream[2];
    CHECK(cudaStreamCreateWithFlags(&stream[0], cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&stream[1], cudaStreamNonBlocking));
    CHECK(cudaMalloc(&device, pixels * sizeof(int)));
    for (int row = 0; row < height; ++row)
        for (int column = 0; column < width; ++column) expected[row * width + column] = escape(column, row);
    bool right = true;
    for (int round = 0; round < count; ++round) {
        for (int half = 0; half < 2; ++half) {
            draw<<<dim3((width + 127) / 128, height / 2), 128, 0, stream[half]>>>(device, half * height / 2);
            CHECK(cudaGetLastError());
        }
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaMemcpy(found.data(), device, pixels * sizeof(int), cudaMemcpyDeviceToHost));
        right &= found == expected;
    }
    CHECK(cudaFree(device));
    return finish("mandelbrot", right, 1ll * pixels * count);
}
