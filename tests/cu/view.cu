// Prints what a client sees of its device, then allocates the MiB it is told to, and with a second argument writes to all of them.
#include "../../examples/example.cuh"

int main(int argc, char **argv) {
    int count = 0, multiprocessors = 0, shared = 0;
    cudaError_t result = cudaGetDeviceCount(&count);
    if (result != cudaSuccess) {
        std::printf("count: %s\n", cudaGetErrorName(result));
        return 3;
    }
    cudaDeviceProp properties;
    size_t free = 0, total = 0;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    CHECK(cudaDeviceGetAttribute(&shared, cudaDevAttrMpsEnabled, 0));
    CHECK(cudaMemGetInfo(&free, &total));
    std::printf("name %s\nmultiprocessors %d\nmps %d\nfree %zu\ntotal %zu\n", properties.name, multiprocessors, shared, free >> 20, total >> 20);
    if (argc > 1) {
        void *block = nullptr;
        std::printf("alloc %s\n", cudaGetErrorName(cudaMalloc(&block, size_t(std::atoi(argv[1])) << 20)));
        if (argc > 2) std::printf("touch %s\n", cudaGetErrorName(cudaMemset(block, 1, size_t(std::atoi(argv[1])) << 20)));
    }
    std::puts("ready");
    std::fflush(stdout);
    while (std::getchar() != EOF) {
        std::printf("sync %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
        std::fflush(stdout);
    }
    return 0;
}
