// A program that uses CUDA, forks, and uses it again on both sides: the parent goes on, the child is a stranger.
#include "../../examples/example.cuh"

#include <sys/wait.h>
#include <unistd.h>

__global__ void increment(int *value) { ++*value; }

int main() {
    int *device, found = 0;
    CHECK(cudaMalloc(&device, sizeof(int)));
    CHECK(cudaMemset(device, 0, sizeof(int)));
    increment<<<1, 1>>>(device);
    CHECK(cudaDeviceSynchronize());
    std::fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        // Must fail, and must neither hang nor touch the parent's work.
        cudaError_t launch = (increment<<<1, 1>>>(device), cudaGetLastError());
        cudaError_t copy = cudaMemcpy(&found, device, sizeof found, cudaMemcpyDeviceToHost);
        std::printf("child: %s, %s\n", cudaGetErrorName(launch), cudaGetErrorName(copy));
        std::fflush(stdout);
        _exit(launch != cudaSuccess && copy != cudaSuccess ? 0 : 1);
    }
    int status = -1;
    if (waitpid(child, &status, 0) != child || status != 0) {
        std::printf("FAIL: the child ended with %d\n", status);
        return 1;
    }
    increment<<<1, 1>>>(device);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&found, device, sizeof found, cudaMemcpyDeviceToHost));
    return finish("forks", found == 2, 1);
}
