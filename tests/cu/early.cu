// Launches by the calls of CUDA 3, with which PyCUDA makes them, and memory of a pool that has no
// bytes, which LMDeploy asks for.
#include "driver.cuh"

#define FUNCTION(name) static const auto name##_ = driver<decltype(&name)>(#name)

__global__ void weigh(const int *from, int *to, int count, float factor) {
    extern __shared__ int room[];
    const int at = (blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
    room[threadIdx.x] = at < count ? from[at] : 0;
    __syncthreads();
    if (at < count) to[at] = static_cast<int>(room[threadIdx.x] * factor) + blockDim.y;
}

static void say(const char *what, bool right) { std::printf("%s: %s\n", what, right ? "right" : "WRONG"); }

int main() {
    FUNCTION(cuFuncSetBlockShape);
    FUNCTION(cuFuncSetSharedSize);
    FUNCTION(cuParamSetSize);
    FUNCTION(cuParamSetv);
    FUNCTION(cuParamSeti);
    FUNCTION(cuParamSetf);
    FUNCTION(cuLaunch);
    FUNCTION(cuLaunchGrid);
    FUNCTION(cuLaunchGridAsync);
    FUNCTION(cuDeviceGetDefaultMemPool);
    FUNCTION(cuMemAllocFromPoolAsync);
    FUNCTION(cuMemFreeAsync);
    const int n = 1000;
    int *from, *to;
    CHECK(cudaMallocManaged(&from, n * sizeof(int)));
    CHECK(cudaMallocManaged(&to, n * sizeof(int)));
    for (int i = 0; i < n; ++i) from[i] = i;
    cudaFunction_t function;
    CHECK(cudaGetFuncBySymbol(&function, reinterpret_cast<const void *>(weigh)));
    CUfunction kernel = reinterpret_cast<CUfunction>(function);
    say("no block yet", cuLaunch_(kernel) == CUDA_ERROR_INVALID_VALUE);
    say("no threads", cuFuncSetBlockShape_(kernel, 0, 1, 1) == CUDA_ERROR_INVALID_VALUE && cuFuncSetBlockShape_(kernel, 2000, 1, 1) == CUDA_ERROR_INVALID_VALUE &&
                           cuFuncSetBlockShape_(kernel, 1 << 22, 1 << 22, 1 << 22) == CUDA_ERROR_INVALID_VALUE);
    CHECK_DRIVER(cuFuncSetBlockShape_(kernel, 128, 1, 1));
    CHECK_DRIVER(cuFuncSetSharedSize_(kernel, 128 * sizeof(int)));
    CHECK_DRIVER(cuParamSetv_(kernel, 0, &from, sizeof from));
    CHECK_DRIVER(cuParamSetv_(kernel, 8, &to, sizeof to));
    CHECK_DRIVER(cuParamSeti_(kernel, 16, n));
    CHECK_DRIVER(cuParamSetf_(kernel, 20, 2.5f));
    CHECK_DRIVER(cuParamSetSize_(kernel, 24));
    say("too far", cuParamSeti_(kernel, 1 << 20, 1) == CUDA_ERROR_INVALID_VALUE && cuParamSeti_(kernel, -4, 1) == CUDA_ERROR_INVALID_VALUE);
    CHECK_DRIVER(cuLaunchGrid_(kernel, 4, 2));
    CHECK(cudaDeviceSynchronize());
    bool right = true;
    for (int i = 0; i < n; ++i) right &= to[i] == static_cast<int>(i * 2.5f) + 1;
    say("a grid", right);
    // What was set stays set.
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_DRIVER(cuParamSetf_(kernel, 20, 3.0f));
    CHECK_DRIVER(cuLaunchGridAsync_(kernel, 8, 1, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < n; ++i) right &= to[i] == 3 * i + 1;
    CHECK_DRIVER(cuParamSetf_(kernel, 20, 1.0f));
    CHECK_DRIVER(cuLaunch_(kernel));
    CHECK(cudaDeviceSynchronize());
    say("again", right && to[127] == 128 && to[128] == 3 * 128 + 1);
    say("a grid of nothing", cuLaunchGrid_(kernel, 0, 1) == CUDA_ERROR_INVALID_VALUE);
    CUmemoryPool pool;
    CUdeviceptr address = 1;
    CHECK_DRIVER(cuDeviceGetDefaultMemPool_(&pool, 0));
    const CUresult empty = cuMemAllocFromPoolAsync_(&address, 0, pool, stream);
    std::printf("no bytes: %d %llu %d\n", empty, address, cuMemFreeAsync_(address, stream));
    return 0;
}
