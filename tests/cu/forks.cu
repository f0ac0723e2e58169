// A program that uses CUDA, forks, and uses it again on both sides: the parent goes on, and every call of the child is refused.
// forks before: it only asks what needs no device, forks, and both use CUDA then.
#include "../../examples/example.cuh"

#include <cstring>
#include <cuda.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

__global__ void increment(int *value) { ++*value; }

template <class Function> static Function *find(const char *name) {
    static void *library = dlopen("libcuda.so.1", RTLD_NOW);
    return reinterpret_cast<Function *>(dlsym(library, name));
}

/// What a program may ask before it begins with cuInit; whatever needs a device is refused.
static bool asks_early() {
    int version = 0, count = 0;
    const char *name = nullptr;
    void *function = nullptr;
    CUcontext current = nullptr;
    CUdriverProcAddressQueryResult how;
    if (find<CUresult(int *)>("cuDriverGetVersion")(&version) != CUDA_SUCCESS || version < 12000) return false;
    if (find<CUresult(CUresult, const char **)>("cuGetErrorName")(CUDA_ERROR_NO_DEVICE, &name) != CUDA_SUCCESS || std::strcmp(name, "CUDA_ERROR_NO_DEVICE")) return false;
    if (find<decltype(cuGetProcAddress)>("cuGetProcAddress_v2")("cuInit", &function, 12000, 0, &how) != CUDA_SUCCESS || !function) return false;
    return find<CUresult(int *)>("cuDeviceGetCount")(&count) == CUDA_ERROR_NOT_INITIALIZED && find<CUresult(CUcontext *)>("cuCtxGetCurrent")(&current) == CUDA_ERROR_NOT_INITIALIZED;
}

static int run_kernel() {
    int *device, found = 0;
    CHECK(cudaMalloc(&device, sizeof(int)));
    CHECK(cudaMemset(device, 0, sizeof(int)));
    increment<<<1, 1>>>(device);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&found, device, sizeof found, cudaMemcpyDeviceToHost));
    return found;
}

static int forks_before() {
    const bool asked = asks_early();
    pid_t child = fork();
    if (child == 0) {
        const bool again = asks_early();
        const int found = run_kernel();
        std::printf("child: %s, %d\n", again ? "asked" : "refused", found);
        std::fflush(stdout);
        _exit(again && found == 1 ? 0 : 1);
    }
    int status = -1;
    if (waitpid(child, &status, 0) != child || status != 0) {
        std::printf("FAIL: the child ended with %d\n", status);
        return 1;
    }
    return finish("forks before", asked && run_kernel() == 1, 1);
}

int main(int count, char **words) {
    if (count > 1 && !std::strcmp(words[1], "before")) return forks_before();
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
