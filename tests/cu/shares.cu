// Where kernels run. Each command prints lines of a word and values.
//   where            the process as it is; again for each line it reads
//   affinity N...    a context with each execution affinity, all at once
//   contexts P...    a context for each percentage, read from the environment as it is made, all at once
//   priorities       what streams say of their priorities
#include "driver.cuh"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>

// Thread 0 of each block notes its multiprocessor; the others keep it busy long enough that blocks spread.
__global__ void note(unsigned *seen, long long cycles) {
    long long begin = clock64();
    if (threadIdx.x == 0) {
        unsigned sm;
        asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
        seen[blockIdx.x] = sm;
    }
    while (clock64() - begin < cycles) {
    }
}

static int attribute(cudaDeviceAttr which) {
    int value = -1;
    CHECK(cudaDeviceGetAttribute(&value, which, 0));
    return value;
}

// Distinct multiprocessors of many blocks in the current context.
static std::set<unsigned> multiprocessors(cudaStream_t stream) {
    const int blocks = 1024;
    unsigned *seen;
    std::vector<unsigned> found(blocks);
    CHECK(cudaMallocManaged(&seen, blocks * sizeof(unsigned)));
    note<<<blocks, 64, 0, stream>>>(seen, 20000);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(stream));
    std::copy(seen, seen + blocks, found.begin());
    CHECK(cudaFree(seen));
    return {found.begin(), found.end()};
}

static void print(const char *word, const std::set<unsigned> &all) {
    std::printf("%s", word);
    for (unsigned one : all) std::printf(" %u", one);
    std::printf("\n");
    std::fflush(stdout);
}

static void where() {
    std::printf("multiprocessors %d\nmps %d\n", attribute(cudaDevAttrMultiProcessorCount), attribute(cudaDevAttrMpsEnabled));
    print("used", multiprocessors(nullptr));
}

using Create3 = CUresult (*)(CUcontext *, CUexecAffinityParam *, int, unsigned, CUdevice);
using Affinity = CUresult (*)(CUexecAffinityParam *, CUexecAffinityType);

static int affinity(int count, char **wanted) {
    auto create = driver<Create3>("cuCtxCreate", 11040);
    auto granted = driver<Affinity>("cuCtxGetExecAffinity", 11040);
    auto set = driver<CUresult (*)(CUcontext)>("cuCtxSetCurrent");
    auto destroy = driver<CUresult (*)(CUcontext)>("cuCtxDestroy");
    auto support = driver<CUresult (*)(int *, CUexecAffinityType, CUdevice)>("cuDeviceGetExecAffinitySupport", 11040);
    int supported = -1;
    CUresult asked = support(&supported, CU_EXEC_AFFINITY_TYPE_SM_COUNT, 0);
    std::printf("supported %d %s\nbefore %d\n", supported, name_of(asked), attribute(cudaDevAttrMultiProcessorCount));
    std::vector<CUcontext> contexts;
    for (int i = 0; i < count; ++i) {
        CUexecAffinityParam param;
        std::memset(&param, 0, sizeof param);
        param.type = CU_EXEC_AFFINITY_TYPE_SM_COUNT;
        param.param.smCount.val = std::atoi(wanted[i]);
        CUcontext context = nullptr;
        CUresult result = create(&context, &param, 1, 0, 0);
        std::printf("create %s %s\n", wanted[i], name_of(result));
        if (result != CUDA_SUCCESS) continue;
        CUexecAffinityParam got;
        std::memset(&got, 0, sizeof got);
        result = granted(&got, CU_EXEC_AFFINITY_TYPE_SM_COUNT);
        std::printf("granted %s %u %s\n", wanted[i], got.param.smCount.val, name_of(result));
        std::printf("after %d\n", attribute(cudaDevAttrMultiProcessorCount));
        contexts.push_back(context);
    }
    for (size_t i = 0; i < contexts.size(); ++i) {
        set(contexts[i]);
        print(("used" + std::to_string(i)).c_str(), multiprocessors(nullptr));
    }
    for (CUcontext context : contexts) destroy(context);
    return 0;
}

static int contexts(int count, char **percentages) {
    auto create = driver<CUresult (*)(CUcontext *, unsigned, CUdevice)>("cuCtxCreate", 3020);
    auto set = driver<CUresult (*)(CUcontext)>("cuCtxSetCurrent");
    std::printf("before %d\n", attribute(cudaDevAttrMultiProcessorCount));
    std::vector<CUcontext> made;
    for (int i = 0; i < count; ++i) {
        setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percentages[i], 1);
        CUcontext context = nullptr;
        std::printf("create %s %s\n", percentages[i], name_of(create(&context, 0, 0)));
        made.push_back(context);
    }
    for (size_t i = 0; i < made.size(); ++i) {
        set(made[i]);
        std::printf("multiprocessors%zu %d\n", i, attribute(cudaDevAttrMultiProcessorCount));
        print(("used" + std::to_string(i)).c_str(), multiprocessors(nullptr));
    }
    return 0;
}

static int priorities() {
    int least = 99, greatest = 99;
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    std::printf("range %d %d\n", least, greatest);
    for (int wanted : {0, -3, -5, -9, 4}) {
        cudaStream_t stream;
        int got = 99;
        CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, wanted));
        CHECK(cudaStreamGetPriority(stream, &got));
        std::printf("stream %d %d\n", wanted, got);
    }
    return 0;
}

int main(int argc, char **argv) {
    std::string what = argc > 1 ? argv[1] : "where";
    CHECK(cudaFree(nullptr));
    if (what == "affinity") return affinity(argc - 2, argv + 2);
    if (what == "contexts") return contexts(argc - 2, argv + 2);
    if (what == "priorities") return priorities();
    for (int turn = 0; turn == 0 || std::getchar() != EOF; ++turn) {
        where();
        std::printf("ready %d\n", turn);
        std::fflush(stdout);
    }
    return 0;
}
