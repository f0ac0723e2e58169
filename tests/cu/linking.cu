// Links device code while it runs (cuLink…): texts, a fatbin, an object file and a library; then what a linker refuses, with what it
// writes into the log.
#include "driver.cuh"

#include <cstdint>
#include <cstring>
#include <string>

#define HEAD ".version 7.0\n.target sm_70\n.address_size 64\n"

// Calls what others define.
static const char caller[] = HEAD R"(
.extern .func (.param .b32 r) weigh (.param .b32 x);
.extern .global .align 4 .u32 total;
.extern .const .align 4 .b8 steps[8];
.global .align 4 .u32 hidden = 3;
.visible .entry compute(.param .u64 out)
{
    .reg .b32 %r<8>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd1, %rd1;
    ld.const.u32 %r1, [steps+4];
    ld.global.u32 %r2, [hidden];
    add.u32 %r1, %r1, %r2;
    {
    .param .b32 p;
    .param .b32 q;
    st.param.b32 [p], %r1;
    call.uni (q), weigh, (p);
    ld.param.b32 %r3, [q];
    }
    ld.global.u32 %r4, [total];
    add.u32 %r3, %r3, %r4;
    st.global.u32 [%rd1], %r3;
    ret;
}
)";
static const char weigher[] = HEAD R"(
.extern .func (.param .b32 r) helper (.param .b32 x);
.global .align 4 .u32 hidden = 100;
.weak .global .align 4 .u32 total = 5;
.visible .func (.param .b32 r) weigh (.param .b32 x)
{
    .reg .b32 %r<4>;
    ld.param.b32 %r1, [x];
    {
    .param .b32 p;
    .param .b32 q;
    st.param.b32 [p], %r1;
    call.uni (q), helper, (p);
    ld.param.b32 %r2, [q];
    }
    ld.global.u32 %r3, [hidden];
    add.u32 %r2, %r2, %r3;
    st.param.b32 [r], %r2;
    ret;
}
)";
static const char tables[] = HEAD ".visible .const .align 4 .b8 steps[8] = {1, 0, 0, 0, 20};\n.visible .global .align 4 .u32 total = 1000;\n";
static const char helper[] = HEAD ".visible .func (.param .b32 r) helper (.param .b32 x)\n{\n.reg .b32 %r<2>;\nld.param.b32 %r1, [x];\nmul.lo.u32 %r1, %r1, 7;\nst.param.b32 [r], %r1;\nret;\n}\n";
static const char unneeded[] = HEAD ".extern .func nowhere ();\n.visible .func unneeded ()\n{\ncall.uni nowhere, ();\nret;\n}\n";

// Of this program's own file, which is linked as an object.
__global__ void own(int *value) { *value = 42; }

static std::string container(const std::string &text) {
    std::string padded = text + std::string(8 - text.size() % 8, '\0');
    auto word = [](auto value) { return std::string(reinterpret_cast<const char *>(&value), sizeof value); };
    std::string entry = word(uint16_t(1)) + word(uint16_t(0x101)) + word(uint32_t(64)) + word(uint64_t(padded.size())) + word(uint32_t(0)) + word(uint32_t(0)) +
                        word(uint16_t(0)) + word(uint16_t(7)) + word(uint32_t(70)) + word(uint32_t(0)) + word(uint32_t(0)) + word(uint64_t(0x11)) +
                        word(uint64_t(0)) + word(uint64_t(0)) + padded;
    return word(uint32_t(0xBA55ED50)) + word(uint16_t(1)) + word(uint16_t(16)) + word(uint64_t(entry.size())) + entry;
}

static std::string archive(const std::string &one, const std::string &two) {
    std::string all = "!<arch>\n";
    for (const std::string &member : {one, two}) {
        char head[61];
        std::snprintf(head, sizeof head, "%-16s%-12d%-6d%-6d%-8d%-10zu`\n", "member/", 0, 0, 0, 644, member.size());
        all += head + member + (member.size() % 2 ? "\n" : "");
    }
    return all;
}

struct Linker {
    static constexpr size_t ROOM = 600;
    char log[ROOM + 8];
    void *values[2];
    CUlinkState state = nullptr;

    Linker() {
        CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
        std::memset(log, 'x', sizeof log);
        values[0] = log;
        values[1] = reinterpret_cast<void *>(ROOM);
        must(driver<CUresult (*)(unsigned, CUjit_option *, void **, CUlinkState *)>("cuLinkCreate")(2, options, values, &state));
    }
    ~Linker() { must(driver<CUresult (*)(CUlinkState)>("cuLinkDestroy")(state)); }
    static void must(CUresult result) {
        if (result != CUDA_SUCCESS) {
            std::printf("FAIL: %s\n", name_of(result));
            std::exit(1);
        }
    }
    CUresult add(CUjitInputType kind, const std::string &data, const char *name) {
        using Call = CUresult (*)(CUlinkState, CUjitInputType, void *, size_t, const char *, unsigned, CUjit_option *, void **);
        return driver<Call>("cuLinkAddData")(state, kind, const_cast<char *>(data.data()), data.size(), name, 0, nullptr, nullptr);
    }
    CUresult complete(void **image) {
        size_t bytes = 0;
        CUresult result = driver<CUresult (*)(CUlinkState, void **, size_t *)>("cuLinkComplete")(state, image, &bytes);
        if (log[ROOM] != 'x') std::printf("FAIL: the log is longer than its room\n");
        return result;
    }
    void tell(const char *what, CUresult result) {
        for (char *c = log; *c; ++c)
            if (*c == '\n') *c = '|';
        std::printf("%s: %s, %zu bytes: %s\n", what, name_of(result), reinterpret_cast<size_t>(values[1]), log);
    }
};

static int run(CUfunction function, int *device) {
    void *arguments[] = {&device};
    auto launch = driver<CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **)>("cuLaunchKernel");
    Linker::must(launch(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
    int value = 0;
    CHECK(cudaMemcpy(&value, device, sizeof value, cudaMemcpyDeviceToHost));
    return value;
}

int main() {
    int *device;
    CHECK(cudaMalloc(&device, sizeof(int)));
    own<<<1, 1>>>(device);
    CHECK(cudaDeviceSynchronize());
    {
        Linker linker;
        Linker::must(linker.add(CU_JIT_INPUT_PTX, caller, "caller.ptx"));
        Linker::must(linker.add(CU_JIT_INPUT_PTX, weigher, "weigher.ptx"));
        Linker::must(linker.add(CU_JIT_INPUT_FATBINARY, container(tables), "tables.fatbin"));
        Linker::must(linker.add(CU_JIT_INPUT_LIBRARY, archive(unneeded, helper), "libhelper.a"));
        using AddFile = CUresult (*)(CUlinkState, CUjitInputType, const char *, unsigned, CUjit_option *, void **);
        Linker::must(driver<AddFile>("cuLinkAddFile")(linker.state, CU_JIT_INPUT_OBJECT, "/proc/self/exe", 0, nullptr, nullptr));
        void *image;
        Linker::must(linker.complete(&image));
        CUmodule module;
        CUfunction function;
        auto function_of = driver<CUresult (*)(CUfunction *, CUmodule, const char *)>("cuModuleGetFunction");
        Linker::must(driver<CUresult (*)(CUmodule *, const void *)>("cuModuleLoadData")(&module, image));
        Linker::must(function_of(&function, module, "compute"));
        std::printf("module: %d\n", run(function, device));
        Linker::must(function_of(&function, module, "_Z3ownPi"));
        std::printf("object: %d\n", run(function, device));
        CUlibrary library;
        CUkernel kernel;
        using Load = CUresult (*)(CUlibrary *, const void *, CUjit_option *, void **, unsigned, CUlibraryOption *, void **, unsigned);
        Linker::must(driver<Load>("cuLibraryLoadData")(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0));
        Linker::must(driver<CUresult (*)(CUkernel *, CUlibrary, const char *)>("cuLibraryGetKernel")(&kernel, library, "compute"));
        std::printf("library: %d\n", run(reinterpret_cast<CUfunction>(kernel), device));
        linker.tell("linked", CUDA_SUCCESS);
    }
    {
        Linker linker;
        Linker::must(linker.add(CU_JIT_INPUT_PTX, caller, "caller.ptx"));
        Linker::must(linker.add(CU_JIT_INPUT_PTX, tables, "tables.ptx"));
        void *image;
        linker.tell("undefined", linker.complete(&image));
    }
    {
        Linker linker;
        Linker::must(linker.add(CU_JIT_INPUT_PTX, helper, "one.ptx"));
        Linker::must(linker.add(CU_JIT_INPUT_PTX, helper, "two.ptx"));
        void *image;
        linker.tell("twice", linker.complete(&image));
    }
    {
        Linker linker;
        linker.tell("no PTX", linker.add(CU_JIT_INPUT_PTX, HEAD ".visible .entry k()\n{\n    frobnicate;\n    ret;\n}\n", "bad.ptx"));
    }
    {
        Linker linker;
        linker.tell("LTO", linker.add(CU_JIT_INPUT_NVVM, "BC", "code.ltoir"));
    }
    return 0;
}
