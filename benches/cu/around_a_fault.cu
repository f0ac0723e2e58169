// What the driver asks of its kernel module around a fault, and which kernels beside it end (decision 0120), without cumux.
//   around_a_fault CLASS MS HOLD_MS     CLASS: store misaligned trap; four kernels of MS/4, MS/2, MS and 2 MS run beside it;
//                                       the driver's reset of a channel is held for HOLD_MS
// Prints each request from the fault on (milliseconds, how long it took, command), then how far each kernel came.
#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <cuda.h>
#include <cuda_runtime.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

static double now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

struct Request { double from, to; unsigned number, command; };
static const unsigned most = 300000;
static Request *requests = static_cast<Request *>(calloc(most, sizeof(Request)));
static std::atomic<unsigned> count{0};
static std::atomic<double> launched{0}, announced{0};
static double hold_ms = 0;

// C's function for the whole process. The fields are those of NVIDIA's open kernel modules: NVOS54_PARAMETERS, NVOS21_PARAMETERS.
extern "C" int ioctl(int descriptor, unsigned long request, ...) noexcept {
    va_list list;
    va_start(list, request);
    unsigned *argument = va_arg(list, unsigned *);
    va_end(list);
    const unsigned number = request & 0xff, type = (request >> 8) & 0xff;
    const unsigned command = type != 'F' || !argument ? 0 : number == 0x2a ? argument[2] : number == 0x2b ? argument[3] : 0;
    if (command == 0x906f0102 && announced != 0) usleep(useconds_t(hold_ms * 1e3));
    const double from = now();
    const long result = syscall(SYS_ioctl, descriptor, request, argument);
    if (launched != 0 && requests) {
        const unsigned at = count++;
        if (at < most) requests[at] = {from, now(), number, command};
    }
    return int(result);
}

__global__ void store(int *p) { p[threadIdx.x] = 1; }
__global__ void misaligned(char *p) { *(volatile long long *)(p + 3) = 1; }
__global__ void trap() { asm volatile("trap;"); }
__global__ void work(volatile unsigned long long *words, unsigned long long turns) {
    unsigned long long sum = 1;
    for (unsigned long long turn = 0; turn < turns; ++turn) {
        for (int k = 0; k < 100; ++k) sum = sum * sum + k;
        words[0] = turn + 1;
    }
    words[1] = sum;
}
__global__ void mark(volatile unsigned long long *words) { words[2] = 1; }

static void listen(int pipe) {
    char piece[4096];
    std::string said;
    for (ssize_t n; (n = read(pipe, piece, sizeof piece)) > 0;) {
        said.append(piece, n);
        if (announced == 0 && said.find("oredump") != std::string::npos) announced = now();
    }
}

int main(int arguments, char **argument) {
    if (arguments < 4) return 2;
    const std::string fault = argument[1];
    const double length = atof(argument[2]);
    hold_ms = atof(argument[3]);
    int ends[2];
    if (pipe(ends)) return 1;
    dup2(ends[1], 2);
    std::thread(listen, ends[0]).detach();
    setenv("CUDA_COREDUMP_SHOW_PROGRESS", "1", 1);
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    cuInit(0);
    bool on = true;
    int flags = CU_COREDUMP_LIGHTWEIGHT_FLAGS | CU_COREDUMP_SKIP_ABORT;
    std::string path = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(memfd_create("dump", 0));
    size_t bytes = 1;
    cuCoredumpSetAttributeGlobal(CU_COREDUMP_ENABLE_ON_EXCEPTION, &on, &bytes);
    bytes = path.size() + 1;
    cuCoredumpSetAttributeGlobal(CU_COREDUMP_FILE, path.data(), &bytes);
    bytes = sizeof flags;
    cuCoredumpSetAttributeGlobal(CU_COREDUMP_GENERATION_FLAGS, &flags, &bytes);
    cudaStream_t streams[5];
    volatile unsigned long long *words[4];
    char *some;
    if (cudaMalloc(&some, 4096)) return 1;
    for (auto &stream : streams) cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    for (auto &word : words) {
        void *memory;
        if (cudaHostAlloc(&memory, 4096, cudaHostAllocMapped)) return 1;
        std::memset(memory, 0, 4096);
        word = static_cast<volatile unsigned long long *>(memory);
    }
    double best = 1e9;
    for (int k = 0; k < 3; ++k) {
        const double from = now();
        work<<<1, 1, 0, streams[0]>>>(words[0], 20000);
        if (cudaStreamSynchronize(streams[0])) return 1;
        best = std::min(best, now() - from);
    }
    const double lengths[4] = {length / 4, length / 2, length, length * 2};
    unsigned long long turns[4];
    for (int k = 0; k < 4; ++k) {
        words[k][0] = words[k][1] = 0;
        turns[k] = (unsigned long long)(20000 / best * lengths[k]);
        work<<<1, 1, 0, streams[k]>>>(words[k], turns[k]);
        mark<<<1, 1, 0, streams[k]>>>(words[k]);
    }
    while (!words[3][0]) {}
    launched = now();
    if (fault == "store") store<<<1, 1, 0, streams[4]>>>(reinterpret_cast<int *>(0xdead0000ull));
    else if (fault == "misaligned") misaligned<<<1, 1, 0, streams[4]>>>(some);
    else trap<<<1, 1, 0, streams[4]>>>();
    while (now() - launched < 700 + hold_ms + 2 * length) usleep(1000);
    const unsigned seen = std::min(count.load(), most);
    for (unsigned from = 0, to; from < seen; from = to) {
        // Equal requests in a row are one line.
        for (to = from + 1; to < seen && requests[to].number == requests[from].number && requests[to].command == requests[from].command;) ++to;
        std::printf("%9.3f +%8.3f number %02x command %08x, %u times\n", requests[from].from - launched, requests[to - 1].to - requests[from].from,
                    requests[from].number, requests[from].command, to - from);
    }
    std::printf("%s, announced after %.1f ms:", fault.c_str(), announced == 0 ? -1 : announced - launched);
    for (int k = 0; k < 4; ++k) std::printf(" %g ms: %.0f %%%s", lengths[k], 100.0 * words[k][0] / turns[k], words[k][2] ? " marked" : "");
    std::printf("\n");
    std::fflush(stdout);
    std::_Exit(0);
}
