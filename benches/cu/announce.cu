// How long after a fault the driver announces it, by what is loaded (decision 0119), without cumux.
//   announce IMAGE...    loads each image, then runs a kernel that stores to a wrong address
// Prints what was loaded, and the milliseconds from the launch to the announcement and the error.
// Images: cargo run --release -p cumux-fatbin --example divide -- FOLDER libtorch_cuda.so...
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

static double now() { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

static void check(CUresult result, const char *what) {
    if (result == CUDA_SUCCESS) return;
    std::printf("%s: %d\n", what, int(result));
    std::exit(1);
}
#define CHECK(call) check(call, #call)

static const char *const fault = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry f()\n{\n.reg .b64 a;\n"
                                 "mov.b64 a, 0x4000000000;\nst.global.u32 [a], 1;\nret;\n}\n";

static std::atomic<double> announced{0};

static void listen(int pipe) {
    std::string said;
    char piece[4096];
    for (ssize_t n; (n = read(pipe, piece, sizeof piece)) > 0;) {
        said.append(piece, n);
        if (announced == 0 && said.find("oredump") != std::string::npos) announced = now();
    }
}

static void set_dump(CUcoredumpSettings setting, const void *value, size_t bytes) { CHECK(cuCoredumpSetAttributeGlobal(setting, const_cast<void *>(value), &bytes)); }

int main(int count, char **images) {
    int ends[2];
    if (pipe(ends)) return 1;
    dup2(ends[1], 2);
    std::thread(listen, ends[0]).detach();
    setenv("CUDA_COREDUMP_SHOW_PROGRESS", "1", 1);
    CHECK(cuInit(0));
    int dump = memfd_create("dump", 0), flags = CU_COREDUMP_LIGHTWEIGHT_FLAGS | CU_COREDUMP_SKIP_ABORT;
    std::string path = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(dump);
    bool on = true;
    set_dump(CU_COREDUMP_ENABLE_ON_EXCEPTION, &on, sizeof on);
    set_dump(CU_COREDUMP_FILE, path.c_str(), path.size() + 1);
    set_dump(CU_COREDUMP_GENERATION_FLAGS, &flags, sizeof flags);
    CUdevice device;
    CUcontext context;
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    double begun = now();
    size_t bytes = 0, kernels = 0;
    for (int i = 1; i < count; ++i) {
        std::ifstream file(images[i], std::ios::binary);
        std::string image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
        bytes += image.size();
        CUmodule module;
        unsigned functions = 0;
        CHECK(cuModuleLoadData(&module, image.c_str()));
        CHECK(cuModuleGetFunctionCount(&functions, module));
        kernels += functions;
    }
    double loaded = now() - begun;
    CUmodule module;
    CUfunction function;
    CHECK(cuModuleLoadData(&module, fault));
    CHECK(cuModuleGetFunction(&function, module, "f"));
    CHECK(cuFuncLoad(function));
    CHECK(cuCtxSynchronize());
    begun = now();
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    CUresult error = CUDA_SUCCESS;
    // A wait may succeed before the fault is announced.
    while (error == CUDA_SUCCESS && now() - begun < 5000) error = cuCtxSynchronize();
    double told = now() - begun;
    struct stat written;
    fstat(dump, &written);
    std::printf("%d images, %zu kernels, %.1f MB loaded in %.0f ms: announced after %.1f ms, error %d after %.1f ms, dump of %.1f MB\n", count - 1, kernels,
                bytes / 1e6, loaded, announced == 0 ? -1 : announced - begun, int(error), told, written.st_size / 1e6);
    std::fflush(stdout);
    std::_Exit(0);
}
