// Memory of the host that kernels use at addresses of their own: physical memory of the host,
// mapped into reserved addresses, and the program's own memory, registered. For each line that it
// reads, it does a phase; an executor may be replaced between two.
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <utility>

#include "driver.cuh"

static constexpr size_t PART = 4 << 20, PARTS = 2, RESERVED = 16 << 20, COUNT = PART * PARTS / sizeof(int), OWN = 3000000;

__global__ void add(int *values, int count, int more) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) values[i] += more;
}

static void expect(bool holds, const char *what) {
    if (!holds) {
        std::printf("FAIL: %s\n", what);
        std::exit(1);
    }
}

static auto create = driver<CUresult (*)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long)>("cuMemCreate");
static auto release = driver<CUresult (*)(CUmemGenericAllocationHandle)>("cuMemRelease");
static auto map = driver<CUresult (*)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long)>("cuMemMap");
static auto unmap = driver<CUresult (*)(CUdeviceptr, size_t)>("cuMemUnmap");
static auto set_access = driver<CUresult (*)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t)>("cuMemSetAccess");
static auto get_access = driver<CUresult (*)(unsigned long long *, const CUmemLocation *, CUdeviceptr)>("cuMemGetAccess");
static auto reserve = driver<CUresult (*)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)>("cuMemAddressReserve");
static auto free_addresses = driver<CUresult (*)(CUdeviceptr, size_t)>("cuMemAddressFree");

static CUmemAllocationProp of_host() {
    int node = 0;
    auto attribute = driver<CUresult (*)(int *, CUdevice_attribute, CUdevice)>("cuDeviceGetAttribute");
    CHECK_DRIVER(attribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0));
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, {node}};
    return properties;
}

static void give_access(CUdeviceptr at, size_t bytes) {
    CUmemAccessDesc both[2] = {{of_host().location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}, {{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    CHECK_DRIVER(set_access(at, bytes, both, 2));
}

/// The host writes, a kernel adds, a copy goes to the card and back.
static void use(int *values, int *seen_by_kernels, int count, int phase) {
    for (int i = 0; i < count; i++) values[i] = i ^ phase;
    add<<<64, 256>>>(seen_by_kernels, count, phase);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    bool right = true;
    for (int i = 0; i < count; i++) right &= values[i] == (i ^ phase) + phase;
    expect(right, "the host sees what a kernel has added");
    int *card;
    CHECK(cudaMalloc(&card, count * sizeof(int)));
    CHECK(cudaMemcpy(card, values, count * sizeof(int), cudaMemcpyDefault));
    add<<<64, 256>>>(card, count, 1);
    std::memset(values, 0, count * sizeof(int));
    CHECK(cudaMemcpy(values, card, count * sizeof(int), cudaMemcpyDefault));
    for (int i = 0; i < count; i++) right &= values[i] == (i ^ phase) + phase + 1;
    expect(right, "copies to the card and back");
    // In the order of the stream, behind a kernel that the host does not wait for.
    add<<<64, 256>>>(seen_by_kernels, count, 7);
    CHECK(cudaMemcpyAsync(card, seen_by_kernels, count * sizeof(int), cudaMemcpyDefault));
    CHECK(cudaMemsetAsync(seen_by_kernels, 0x11, count * sizeof(int)));
    add<<<64, 256>>>(card, count, 1);
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < count; i++) right &= values[i] == 0x11111111;
    expect(right, "a set of all of it");
    CHECK(cudaMemcpy(seen_by_kernels, card, count * sizeof(int), cudaMemcpyDefault));
    for (int i = 0; i < count; i++) right &= values[i] == (i ^ phase) + phase + 1 + 7 + 1;
    expect(right, "copies in the order of a stream");
    CHECK(cudaFree(card));
}

/// Many small reservations, each for memory of the card, by a program that has asked for memory of
/// the host, too.
static void many_reservations() {
    static constexpr size_t BYTES = 2 << 20, MANY = 300;
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle part;
    CHECK_DRIVER(create(&part, BYTES, &properties, 0));
    CUdeviceptr ranges[MANY];
    for (auto &range : ranges) CHECK_DRIVER(reserve(&range, BYTES, 0, 0, 0));
    for (size_t i = 0; i < MANY; i += 23) {
        CHECK_DRIVER(map(ranges[i], BYTES, 0, part, 0));
        CHECK_DRIVER(set_access(ranges[i], BYTES, &access, 1));
        int *values = reinterpret_cast<int *>(ranges[i]), last = 0, expected = static_cast<int>(i);
        CHECK(cudaMemset(values, 0, BYTES));
        add<<<64, 256>>>(values, BYTES / sizeof(int), expected);
        CHECK(cudaMemcpy(&last, values + BYTES / sizeof(int) - 1, sizeof last, cudaMemcpyDefault));
        expect(last == expected, "memory of the card in one of many reservations");
        CHECK_DRIVER(unmap(ranges[i], BYTES));
    }
    for (auto range : ranges) CHECK_DRIVER(free_addresses(range, BYTES));
    CHECK_DRIVER(release(part));
}

int main() {
    CHECK(cudaFree(nullptr));
    auto properties = of_host();
    size_t granularity = 0;
    auto ask = driver<CUresult (*)(size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags)>("cuMemGetAllocationGranularity");
    CHECK_DRIVER(ask(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    expect(granularity > 0 && PART % granularity == 0, "the granularity divides 4 MiB");
    CUmemGenericAllocationHandle parts[PARTS];
    CUdeviceptr reserved;
    CHECK_DRIVER(reserve(&reserved, RESERVED, 0, 0, 0));
    for (size_t i = 0; i < PARTS; i++) {
        CHECK_DRIVER(create(&parts[i], PART, &properties, 0));
        CHECK_DRIVER(map(reserved + i * PART, PART, 0, parts[i], 0));
    }
    give_access(reserved, PARTS * PART);
    int *own = static_cast<int *>(std::aligned_alloc(4096, (OWN * sizeof(int) / 4096 + 1) * 4096)), *own_on_card;
    CHECK(cudaHostRegister(own, OWN * sizeof(int), cudaHostRegisterMapped));
    CHECK(cudaHostGetDevicePointer(&own_on_card, own, 0));
    unsigned flags = 0;
    CHECK(cudaHostGetFlags(&flags, own));
    expect(flags & cudaHostRegisterMapped, "it is mapped, and that is told");
    std::printf("ready\n");
    std::fflush(stdout);

    std::string line;
    CUdeviceptr at = reserved;
    for (int phase = 1; std::getline(std::cin, line); phase++) {
        use(reinterpret_cast<int *>(at), reinterpret_cast<int *>(at), COUNT, phase);
        use(own, own_on_card, OWN, phase);
        // The same memory at other addresses: what is in it stays.
        int first = *reinterpret_cast<int *>(at);
        CHECK_DRIVER(unmap(at, PARTS * PART));
        at = reserved + (phase % 2) * PARTS * PART;
        for (size_t i = 0; i < PARTS; i++) CHECK_DRIVER(map(at + (PARTS - 1 - i) * PART, PART, 0, parts[i], 0));
        std::swap(parts[0], parts[1]);
        give_access(at, PARTS * PART);
        expect(reinterpret_cast<int *>(at)[COUNT / 2] == first, "what is in memory stays where it is mapped again");
        std::printf("phase %d right\n", phase);
        std::fflush(stdout);
    }

    // What its parts say, and what is not to be had.
    unsigned long long access = 0;
    CHECK_DRIVER(get_access(&access, &properties.location, at));
    expect(access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "the host has access");
    CUmemAllocationProp told = {};
    auto ask_properties = driver<CUresult (*)(CUmemAllocationProp *, CUmemGenericAllocationHandle)>("cuMemGetAllocationPropertiesFromHandle");
    CHECK_DRIVER(ask_properties(&told, parts[0]));
    expect(told.location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA, "the memory says where it is");
    CHECK_DRIVER(unmap(at, PARTS * PART));
    for (auto part : parts) CHECK_DRIVER(release(part));
    // More in all than a program can have at once.
    for (int round = 0; round < 1500; round++) {
        CUmemGenericAllocationHandle part;
        CHECK_DRIVER(create(&part, RESERVED, &properties, 0));
        if (round % 100 == 0) {
            CHECK_DRIVER(map(reserved, RESERVED, 0, part, 0));
            give_access(reserved, RESERVED);
            reinterpret_cast<int *>(reserved)[round] = round;
            CHECK_DRIVER(unmap(reserved, RESERVED));
        }
        CHECK_DRIVER(release(part));
    }
    CHECK_DRIVER(free_addresses(reserved, RESERVED));
    CHECK(cudaHostUnregister(own));
    many_reservations();
    std::printf("PASS\n");
}
