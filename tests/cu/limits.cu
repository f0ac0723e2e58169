// A memory limit, met with every way of allocating.
//   limits exact MIB    each way: all of the limit, then one piece more, then again after freeing
//   limits race MIB N   N rounds of random pieces in random ways up to the limit: never above it, never refused below it
#include "driver.cuh"

#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>

// What a way of allocating gives: the result and the pointer, and how it is given back. Sizes in bytes.
struct Way {
    const char *name;
    std::function<cudaError_t(void **, size_t)> take;
    std::function<cudaError_t(void *)> give;
    // Sizes are multiples of this.
    size_t grain;
};

static cudaError_t error_of(CUresult result) { return static_cast<cudaError_t>(result); }

static std::vector<Way> ways() {
    static auto reserve = driver<CUresult (*)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)>("cuMemAddressReserve", 10020);
    static auto release_range = driver<CUresult (*)(CUdeviceptr, size_t)>("cuMemAddressFree", 10020);
    static auto create = driver<CUresult (*)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long)>("cuMemCreate", 10020);
    static auto release = driver<CUresult (*)(CUmemGenericAllocationHandle)>("cuMemRelease", 10020);
    static auto map = driver<CUresult (*)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long)>("cuMemMap", 10020);
    static auto unmap = driver<CUresult (*)(CUdeviceptr, size_t)>("cuMemUnmap", 10020);
    static auto access = driver<CUresult (*)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t)>("cuMemSetAccess", 10020);
    auto free = [](void *block) { return cudaFree(block); };
    return {
        {"plain", [](void **block, size_t bytes) { return cudaMalloc(block, bytes); }, free, 1 << 20},
        {"pitched",
         [](void **block, size_t bytes) {
             size_t pitch = 0;
             // Rows of 512 bytes are pitched to 512.
             return cudaMallocPitch(block, &pitch, 512, bytes / 512);
         },
         free, 1 << 20},
        {"pool",
         [](void **block, size_t bytes) {
             cudaError_t result = cudaMallocAsync(block, bytes, cudaStreamPerThread);
             return result;
         },
         [](void *block) {
             cudaError_t result = cudaFreeAsync(block, cudaStreamPerThread);
             return result != cudaSuccess ? result : cudaStreamSynchronize(cudaStreamPerThread);
         },
         1 << 20},
        {"managed", [](void **block, size_t bytes) { return cudaMallocManaged(block, bytes); }, free, 1 << 20},
        {"vmm",
         [](void **block, size_t bytes) {
             CUmemAllocationProp properties;
             std::memset(&properties, 0, sizeof properties);
             properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
             properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
             CUmemGenericAllocationHandle handle = 0;
             CUdeviceptr address = 0;
             if (CUresult result = create(&handle, bytes, &properties, 0)) return error_of(result);
             CUmemAccessDesc both = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
             CUresult result = reserve(&address, bytes, 0, 0, 0);
             if (!result) result = map(address, bytes, 0, handle, 0);
             if (!result) result = access(address, bytes, &both, 1);
             // The mapping keeps the memory.
             release(handle);
             *block = reinterpret_cast<void *>(uintptr_t(address));
             return error_of(result);
         },
         nullptr, 2 << 20},
        {"graph",
         [](void **block, size_t bytes) {
             cudaGraph_t graph;
             cudaGraphNode_t node;
             cudaMemAllocNodeParams params;
             std::memset(&params, 0, sizeof params);
             params.poolProps.allocType = cudaMemAllocationTypePinned;
             params.poolProps.location.type = cudaMemLocationTypeDevice;
             params.bytesize = bytes;
             cudaGraphExec_t exec;
             cudaError_t result = cudaGraphCreate(&graph, 0);
             if (!result) result = cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &params);
             if (!result) result = cudaGraphInstantiate(&exec, graph, 0);
             if (!result) result = cudaGraphLaunch(exec, cudaStreamPerThread);
             if (!result) result = cudaStreamSynchronize(cudaStreamPerThread);
             *block = params.dptr;
             return result;
         },
         free, 2 << 20},
    };
}

static cudaError_t give_back(const Way &way, void *block, size_t bytes) {
    if (way.give) return way.give(block);
    auto address = CUdeviceptr(reinterpret_cast<uintptr_t>(block));
    static auto release_range = driver<CUresult (*)(CUdeviceptr, size_t)>("cuMemAddressFree", 10020);
    static auto unmap = driver<CUresult (*)(CUdeviceptr, size_t)>("cuMemUnmap", 10020);
    CUresult result = unmap(address, bytes);
    return error_of(result ? result : release_range(address, bytes));
}

static size_t free_now() {
    size_t free = 0, total = 0;
    CHECK(cudaMemGetInfo(&free, &total));
    return free;
}

static int exact(size_t limit) {
    std::printf("start %zu\n", free_now() >> 20);
    for (const Way &way : ways()) {
        for (int turn = 0; turn < 2; ++turn) {
            void *all = nullptr, *more = nullptr;
            size_t have = free_now() / way.grain * way.grain;
            cudaError_t first = way.take(&all, have);
            size_t left = free_now();
            cudaError_t second = way.take(&more, way.grain);
            std::printf("%s %zu %s %zu %s\n", way.name, have >> 20, cudaGetErrorName(first), left >> 20, cudaGetErrorName(second));
            cudaGetLastError();
            if (first == cudaSuccess) {
                // All of it is memory: its ends can be written.
                CHECK(cudaMemset(all, 1, 256));
                CHECK(cudaMemset(static_cast<char *>(all) + have - 256, 1, 256));
                CHECK(cudaDeviceSynchronize());
                CHECK(give_back(way, all, have));
            }
            if (second == cudaSuccess) CHECK(give_back(way, more, way.grain));
        }
    }
    std::printf("end %zu\n", free_now() >> 20);
    return 0;
}

static int race(size_t limit, int rounds) {
    struct Block {
        const Way *way;
        void *at;
        size_t bytes;
    };
    auto all = ways();
    all.pop_back(); // A graph a round is slow, and allocates as pools do.
    std::mt19937 random(unsigned(reinterpret_cast<uintptr_t>(&limit) >> 4) ^ unsigned(clock()));
    std::vector<Block> blocks;
    size_t sum = 0, above = 0, refused = 0, wrong = 0, highest = 0;
    std::puts("ready");
    std::fflush(stdout);
    std::getchar();
    for (int round = 0; round < rounds; ++round) {
        const Way &way = all[random() % all.size()];
        size_t bytes = (1 + random() % 64) * (size_t(2) << 20);
        void *at = nullptr;
        cudaError_t result = way.take(&at, bytes);
        if (result == cudaSuccess) {
            sum += bytes;
            highest = std::max(highest, sum);
            above += sum > limit;
            blocks.push_back({&way, at, bytes});
        } else {
            cudaGetLastError();
            wrong += result != cudaErrorMemoryAllocation;
            refused += sum + bytes <= limit;
            // Make room, anywhere.
            for (size_t gone = 0; gone < 3 && !blocks.empty(); ++gone) {
                std::swap(blocks[random() % blocks.size()], blocks.back());
                Block block = blocks.back();
                blocks.pop_back();
                CHECK(give_back(*block.way, block.at, block.bytes));
                sum -= block.bytes;
            }
        }
    }
    std::printf("rounds %d above %zu refused %zu wrong %zu highest %zu\n", rounds, above, refused, wrong, highest >> 20);
    return above || wrong ? 1 : 0;
}

int main(int argc, char **argv) {
    std::string what = argc > 1 ? argv[1] : "exact";
    size_t limit = size_t(argc > 2 ? std::atoi(argv[2]) : 1024) << 20;
    CHECK(cudaFree(nullptr));
    return what == "race" ? race(limit, argc > 3 ? std::atoi(argv[3]) : 1000) : exact(limit);
}
