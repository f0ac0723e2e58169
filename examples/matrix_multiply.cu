// Multiplies square matrices by tiles in shared memory. The entries are small integers, so every result is exact.
#include "example.cuh"
#include "matrix.cuh"

int main(int argc, char **argv) {
    const int n = 256, count = rounds(argc, argv, 2);
    const size_t bytes = n * n * sizeof(float);
    std::vector<float> a(n * n), b(n * n), c(n * n), expected(n * n);
    for (int i = 0; i < n * n; ++i) {
        a[i] = float(i * 7 % 13 - 6);
        b[i] = float(i * 5 % 11 - 5);
    }
    for (int row = 0; row < n; ++row)
        for (int k = 0; k < n; ++k)
            for (int column = 0; column < n; ++column) expected[row * n + column] += a[row * n + k] * b[k * n + column];
    float *da, *db, *dc;
    CHECK(cudaMalloc(&da, bytes));
    CHECK(cudaMalloc(&db, bytes));
    CHECK(cudaMalloc(&dc, bytes));
    CHECK(cudaMemcpy(da, a.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(db, b.data(), bytes, cudaMemcpyHostToDevice));
    bool right = true;
    for (int round = 0; round < count; ++round) {
        CHECK(cudaMemset(dc, 0xff, bytes));
        multiply<<<dim3(n / tile, n / tile), dim3(tile, tile)>>>(da, db, dc, n);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpy(c.data(), dc, bytes, cudaMemcpyDeviceToHost));
        right &= c == expected;
    }
    CHECK(cudaFree(da));
    CHECK(cudaFree(db));
    CHECK(cudaFree(dc));
    return finish("matrix_multiply", right, 1ll * n * n * count);
}
