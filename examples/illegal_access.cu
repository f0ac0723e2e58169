// Does some work rightly, then writes where nothing is, and expects to be told so.
#include "example.cuh"

__global__ void square(int *values, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = i * i;
}

__global__ void write_to(int *address) { *address = 1; }

int main() {
    const int n = 1 << 16;
    std::vector<int> found(n);
    int *device;
    CHECK(cudaMalloc(&device, n * sizeof(int)));
    for (int round = 0; round < 20; ++round) {
        square<<<n / 256, 256>>>(device, n);
        CHECK(cudaGetLastError());
    }
    CHECK(cudaMemcpy(found.data(), device, n * sizeof(int), cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; ++i) {
        if (found[i] != int(unsigned(i) * unsigned(i))) {
            std::puts("illegal_access: FAIL, its work before the mistake is wrong");
            return 1;
        }
    }
    write_to<<<1, 1>>>((int *)0xdead0000ull);
    cudaError_t end = cudaDeviceSynchronize();
    if (end != cudaErrorIllegalAddress) {
        std::printf("illegal_access: FAIL, expected an illegal address error, got: %s\n", cudaGetErrorString(end));
        return 1;
    }
    // The context stays broken, as on every GPU.
    if (cudaMalloc(&device, 4) != cudaErrorIllegalAddress) {
        std::puts("illegal_access: FAIL, the error does not stay");
        return 1;
    }
    std::puts("illegal_access: told of the illegal address, as it should be");
    return 0;
}
