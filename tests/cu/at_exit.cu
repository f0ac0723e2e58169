// A program that uses its device while it ends: in a function of atexit, and in the destructor of
// an object that is older than everything of CUDA. Its context is still current there.
// at_exit [thread]
#include <cstdlib>
#include <cstring>
#include <thread>

#include "driver.cuh"

__global__ void add(int *values, int more) { values[threadIdx.x] += more; }

/// Not at once, so that what does not wait for it comes before it.
__global__ void wait_and_add(int *values, int more) {
    for (long long until = clock64() + 20000; clock64() < until;) {
    }
    atomicAdd(values + threadIdx.x, more);
}

static void expect(bool holds, const char *what) {
    if (!holds) {
        std::printf("FAIL: %s\n", what);
        std::fflush(stdout);
        std::_Exit(1);
    }
}

static CUcontext used;

/// Driver calls alone: the runtime may be gone.
struct Last {
    CUresult (*current)(CUcontext *) = nullptr;
    CUresult (*device)(CUdevice *) = nullptr;
    CUresult (*allocate)(CUdeviceptr *, size_t) = nullptr;
    CUresult (*set)(CUdeviceptr, unsigned char, size_t) = nullptr;
    CUresult (*read)(void *, CUdeviceptr, size_t) = nullptr;
    CUresult (*free)(CUdeviceptr) = nullptr;

    ~Last() {
        CUcontext now = nullptr;
        CUdevice ordinal = -1;
        CUdeviceptr bytes = 0;
        unsigned char seen[64] = {};
        expect(current(&now) == CUDA_SUCCESS && now == used, "the context is current when objects are destroyed");
        expect(device(&ordinal) == CUDA_SUCCESS && ordinal == 0, "it has its device");
        expect(allocate(&bytes, sizeof seen) == CUDA_SUCCESS && set(bytes, 7, sizeof seen) == CUDA_SUCCESS, "memory is allocated and set");
        expect(read(seen, bytes, sizeof seen) == CUDA_SUCCESS && seen[0] == 7 && seen[63] == 7, "it is read");
        expect(free(bytes) == CUDA_SUCCESS, "it is freed");
        std::printf("PASS\n");
        std::fflush(stdout);
    }
} last;

static void at_exit() {
    CUcontext now = nullptr;
    expect(last.current(&now) == CUDA_SUCCESS && now == used, "the context is current in a function of atexit");
    int *values, seen[32] = {};
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&values, sizeof seen));
    CHECK(cudaMemset(values, 0, sizeof seen));
    add<<<1, 32>>>(values, 5);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(seen, values, sizeof seen, cudaMemcpyDefault));
    expect(seen[0] == 5 && seen[31] == 5, "a kernel runs in a function of atexit");
    // In the thread's default stream, where each waits for the one before.
    for (int i = 0; i < 50; i++) {
        CHECK(cudaMemsetAsync(values, 0, sizeof seen, cudaStreamPerThread));
        wait_and_add<<<1, 32, 0, cudaStreamPerThread>>>(values, i);
        CHECK(cudaMemcpyAsync(seen, values, sizeof seen, cudaMemcpyDefault, cudaStreamPerThread));
        CHECK(cudaStreamSynchronize(cudaStreamPerThread));
        expect(seen[0] == i && seen[31] == i, "work of the thread's default stream keeps its order");
    }
    CHECK(cudaFree(values));
    std::printf("a kernel ran at the end\n");
}

/// The program may end on another thread: "thread".
static void work() {
    CHECK(cudaFree(nullptr));
    CHECK(cudaStreamSynchronize(cudaStreamPerThread));
    last.current = driver<CUresult (*)(CUcontext *)>("cuCtxGetCurrent");
    last.device = driver<CUresult (*)(CUdevice *)>("cuCtxGetDevice");
    last.allocate = driver<CUresult (*)(CUdeviceptr *, size_t)>("cuMemAlloc");
    last.set = driver<CUresult (*)(CUdeviceptr, unsigned char, size_t)>("cuMemsetD8");
    last.read = driver<CUresult (*)(void *, CUdeviceptr, size_t)>("cuMemcpyDtoH");
    last.free = driver<CUresult (*)(CUdeviceptr)>("cuMemFree");
    CHECK_DRIVER(last.current(&used));
    expect(used != nullptr, "a context is current");
    std::atexit(at_exit);
    std::exit(0);
}

int main(int count, char **) {
    if (count > 1) std::thread(work).join();
    work();
}
