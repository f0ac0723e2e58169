// Green contexts. Each command prints lines of a word and values.
//   resources        what a device has, and what splits of it give
//   errors           what bad arguments are answered
//   run COUNT        two green contexts of COUNT multiprocessors; runs in both, again for each line it reads
//   current          a green context as the current one
//   events           events of whole green contexts
//   life             what ends when
#include "driver.cuh"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>

const unsigned BLOCKS = 1024, THREADS = 64;

// Thread 0 of each block notes its multiprocessor, and each thread adds to a number of its own: that can be done again
// where it was interrupted. All stay long enough that blocks spread.
__global__ void note(unsigned *seen, unsigned *sums, long long cycles) {
    long long begin = clock64();
    if (threadIdx.x == 0) {
        unsigned sm;
        asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
        seen[blockIdx.x] = sm;
    }
    if (threadIdx.x < THREADS) sums[blockIdx.x * THREADS + threadIdx.x] += blockIdx.x + threadIdx.x;
    while (clock64() - begin < cycles) {
    }
}

__global__ void await(volatile unsigned *flag) {
    while (*flag == 0) {
    }
}

__device__ unsigned counter;
__global__ void count(unsigned *out) { *out = atomicAdd(&counter, 1) + 1; }

struct Api {
    decltype(&::cuDeviceGetDevResource) of_device = driver<decltype(&::cuDeviceGetDevResource)>("cuDeviceGetDevResource", 12080);
    decltype(&::cuCtxGetDevResource) of_context = driver<decltype(&::cuCtxGetDevResource)>("cuCtxGetDevResource", 12080);
    decltype(&::cuGreenCtxGetDevResource) of_green = driver<decltype(&::cuGreenCtxGetDevResource)>("cuGreenCtxGetDevResource", 12080);
    decltype(&::cuDevSmResourceSplitByCount) split = driver<decltype(&::cuDevSmResourceSplitByCount)>("cuDevSmResourceSplitByCount", 12080);
    decltype(&::cuDevResourceGenerateDesc) describe = driver<decltype(&::cuDevResourceGenerateDesc)>("cuDevResourceGenerateDesc", 12080);
    decltype(&::cuGreenCtxCreate) create = driver<decltype(&::cuGreenCtxCreate)>("cuGreenCtxCreate", 12080);
    decltype(&::cuGreenCtxDestroy) destroy = driver<decltype(&::cuGreenCtxDestroy)>("cuGreenCtxDestroy", 12080);
    decltype(&::cuCtxFromGreenCtx) convert = driver<decltype(&::cuCtxFromGreenCtx)>("cuCtxFromGreenCtx", 12080);
    decltype(&::cuGreenCtxStreamCreate) stream = driver<decltype(&::cuGreenCtxStreamCreate)>("cuGreenCtxStreamCreate", 12080);
    decltype(&::cuGreenCtxRecordEvent) record = driver<decltype(&::cuGreenCtxRecordEvent)>("cuGreenCtxRecordEvent", 12080);
    decltype(&::cuGreenCtxWaitEvent) wait = driver<decltype(&::cuGreenCtxWaitEvent)>("cuGreenCtxWaitEvent", 12080);
    decltype(&::cuGreenCtxGetId) id = driver<decltype(&::cuGreenCtxGetId)>("cuGreenCtxGetId", 13000);
    decltype(&::cuStreamGetGreenCtx) of_stream = driver<decltype(&::cuStreamGetGreenCtx)>("cuStreamGetGreenCtx", 12080);
    decltype(&::cuStreamGetCtx_v2) contexts_of = driver<decltype(&::cuStreamGetCtx_v2)>("cuStreamGetCtx", 12050);
    decltype(&::cuCtxSetCurrent) set = driver<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent");
    decltype(&::cuCtxGetCurrent) current = driver<decltype(&::cuCtxGetCurrent)>("cuCtxGetCurrent");
    decltype(&::cuCtxGetId) context_id = driver<decltype(&::cuCtxGetId)>("cuCtxGetId");
    decltype(&::cuCtxSynchronize) synchronize = driver<decltype(&::cuCtxSynchronize)>("cuCtxSynchronize");
    decltype(&::cuCtxDestroy) destroy_context = driver<decltype(&::cuCtxDestroy)>("cuCtxDestroy");
    decltype(&::cuStreamDestroy) destroy_stream = driver<decltype(&::cuStreamDestroy)>("cuStreamDestroy");
    decltype(&::cuStreamQuery) query = driver<decltype(&::cuStreamQuery)>("cuStreamQuery");
    decltype(&::cuDevicePrimaryCtxReset) reset = driver<decltype(&::cuDevicePrimaryCtxReset)>("cuDevicePrimaryCtxReset");
    decltype(&::cuDevicePrimaryCtxGetState) state = driver<decltype(&::cuDevicePrimaryCtxGetState)>("cuDevicePrimaryCtxGetState");
};

static Api &api() {
    static Api found;
    return found;
}

static CUdevResource whole() {
    CUdevResource all;
    CHECK_DRIVER(api().of_device(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    return all;
}

static CUgreenCtx green_of(CUdevResource *resources, unsigned count) {
    CUdevResourceDesc description;
    CUgreenCtx green;
    CHECK_DRIVER(api().describe(&description, resources, count));
    CHECK_DRIVER(api().create(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
}

static CUstream stream_of(CUgreenCtx green) {
    CUstream stream;
    CHECK_DRIVER(api().stream(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    return stream;
}

static void print(const char *word, const CUdevResource &resource) {
    std::printf("%s %d %u %u %u\n", word, (int)resource.type, resource.sm.smCount, resource.sm.minSmPartitionSize, resource.sm.smCoscheduledAlignment);
}

static void print(const char *word, const std::set<unsigned> &all) {
    std::printf("%s", word);
    for (unsigned one : all) std::printf(" %u", one);
    std::printf("\n");
    std::fflush(stdout);
}

struct Run {
    unsigned *seen, *sums;
    unsigned rounds = 0;
    Run() {
        CHECK(cudaMallocManaged(&seen, BLOCKS * sizeof(unsigned)));
        CHECK(cudaMallocManaged(&sums, BLOCKS * THREADS * sizeof(unsigned)));
        std::memset(sums, 0, BLOCKS * THREADS * sizeof(unsigned));
    }
    void start(cudaStream_t stream, long long cycles = 20000) {
        note<<<BLOCKS, THREADS, 0, stream>>>(seen, sums, cycles);
        CHECK(cudaGetLastError());
        ++rounds;
    }
    // The work has been waited for: where it ran, if all sums are right.
    std::set<unsigned> finish() {
        for (unsigned i = 0; i < BLOCKS * THREADS; ++i) {
            if (sums[i] != rounds * (i / THREADS + i % THREADS)) {
                std::printf("FAIL: thread %u has %u after %u rounds\n", i, sums[i], rounds);
                std::exit(1);
            }
        }
        return {seen, seen + BLOCKS};
    }
};

static std::set<unsigned> multiprocessors(cudaStream_t stream) {
    Run run;
    run.start(stream);
    CHECK(cudaStreamSynchronize(stream));
    return run.finish();
}

static int resources() {
    CUdevResource all = whole(), context, groups[64], rest;
    print("device", all);
    CHECK_DRIVER(api().of_context(nullptr, &context, CU_DEV_RESOURCE_TYPE_SM));
    print("context", context);
    for (unsigned flags : {0u, 1u, 2u}) {
        unsigned count = 0;
        CUresult result = api().split(nullptr, &count, &all, nullptr, flags, 10);
        std::printf("query %u %s %u\n", flags, name_of(result), count);
        count = 2;
        result = api().split(groups, &count, &all, &rest, flags, 10);
        std::printf("split %u %s %u\n", flags, name_of(result), count);
        if (result != CUDA_SUCCESS) continue;
        print("group", groups[0]);
        print("rest", rest);
    }
    unsigned count = 64;
    CHECK_DRIVER(api().split(groups, &count, &all, &rest, 1, 0));
    print("many", groups[count - 1]);
    std::printf("count %u %d\n", count, (int)rest.type);
    // A green context's part can be split again.
    count = 1;
    CHECK_DRIVER(api().split(groups, &count, &all, &rest, 0, 16));
    CUgreenCtx green = green_of(&rest, 1);
    CUdevResource inner;
    CHECK_DRIVER(api().of_green(green, &inner, CU_DEV_RESOURCE_TYPE_SM));
    print("inner", inner);
    count = 1;
    CHECK_DRIVER(api().split(groups, &count, &inner, &rest, 0, 16));
    print("again", groups[0]);
    print("left", rest);
    CUgreenCtx small = green_of(groups, 1);
    std::set<unsigned> outer = multiprocessors(stream_of(green)), inside = multiprocessors(stream_of(small));
    std::printf("inside %d %zu %zu\n", (int)std::includes(outer.begin(), outer.end(), inside.begin(), inside.end()), outer.size(), inside.size());
    return 0;
}

static int errors() {
    CUdevResource all = whole(), groups[4], rest, two[2];
    CUdevResource none;
    std::memset(&none, 0, sizeof none);
    CUdevResource made_up = none;
    made_up.type = CU_DEV_RESOURCE_TYPE_SM, made_up.sm.smCount = 8;
    unsigned count = 2;
    auto say = [](const char *what, CUresult result) { std::printf("%s: %s\n", what, name_of(result)); };
    say("type", api().of_device(0, &rest, CU_DEV_RESOURCE_TYPE_INVALID));
    say("other type", api().of_device(0, &rest, (CUdevResourceType)1000));
    say("device", api().of_device(9, &rest, CU_DEV_RESOURCE_TYPE_SM));
    say("nowhere", api().of_device(0, nullptr, CU_DEV_RESOURCE_TYPE_SM));
    say("green of nothing", api().of_green(nullptr, &rest, CU_DEV_RESOURCE_TYPE_SM));
    say("no count", api().split(groups, nullptr, &all, nullptr, 0, 8));
    say("no input", api().split(groups, &count, nullptr, nullptr, 0, 8));
    say("invalid input", api().split(groups, &count, &none, nullptr, 0, 8));
    say("made up input", api().split(groups, &count, &made_up, nullptr, 0, 8));
    say("flags", api().split(groups, &count, &all, nullptr, 4, 8));
    say("too many", api().split(groups, &count, &all, nullptr, 0, all.sm.smCount + 1));
    say("rounded too far", api().split(groups, &count, &all, nullptr, 0, all.sm.smCount));
    count = 0;
    say("no groups", api().split(groups, &count, &all, nullptr, 0, 8));
    count = 2;
    CHECK_DRIVER(api().split(groups, &count, &all, &rest, 0, 8));
    say("split twice", api().split(two, &count, &groups[0], nullptr, 0, 8));
    say("rest split", api().split(two, &count, &rest, nullptr, 0, 8));
    CUdevResourceDesc description;
    say("nothing described", api().describe(&description, groups, 0));
    say("described nowhere", api().describe(nullptr, groups, 1));
    say("described none", api().describe(&description, &none, 1));
    two[0] = groups[0], two[1] = groups[0];
    say("same twice", api().describe(&description, two, 2));
    two[1] = all;
    say("two sources", api().describe(&description, two, 2));
    two[1] = rest;
    say("group and rest", api().describe(&description, two, 2));
    CUgreenCtx green = nullptr;
    say("no flags", api().create(&green, description, 0, 0));
    say("unknown flags", api().create(&green, description, 0, 3));
    say("no description", api().create(&green, nullptr, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    say("wrong device", api().create(&green, description, 9, CU_GREEN_CTX_DEFAULT_STREAM));
    say("to nowhere", api().create(nullptr, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    CHECK_DRIVER(api().create(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    CUstream stream;
    say("blocking stream", api().stream(&stream, green, CU_STREAM_DEFAULT, 0));
    say("unknown stream flags", api().stream(&stream, green, 4, 0));
    say("stream of nothing", api().stream(&stream, nullptr, CU_STREAM_NON_BLOCKING, 0));
    say("not converted", api().set((CUcontext)green));
    CUcontext context;
    CHECK_DRIVER(api().convert(&context, green));
    say("destroyed as a context", api().destroy_context(context));
    say("destroyed", api().destroy(green));
    say("destroyed twice", api().destroy(green));
    say("made current too late", api().set(context));
    return 0;
}

static int run(unsigned wanted) {
    CUdevResource all = whole(), groups[2], rest;
    print("device", all);
    unsigned count = 2;
    CHECK_DRIVER(api().split(groups, &count, &all, &rest, 0, wanted));
    CUgreenCtx greens[2] = {green_of(&groups[0], 1), green_of(&groups[1], 1)};
    CUstream streams[2] = {stream_of(greens[0]), stream_of(greens[1])};
    Run runs[2];
    for (int turn = 0; turn == 0 || std::getchar() != EOF; ++turn) {
        for (int round = 0; round < 8; ++round) {
            for (int i = 0; i < 2; ++i) runs[i].start(streams[i]);
            if (round != 3) continue;
            std::printf("busy %d\n", turn);
            std::fflush(stdout);
        }
        for (CUstream stream : streams) CHECK(cudaStreamSynchronize(stream));
        print("first", runs[0].finish());
        print("second", runs[1].finish());
        print("outside", multiprocessors(nullptr));
        std::printf("ready %d\n", turn);
        std::fflush(stdout);
    }
    for (int i = 0; i < 2; ++i) {
        CHECK_DRIVER(api().destroy_stream(streams[i]));
        CHECK_DRIVER(api().destroy(greens[i]));
    }
    return 0;
}

static int current() {
    CUdevResource all = whole(), groups[2], rest;
    unsigned count = 2;
    CHECK_DRIVER(api().split(groups, &count, &all, &rest, 0, 16));
    CUgreenCtx green = green_of(&groups[1], 1), other = green_of(&groups[0], 1);
    CUcontext primary, context, got;
    CHECK_DRIVER(api().current(&primary));
    CHECK_DRIVER(api().convert(&context, green));
    unsigned long long ids[5] = {};
    CHECK_DRIVER(api().id(green, &ids[0]));
    CHECK_DRIVER(api().id(other, &ids[1]));
    CHECK_DRIVER(api().context_id(primary, &ids[2]));
    std::printf("id of none %s\n", name_of(api().id(nullptr, &ids[4])));
    // What the primary context has, a green one has.
    unsigned *out;
    CHECK(cudaMallocManaged(&out, sizeof *out));
    auto count_up = [&] {
        ::count<<<1, 1>>>(out);
        CHECK(cudaDeviceSynchronize());
        std::printf("counter %u\n", *out);
    };
    CUdevice device;
    CUgreenCtx found;
    count_up();
    CHECK_DRIVER(api().of_stream(nullptr, &found));
    std::printf("green %d\n", found != nullptr);
    print("outside", multiprocessors(nullptr));
    CHECK_DRIVER(api().set(context));
    count_up();
    CHECK_DRIVER(api().current(&got));
    std::printf("current %d\n", got == context);
    CHECK_DRIVER(api().id(nullptr, &ids[3]));
    std::printf("ids %d %d %d\n", ids[0] == ids[3], ids[0] != ids[1], ids[0] != ids[2]);
    CHECK_DRIVER(driver<CUresult (*)(CUdevice *)>("cuCtxGetDevice")(&device));
    std::printf("device %d\n", device);
    // Its NULL stream, and a stream that is made while it is current.
    print("null", multiprocessors(nullptr));
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    print("made", multiprocessors(stream));
    CHECK_DRIVER(api().of_stream(stream, &found));
    CHECK_DRIVER(api().contexts_of(stream, &got, &green));
    std::printf("of the stream %d %d %d\n", found == green, got == primary, found != nullptr);
    CUdevResource resource;
    CHECK_DRIVER(api().of_context(context, &resource, CU_DEV_RESOURCE_TYPE_SM));
    print("resource", resource);
    // What depends on how many multiprocessors there are.
    int attribute = 0, blocks = 0, threads = 0, each = 0;
    CHECK(cudaDeviceGetAttribute(&attribute, cudaDevAttrMultiProcessorCount, 0));
    cudaFunction_t function;
    CHECK(cudaGetFuncBySymbol(&function, (const void *)::note));
    CHECK_DRIVER(driver<decltype(&::cuOccupancyMaxPotentialBlockSize)>("cuOccupancyMaxPotentialBlockSize")(&blocks, &threads, function, nullptr, 0, 0));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, ::note, threads, 0));
    std::printf("occupancy %d %d\n", attribute, blocks / each);
    // A grid that must be resident: as large as the part, and no larger, also from outside.
    unsigned *seen, *sums;
    CHECK(cudaMallocManaged(&seen, 4096 * sizeof *seen));
    CHECK(cudaMallocManaged(&sums, 4096 * sizeof *sums));
    long long cycles = 1;
    void *arguments[] = {&seen, &sums, &cycles};
    CHECK_DRIVER(api().set(primary));
    CUstream theirs = stream_of(green);
    for (int extra : {0, 1}) {
        cudaError_t launched = cudaLaunchCooperativeKernel((const void *)::note, dim3(16 * each + extra), dim3(threads), arguments, 0, theirs);
        std::printf("cooperative %d %s\n", extra, cudaGetErrorName(launched));
        (void)cudaGetLastError();
    }
    // A graph that was made for the whole share.
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaStream_t capturing;
    CHECK(cudaStreamCreateWithFlags(&capturing, cudaStreamNonBlocking));
    CHECK(cudaStreamBeginCapture(capturing, cudaStreamCaptureModeRelaxed));
    CHECK(cudaLaunchCooperativeKernel((const void *)::note, dim3(16 * each + 1), dim3(threads), arguments, 0, capturing));
    CHECK(cudaStreamEndCapture(capturing, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    std::printf("graph %s %s\n", cudaGetErrorName(cudaGraphLaunch(exec, theirs)), cudaGetErrorName(cudaGraphLaunch(exec, capturing)));
    (void)cudaGetLastError();
    CHECK(cudaDeviceSynchronize());
    // Two branches of a graph run on the part, too.
    Run left, right;
    cudaEvent_t fork, joined;
    CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
    cudaStream_t second;
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    CHECK(cudaStreamBeginCapture(capturing, cudaStreamCaptureModeRelaxed));
    CHECK(cudaEventRecord(fork, capturing));
    CHECK(cudaStreamWaitEvent(second, fork, 0));
    left.start(capturing);
    right.start(second);
    CHECK(cudaEventRecord(joined, second));
    CHECK(cudaStreamWaitEvent(capturing, joined, 0));
    CHECK(cudaStreamEndCapture(capturing, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, theirs));
    CHECK(cudaStreamSynchronize(theirs));
    std::set<unsigned> branches = left.finish();
    for (unsigned sm : right.finish()) branches.insert(sm);
    print("branches", branches);
    return 0;
}

static int events() {
    CUdevResource all = whole(), groups[2];
    unsigned count = 2;
    CHECK_DRIVER(api().split(groups, &count, &all, nullptr, 0, 16));
    CUgreenCtx one = green_of(&groups[0], 1), two = green_of(&groups[1], 1);
    CUstream first = stream_of(one), second = stream_of(one), other = stream_of(two);
    unsigned *flags;
    CHECK(cudaMallocManaged(&flags, 4 * sizeof *flags));
    std::memset(flags, 0, 4 * sizeof *flags);
    cudaEvent_t event, of_primary;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&of_primary, cudaEventDisableTiming));
    await<<<1, 1, 0, first>>>(&flags[0]);
    await<<<1, 1, 0, second>>>(&flags[1]);
    CHECK(cudaGetLastError());
    CHECK_DRIVER(api().record(one, event));
    CHECK_DRIVER(api().wait(two, event));
    ::count<<<1, 1, 0, other>>>(&flags[2]);
    // A stream that comes later waits, too.
    CUstream late = stream_of(two);
    ::count<<<1, 1, 0, late>>>(&flags[3]);
    CHECK(cudaGetLastError());
    auto busy = [](CUstream stream) { return (int)(api().query(stream) == CUDA_ERROR_NOT_READY); };
    volatile unsigned *open = flags;
    std::printf("held %d %d %d\n", busy(other), busy(late), (int)(cudaEventQuery(event) == cudaErrorNotReady));
    open[0] = 1;
    CHECK(cudaStreamSynchronize(first));
    std::printf("half %d %d %d\n", busy(other), busy(late), (int)(cudaEventQuery(event) == cudaErrorNotReady));
    // The device's synchronisation waits for green contexts.
    open[1] = 1;
    CHECK(cudaDeviceSynchronize());
    std::printf("open %d %d %d %u\n", busy(other), busy(late), (int)(cudaEventQuery(event) == cudaErrorNotReady), flags[2] + flags[3]);
    // A capture does not go with them.
    CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeRelaxed));
    std::printf("captured %s %s\n", name_of(api().record(one, event)), name_of(api().record(two, event)));
    cudaGraph_t graph;
    std::printf("spoilt %s\n", cudaGetErrorName(cudaStreamEndCapture(first, &graph)));
    (void)cudaGetLastError();
    return 0;
}

static int life() {
    CUdevResource all = whole(), groups[2];
    unsigned count = 2;
    CHECK_DRIVER(api().split(groups, &count, &all, nullptr, 0, 16));
    CUgreenCtx one = green_of(&groups[0], 1), two = green_of(&groups[1], 1);
    CUstream kept = stream_of(one), given_back = stream_of(one);
    unsigned *out;
    CHECK(cudaMallocManaged(&out, sizeof *out));
    ::count<<<1, 1, 0, kept>>>(out);
    CHECK(cudaGetLastError());
    CHECK_DRIVER(api().destroy_stream(given_back));
    // Its work is done when it has ended, and the memory stays.
    CHECK_DRIVER(api().destroy(one));
    std::printf("counter %u\n", *out);
    ::count<<<1, 1, 0, kept>>>(out);
    std::printf("launch %s\n", cudaGetErrorName(cudaGetLastError()));
    std::printf("query %s\ndestroy %s\n", name_of(api().query(kept)), name_of(api().destroy_stream(kept)));
    std::printf("another %s\n", name_of(api().destroy_stream(given_back)));
    // A part can be used again, and many can be made one after the other.
    for (int i = 0; i < 600; ++i) CHECK_DRIVER(api().destroy(green_of(&groups[0], 1)));
    std::set<unsigned> used = multiprocessors(stream_of(green_of(&groups[0], 1)));
    std::printf("used %zu\n", used.size());
    // The primary context is reset under them.
    unsigned flags;
    int active;
    CHECK_DRIVER(api().state(0, &flags, &active));
    std::printf("active %d\n", active);
    CHECK(cudaDeviceReset());
    CUstream stream;
    std::printf("reset %s\n", name_of(api().stream(&stream, two, CU_STREAM_NON_BLOCKING, 0)));
    // A green context keeps it alive.
    CHECK_DRIVER(api().state(0, &flags, &active));
    std::printf("active %d\n", active);
    CUgreenCtx alone = green_of(&groups[0], 1);
    CHECK_DRIVER(api().state(0, &flags, &active));
    std::printf("active %d\n", active);
    CHECK_DRIVER(api().destroy(alone));
    CHECK_DRIVER(api().state(0, &flags, &active));
    std::printf("active %d\n", active);
    return 0;
}

int main(int argc, char **argv) {
    std::string what = argc > 1 ? argv[1] : "resources";
    CHECK(cudaFree(nullptr));
    if (what == "errors") return errors();
    if (what == "run") return run(argc > 2 ? std::atoi(argv[2]) : 16);
    if (what == "current") return current();
    if (what == "events") return events();
    if (what == "life") return life();
    return resources();
}
