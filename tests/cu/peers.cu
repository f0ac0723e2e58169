// Two devices that reach each other's memory: enabling and its errors, kernels that read and write across, mappings, pools, and copies in the order
// of their streams. The first argument says which part; "hold" works once for each line it reads.
#include "../../examples/example.cuh"

#include <cuda.h>

#include <atomic>
#include <cstring>

// The driver's functions through the runtime: the program is linked with that alone.
template <typename Function> static Function *driver(const char *name) {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result;
    CHECK(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result));
    return reinterpret_cast<Function *>(found);
}
#define DRIVER(name) driver<decltype(name)>(#name)

static bool expect(const char *what, int found, int wanted) {
    if (found != wanted) std::printf("FAIL: %s is %d, not %d\n", what, found, wanted);
    return found == wanted;
}

__global__ void fill(int *values, int n, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = value + i;
}

__global__ void add(int *to, const int *from, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] += from[i];
}

static const int N = 4096;

static int *filled(int device, int value) {
    int *memory;
    CHECK(cudaSetDevice(device));
    CHECK(cudaMalloc(&memory, N * sizeof(int)));
    fill<<<N / 128, 128>>>(memory, N, value);
    CHECK(cudaDeviceSynchronize());
    return memory;
}

static bool holds(const int *memory, int value, int slope) {
    std::vector<int> found(N);
    CHECK(cudaMemcpy(found.data(), memory, N * sizeof(int), cudaMemcpyDefault));
    for (int i = 0; i < N; ++i) {
        if (found[i] != value + slope * i) {
            std::printf("FAIL: element %d is %d, not %d\n", i, found[i], value + slope * i);
            return false;
        }
    }
    return true;
}

// On device 0: own += other's, and the other's += own.
static bool across(int *own, int *other) {
    CHECK(cudaSetDevice(0));
    add<<<N / 128, 128>>>(own, other, N);
    CHECK(cudaDeviceSynchronize());
    bool right = holds(own, 300, 2);
    add<<<N / 128, 128>>>(other, own, N);
    CHECK(cudaDeviceSynchronize());
    return right & holds(other, 500, 3);
}

static bool enabling() {
    int can = -1, self = -1, supported = -1, atomics = -1;
    CHECK(cudaDeviceCanAccessPeer(&can, 0, 1));
    CHECK(cudaDeviceCanAccessPeer(&self, 0, 0));
    CHECK(cudaDeviceGetP2PAttribute(&supported, cudaDevP2PAttrAccessSupported, 0, 1));
    CHECK(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, 0, 1));
    bool right = expect("can access", can, 1) & expect("can access itself", self, 0) & expect("supported", supported, 1);
    int *own = filled(0, 100), *other = filled(1, 200);
    CHECK(cudaSetDevice(0));
    right &= expect("disabling first", cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
    CHECK(cudaDeviceEnablePeerAccess(1, 0));
    right &= expect("enabling again", cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
    cudaGetLastError();
    right &= across(own, other);
    // What is allocated afterwards, and more than an extent has.
    int *late = filled(1, 200), *fresh = filled(0, 100), *large;
    CHECK(cudaSetDevice(1));
    CHECK(cudaMalloc(&large, 100 << 20));
    CHECK(cudaSetDevice(0));
    right &= across(fresh, late);
    CHECK(cudaMemset(large + (24 << 20), 0, sizeof(int)));
    add<<<1, 1>>>(large + (24 << 20), fresh, 1);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(late));
    CHECK(cudaFree(large));
    CHECK(cudaDeviceDisablePeerAccess(1));
    right &= expect("disabling again", cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
    cudaGetLastError();
    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, other));
    return right & expect("the pointer's device", attributes.device, 1);
}

static bool fault() {
    int *own = filled(0, 100), *other = filled(1, 200);
    CHECK(cudaSetDevice(0));
    add<<<N / 128, 128>>>(own, other, N);
    std::printf("fault %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    return true;
}

static bool mapping() {
    int *own = filled(0, 100), *whole = filled(1, 200);
    const size_t bytes = 2 << 20;
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = 1;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    bool right = expect("create", DRIVER(cuMemCreate)(&handle, bytes, &properties, 0), 0);
    right &= expect("reserve", DRIVER(cuMemAddressReserve)(&address, bytes, 0, 0, 0), 0);
    right &= expect("map", DRIVER(cuMemMap)(address, bytes, 0, handle, 0), 0);
    CUmemAccessDesc access[2] = {};
    for (int device = 0; device < 2; ++device) {
        access[device].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access[device].location.id = device;
        access[device].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    right &= expect("access", DRIVER(cuMemSetAccess)(address, bytes, access, 2), 0);
    unsigned long long flags = 0;
    right &= expect("get access", DRIVER(cuMemGetAccess)(&flags, &access[0].location, address), 0) & expect("flags", (int)flags, 3);
    int *mapped = reinterpret_cast<int *>(address);
    CHECK(cudaSetDevice(1));
    CHECK(cudaMemcpy(mapped, whole, N * sizeof(int), cudaMemcpyDefault));
    CHECK(cudaDeviceSynchronize());
    right &= across(own, mapped);
    access[0].flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    right &= expect("no access", DRIVER(cuMemSetAccess)(address, bytes, access, 1), 0);
    right &= expect("unmap", DRIVER(cuMemUnmap)(address, bytes), 0) & expect("release", DRIVER(cuMemRelease)(handle), 0);
    return right & expect("free", DRIVER(cuMemAddressFree)(address, bytes), 0);
}

static bool pool() {
    int *own = filled(0, 100), *memory;
    CHECK(cudaSetDevice(1));
    cudaMemPool_t pool;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 1));
    CHECK(cudaMallocAsync(reinterpret_cast<void **>(&memory), N * sizeof(int), 0));
    fill<<<N / 128, 128>>>(memory, N, 200);
    CHECK(cudaDeviceSynchronize());
    cudaMemAccessDesc access = {};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = 0;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    cudaMemAccessFlags flags = cudaMemAccessFlagsProtRead;
    CHECK(cudaMemPoolGetAccess(&flags, pool, &access.location));
    bool right = expect("before", flags, cudaMemAccessFlagsProtNone);
    CHECK(cudaMemPoolSetAccess(pool, &access, 1));
    CHECK(cudaMemPoolGetAccess(&flags, pool, &access.location));
    return right & expect("after", flags, cudaMemAccessFlagsProtReadWrite) & across(own, memory);
}

static std::atomic<bool> released;

static void CUDART_CB hold_stream(void *) {
    while (!released) {
    }
}

// A copy to the other device and back in one stream that is held back: the calls return all the same, and the copies come in their order.
static bool ordered(bool enabled) {
    int *own = filled(0, 100), *other = filled(1, 200);
    CHECK(cudaSetDevice(0));
    if (enabled) CHECK(cudaDeviceEnablePeerAccess(1, 0));
    cudaStream_t stream, reader;
    cudaEvent_t copied;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming));
    released = false;
    CHECK(cudaLaunchHostFunc(stream, hold_stream, nullptr));
    fill<<<N / 128, 128, 0, stream>>>(own, N, 1000);
    CHECK(cudaMemcpyPeerAsync(other, 1, own, 0, N * sizeof(int), stream));
    fill<<<N / 128, 128, 0, stream>>>(own, N, 2000);
    CHECK(cudaEventRecord(copied, stream));
    CHECK(cudaSetDevice(1));
    CHECK(cudaStreamCreate(&reader));
    CHECK(cudaStreamWaitEvent(reader, copied, 0));
    add<<<N / 128, 128, 0, reader>>>(other, other, N);
    CHECK(cudaSetDevice(0));
    bool right = expect("the stream", cudaStreamQuery(stream), cudaErrorNotReady);
    cudaGetLastError();
    released = true;
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaSetDevice(1));
    CHECK(cudaStreamSynchronize(reader));
    right &= holds(other, 2000, 2) & holds(own, 2000, 1);
    // Without a stream: after everything that either device was given.
    fill<<<N / 128, 128, 0, reader>>>(other, N, 7);
    CHECK(cudaMemcpyPeer(own, 0, other, 1, N * sizeof(int)));
    return right & holds(own, 7, 1);
}

static bool hold() {
    int *own = filled(0, 0), *other = filled(1, 1);
    CHECK(cudaSetDevice(0));
    CHECK(cudaMemset(own, 0, N * sizeof(int)));
    CHECK(cudaDeviceEnablePeerAccess(1, 0));
    char line[64] = "";
    for (int round = 1; round == 1 || std::fgets(line, sizeof line, stdin); ++round) {
        int *fresh = filled(1, 1);
        CHECK(cudaSetDevice(0));
        add<<<N / 128, 128>>>(own, other, N);
        add<<<N / 128, 128>>>(own, fresh, N);
        CHECK(cudaDeviceSynchronize());
        if (!holds(own, 2 * round, 2 * round)) return false;
        std::printf("round %d right\n", round);
        std::fflush(stdout);
    }
    return true;
}

int main(int argc, char **argv) {
    const char *part = argc > 1 ? argv[1] : "enabling";
    bool right = std::strcmp(part, "enabling") == 0  ? enabling()
                 : std::strcmp(part, "fault") == 0   ? fault()
                 : std::strcmp(part, "mapping") == 0 ? mapping()
                 : std::strcmp(part, "pool") == 0    ? pool()
                 : std::strcmp(part, "ordered") == 0 ? ordered(true)
                 : std::strcmp(part, "staged") == 0  ? ordered(false)
                                                     : hold();
    std::printf("peers %s: %s\n", part, right ? "PASS" : "FAIL");
    return right ? 0 : 1;
}
