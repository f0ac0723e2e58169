// Whether the first set or copy of its kind in a context waits for a kernel that runs:
//   first_use all            each kind in a process of its own, for the first time and warmed up
//   first_use KIND WARM      one of them; WARM is the kind that has been done before, or none
// A kernel spins for 0.3 s at most. Meanwhile the work is submitted to another stream, and then a kernel
// and a value to a third one. Prints how long the call took, when the work had ended, and when the third
// stream's had, in milliseconds. `print` is a kernel that prints, `local` one with 8 KB of local memory.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <cuda.h>
#include <cuda_runtime.h>

#include "beside_a_spin.cuh"

static double now() { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
static const char *kinds[] = {"set32", "set32_large", "set8", "set8_odd", "set16", "set2d", "device_small", "device_large", "device_odd", "to_device", "to_host", "copy2d", "value", "kernel", "map", "print", "local"};

__global__ void says(unsigned value) { std::printf("%u\n", value); }
__global__ void needs_local(unsigned *out, unsigned at) {
    volatile unsigned room[2048];
    room[at] = at;
    *out = room[at];
}

static unsigned *host;
static CUdeviceptr memory;

static void act(const std::string &kind, cudaStream_t s) {
    const size_t M = 1 << 20;
    if (kind == "set32") CHECK(cuMemsetD32Async(memory, 0, 2 * M / 4, s));
    else if (kind == "set32_large") CHECK(cuMemsetD32Async(memory, 0, 64 * M / 4, s));
    else if (kind == "set8") CHECK(cuMemsetD8Async(memory, 1, M, s));
    else if (kind == "set8_odd") CHECK(cuMemsetD8Async(memory + 3, 1, 1001, s));
    else if (kind == "set16") CHECK(cuMemsetD16Async(memory, 1, M / 2, s));
    else if (kind == "set2d") CHECK(cuMemsetD2D8Async(memory, 4096, 1, 1000, 100, s));
    else if (kind == "device_small") CHECK(cuMemcpyDtoDAsync(memory, memory + 8 * M, 1024, s));
    else if (kind == "device_large") CHECK(cuMemcpyDtoDAsync(memory, memory + 8 * M, 4 * M, s));
    else if (kind == "device_odd") CHECK(cuMemcpyDtoDAsync(memory + 3, memory + 8 * M + 1, 100001, s));
    else if (kind == "to_device") CHECK(cuMemcpyHtoDAsync(memory, host + 1024, M, s));
    else if (kind == "to_host") CHECK(cuMemcpyDtoHAsync(host + 1024, memory, M, s));
    else if (kind == "copy2d") CHECK(cudaMemcpy2DAsync((void *)memory, 4096, (void *)(memory + 8 * M), 2048, 1000, 100, cudaMemcpyDeviceToDevice, s));
    else if (kind == "value") CHECK(cuStreamWriteValue32(s, memory, 1, 0));
    else if (kind == "kernel") tiny<<<1, 1, 0, s>>>((unsigned *)memory);
    else if (kind == "print") says<<<1, 1, 0, s>>>(1);
    else if (kind == "local") needs_local<<<1, 1, 0, s>>>((unsigned *)memory, 3);
    else if (kind == "map") {
        CUmemAllocationProp p{};
        p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        p.location.id = 0;
        CUmemGenericAllocationHandle h;
        CUdeviceptr at;
        CHECK(cuMemCreate(&h, 2 * M, &p, 0));
        CHECK(cuMemAddressReserve(&at, 2 * M, 0, 0, 0));
        CHECK(cuMemMap(at, 2 * M, 0, h, 0));
        CUmemAccessDesc a{p.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CHECK(cuMemSetAccess(at, 2 * M, &a, 1));
        CHECK(cuMemUnmap(at, 2 * M));
    }
}

int main(int argc, char **argv) {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    if (argc < 2) return 2;
    if (std::string(argv[1]) == "all") {
        for (const char *kind : kinds)
            for (const char *warm : {"none", kind}) std::system((std::string(argv[0]) + " " + kind + " " + warm).c_str());
        for (const char *kind : kinds) std::system((std::string(argv[0]) + " " + kind + " all").c_str());
        return 0;
    }
    const std::string kind = argv[1], warm = argc > 2 ? argv[2] : "none";
    unsigned *flag;
    CHECK(cudaFree(nullptr));
    CHECK(cudaHostAlloc((void **)&host, 4 << 20, cudaHostAllocMapped));
    flag = host;
    CHECK(cuMemAlloc(&memory, 128 << 20));
    cudaStream_t first, second, third;
    for (cudaStream_t *s : {&first, &second, &third}) CHECK(cudaStreamCreateWithFlags(s, cudaStreamNonBlocking));
    if (warm == "all") { for (const char *each : kinds) if (kind != each) act(each, third); }
    else if (warm != "none") act(warm, third);
    CHECK(cudaStreamSynchronize(third));
    *(volatile unsigned *)flag = 0;
    spin<<<1, 1, 0, first>>>(flag);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<bool> over{false};
    double begun = now();
    std::thread guard([&] {
        while (!over && now() - begun < 300) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        *(volatile unsigned *)flag = 1;
    });
    act(kind, second);
    double called = now() - begun;
    volatile unsigned *word = host + 900;
    *word = 0;
    tiny<<<1, 1, 0, third>>>((unsigned *)memory + 4096);
    CHECK(cuStreamWriteValue32(third, (CUdeviceptr)word, 1, 0));
    while (!*word) {}
    double others = now() - begun;
    while (cudaStreamQuery(second) == cudaErrorNotReady) {}
    double ended = now() - begun;
    over = true;
    guard.join();
    CHECK(cudaDeviceSynchronize());
    std::printf("%-13s after %-13s call %7.2f ms, ended after %7.2f ms, others' after %7.2f ms%s\n", kind.c_str(), warm.c_str(), called, ended, others, ended > 250 || others > 250 ? "  WAITED" : "");
}
