// Goes wrong in the way that its argument names, says what the calls answer, and shows what goes on
// afterwards.
#include "driver.cuh"

#include <cstring>

extern "C" __global__ void honest(int *value) { atomicAdd(value, 1); }

// A multiplication of video: the software GPU has none.
extern "C" __global__ void video(float *out) {
    int product;
    asm volatile("vmad.s32.s32.s32 %0, %1, %2, %3;" : "=r"(product) : "r"(int(threadIdx.x)), "r"(3), "r"(4));
    out[threadIdx.x] = product;
}

// One thread of one block writes where nothing is.
extern "C" __global__ void saxpy(float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = i;
    if (blockIdx.x == 3 && threadIdx.x == 5) *(float *)0xdead0000ull = 1;
}

static void say(const char *what, cudaError_t result) { std::printf("%s: %s\n", what, cudaGetErrorName(result)); }

static bool counts(int *device, int expected) {
    int found = 0;
    honest<<<1, 1>>>(device);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&found, device, sizeof found, cudaMemcpyDeviceToHost));
    return found == expected;
}

// A kernel that the device does not run is refused by its launch; nothing else is wrong.
static int instruction(int *device) {
    float *out;
    CHECK(cudaMalloc(&out, 256 * sizeof(float)));
    bool right = counts(device, 1);
    for (int round = 0; round < 20; ++round) {
        video<<<1, 32>>>(out);
        say("launch", cudaGetLastError());
        say("wait", cudaDeviceSynchronize());
    }
    right &= counts(device, 2);

    // What is asked about it is answered.
    cudaFuncAttributes attributes;
    say("attributes", cudaFuncGetAttributes(&attributes, video));
    int blocks = 0;
    say("occupancy", cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, video, 32, 0));
    right &= blocks > 0 && attributes.maxThreadsPerBlock > 0;

    // A graph does not get it either, and works without it.
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    honest<<<1, 1, 0, stream>>>(device);
    CHECK(cudaGetLastError());
    video<<<1, 32, 0, stream>>>(out);
    say("capture", cudaGetLastError());
    CHECK(cudaStreamEndCapture(stream, &graph));
    cudaGraphNode_t node;
    void *arguments[] = {&out};
    cudaKernelNodeParams params = {};
    params.func = (void *)video;
    params.gridDim = dim3(1);
    params.blockDim = dim3(32);
    params.kernelParams = arguments;
    say("node", cudaGraphAddKernelNode(&node, graph, nullptr, 0, &params));
    cudaGetLastError();
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    right &= counts(device, 4);
    return finish("instruction", right, 1);
}

static int address() {
    float *out;
    CHECK(cudaMalloc(&out, 8 * 64 * sizeof(float)));
    saxpy<<<8, 64>>>(out, 8 * 64);
    say("launch", cudaGetLastError());
    say("wait", cudaDeviceSynchronize());
    say("again", cudaDeviceSynchronize());
    return 0;
}

// A launch that no device takes, and one that is right afterwards.
static int launch(int *device) {
    honest<<<1, 2048>>>(device);
    say("launch", cudaGetLastError());
    return finish("launch", counts(device, 1), 1);
}

// Asks after its fault only when it is told to.
static int late() {
    float *out;
    CHECK(cudaMalloc(&out, 8 * 64 * sizeof(float)));
    saxpy<<<8, 64>>>(out, 8 * 64);
    std::puts("faulted");
    std::fflush(stdout);
    std::getchar();
    say("wait", cudaDeviceSynchronize());
    return 0;
}

static int memory() {
    void *one, *two;
    say("first", cudaMalloc(&one, 200 << 20));
    say("second", cudaMalloc(&two, 300 << 20));
    say("third", cudaMalloc(&two, 400 << 20));
    say("free", cudaFree(one));
    return 0;
}

// PTX with a mistake in line 3, and a driver function that is not supported.
static int module() {
    CHECK(cudaFree(nullptr));
    auto load = driver<CUresult (*)(CUmodule *, const void *, unsigned, CUjit_option *, void **)>("cuModuleLoadDataEx");
    auto handle = driver<CUresult (*)(void *, CUdeviceptr, size_t, unsigned, unsigned long long)>("cuMemGetHandleForAddressRange");
    auto create = driver<CUresult (*)(CUmemoryPool *, const CUmemPoolProps *)>("cuMemPoolCreate");
    CUmodule loaded;
    std::printf("module: %s\n", name_of(load(&loaded, ".version 8.0\n.target sm_75\nfrobnicate;\n", 0, nullptr, nullptr)));
    int descriptor;
    std::printf("handle: %s\n", name_of(handle(&descriptor, 0, 0, 1, 0)));
    CUmemPoolProps props = {};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_HOST;
    CUmemoryPool pool;
    std::printf("pool: %s\n", name_of(create(&pool, &props)));
    return 0;
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "";
    if (!std::strcmp(what, "address")) return address();
    if (!std::strcmp(what, "late")) return late();
    if (!std::strcmp(what, "memory")) return memory();
    if (!std::strcmp(what, "module")) return module();
    int *device;
    cudaError_t result = cudaMalloc(&device, sizeof(int));
    if (result != cudaSuccess) {
        say("first call", result);
        return 3;
    }
    CHECK(cudaMemset(device, 0, sizeof(int)));
    return !std::strcmp(what, "launch") ? launch(device) : instruction(device);
}
