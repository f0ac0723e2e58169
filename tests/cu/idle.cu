// Does a little, then waits: prints how long it took from its first CUDA call until its first kernel's results were there, then "ready", and for each line it reads runs one more kernel and checks it. Ends with its input.
#include "../../examples/example.cuh"

#include <chrono>

__global__ void fill(int *values, int n, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = value + i;
}

int main() {
    const int n = 4096;
    int *device, round = 0;
    std::vector<int> found(n);
    const auto begun = std::chrono::steady_clock::now();
    CHECK(cudaMalloc(&device, n * sizeof(int)));
    do {
        fill<<<n / 128, 128>>>(device, n, round);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpy(found.data(), device, n * sizeof(int), cudaMemcpyDeviceToHost));
        const auto took = std::chrono::steady_clock::now() - begun;
        for (int i = 0; i < n; ++i) {
            if (found[i] != round + i) {
                std::printf("FAIL: round %d, element %d is %d\n", round, i, found[i]);
                return 1;
            }
        }
        if (round == 0) std::printf("first kernel after %lld us\n", (long long)std::chrono::duration_cast<std::chrono::microseconds>(took).count());
        std::printf(round == 0 ? "ready\n" : "round %d right\n", round);
        std::fflush(stdout);
        ++round;
    } while (std::getchar() != EOF);
    return 0;
}
