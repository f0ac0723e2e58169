// How many streams stand still beside a kernel that does not end, because they share one of the context's
// queues with it:
//   CUDA_DEVICE_MAX_CONNECTIONS=16 lanes FOLDER REPEATS
// The folder has steady.cubin and culprit.cubin. A process makes a context, loads steady.cubin for each
// stream, which work on and on, loads culprit.cubin, runs a short kernel of it and then one that does not
// end. Beside it another process runs kernels of 300 ms, or none does: with one, the streams have their
// work submitted while the card is not theirs, so that all of them are busy at once.
// Ways: plain, copies (every second stream also copies to the host).
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>
#include <cuda.h>
#include <cuda_runtime.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "beside_a_spin.cuh"

static double now() { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
static void nap(double ms) { std::this_thread::sleep_for(std::chrono::microseconds(long(ms * 1e3))); }

__global__ void busy(long long ns) {
    long long from, t;
    asm volatile("mov.u64 %0,%globaltimer;" : "=l"(from));
    do asm volatile("mov.u64 %0,%globaltimer;" : "=l"(t)); while (t - from < ns);
}

static std::string read(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

static CUfunction function(CUmodule module, const char *part) {
    unsigned count;
    CHECK(cuModuleGetFunctionCount(&count, module));
    std::vector<CUfunction> all(count);
    CHECK(cuModuleEnumerateFunctions(all.data(), count, module));
    for (CUfunction each : all) {
        const char *name;
        CHECK(cuFuncGetName(&name, each));
        if (std::strstr(name, part)) return each;
    }
    std::printf("no kernel %s\n", part);
    std::exit(3);
}

static int be(const std::string &folder, const std::string &way, const int count, const int admit) {
    auto has = [&](const char *what) { return way.find(what) != std::string::npos; };
    CHECK(cuInit(0));
    CUdevice device;
    CUcontext context;
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxSetFlags(device, CU_CTX_LMEM_RESIZE_TO_MAX));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    unsigned *words;
    CUdeviceptr memory;
    CHECK(cuMemHostAlloc((void **)&words, 16 << 20, CU_MEMHOSTALLOC_DEVICEMAP));
    std::memset(words, 0, 16 << 20);
    CHECK(cuMemAlloc(&memory, 64 << 20));
    CHECK(cuMemsetD8(memory, 0, 64 << 20));
    const std::string steady = read(folder + "/steady.cubin"), culprit = read(folder + "/culprit.cubin");
    struct Lane { CUstream stream; volatile unsigned *word; unsigned sent = 0; CUfunction mix; double moved; };
    std::vector<Lane> lanes(count);
    for (int at = 0; at < count; ++at) {
        CUmodule module;
        CHECK(cuModuleLoadData(&module, steady.data()));
        lanes[at].mix = function(module, "mix");
        lanes[at].word = words + 64 * at;
        CHECK(cuStreamCreateWithPriority(&lanes[at].stream, CU_STREAM_NON_BLOCKING, 0));
    }
    CUstream own;
    CHECK(cuStreamCreateWithPriority(&own, CU_STREAM_NON_BLOCKING, 0));
    std::atomic<bool> over{false};
    std::mutex lock;
    std::thread feeder([&] {
        CHECK(cuCtxSetCurrent(context));
        for (Lane &lane : lanes) lane.moved = now();
        for (int turn = 0; !over; ++turn) {
            int busy = 0;
            for (Lane &lane : lanes) busy += *lane.word != lane.sent;
            for (int k = 0; k < count; ++k) {
                const int at = (k + turn) % count;
                Lane &lane = lanes[at];
                if (*lane.word != lane.sent || busy >= admit) continue;
                ++busy;
                lane.moved = now();
                std::lock_guard<std::mutex> held(lock);
                CUdeviceptr v = memory + 65536 * at;
                int n = 16384, turns = 25;
                unsigned salt = lane.sent++;
                void *arguments[] = {&v, &n, &salt, &turns};
                for (int k = 0; k < 3; ++k) CHECK(cuLaunchKernel(lane.mix, 32, 1, 1, 256, 1, 1, 0, lane.stream, arguments, nullptr));
                if (at % 2 && has("copies")) CHECK(cuMemcpyDtoHAsync(words + 100000 + 64 * at, v, 256, lane.stream));
                CHECK(cuStreamWriteValue32(lane.stream, (CUdeviceptr)lane.word, lane.sent, 0));
            }
        }
    });
    nap(30);
    double from = now();
    CUmodule module;
    CHECK(cuModuleLoadData(&module, culprit.data()));
    double loaded = now() - from;
    {
        CUfunction good = function(module, "good"), endless = function(module, "k_endless");
        std::lock_guard<std::mutex> held(lock);
        CUdeviceptr p = memory + (60 << 20);
        void *arguments[] = {&p};
        CHECK(cuLaunchKernel(good, 1, 1, 1, 32, 1, 1, 0, own, arguments, nullptr));
        CHECK(cuLaunchKernel(endless, 1, 1, 1, 1, 1, 1, 0, own, arguments, nullptr));
        CHECK(cuStreamWriteValue32(own, (CUdeviceptr)(words + 150000), 1, 0));
    }
    nap(600);
    double end = now();
    int stood = 0;
    for (Lane &lane : lanes) stood += end - lane.moved > 400;
    int fresh_done = 0;
    for (int k = 0; k < 6; ++k) {
        CUstream fresh;
        CHECK(cuStreamCreateWithPriority(&fresh, CU_STREAM_NON_BLOCKING, 0));
        CHECK(cuStreamWriteValue32(fresh, (CUdeviceptr)(words + 200000 + 64 * k), 1, 0));
    }
    nap(100);
    for (int k = 0; k < 6; ++k) fresh_done += *(volatile unsigned *)(words + 200000 + 64 * k);
    std::printf("%d/%d (load %.0f ms; values in 6 new streams: %d)  ", stood, count, loaded, fresh_done);
    std::fflush(stdout);
    _exit(0);
}

static pid_t spawn(std::vector<std::string> arguments) {
    pid_t child = fork();
    if (child) return child;
    std::vector<char *> pointers;
    for (auto &each : arguments) pointers.push_back(each.data());
    pointers.push_back(nullptr);
    execv("/proc/self/exe", pointers.data());
    _exit(9);
}

int main(int argc, char **argv) {
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "16", 0);
    if (argc == 6) return be(argv[2], argv[3], std::atoi(argv[4]), std::atoi(argv[5]));
    if (argc < 3) {
        for (;;) {
            busy<<<4, 64>>>(300000000);
            CHECK(cudaDeviceSynchronize());
        }
    }
    const char *queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    struct Try { int lanes, admit; const char *way; };
    for (const char *beside : {"nothing", "kernels of 300 ms"})
        for (Try each : {Try{14, 99, "copies"}, {20, 99, "plain"}, {20, 99, "copies"}, {40, 99, "plain"}, {40, 99, "copies"}, {40, std::atoi(queues) - 2, "copies"}, {40, std::atoi(queues) / 2, "copies"}, {40, std::atoi(queues) / 2, "plain"}}) {
            pid_t other = *beside == 'k' ? spawn({argv[0], "long"}) : 0;
            if (other) nap(600);
            std::printf("%s queues, beside %s, %d streams, %d of them busy at most, %s: ", queues, beside, each.lanes, each.admit, each.way);
            std::fflush(stdout);
            for (int at = 0; at < std::atoi(argv[2]); ++at) {
                pid_t child = spawn({argv[0], "be", argv[1], each.way, std::to_string(each.lanes), std::to_string(each.admit)});
                waitpid(child, nullptr, 0);
            }
            std::printf("\n");
            if (other) { kill(other, SIGKILL); waitpid(other, nullptr, 0); }
        }
}
