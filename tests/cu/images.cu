// Loads images that are broken in several ways through the driver API and prints what it is told; then does honest work.
#include "../../examples/example.cuh"

#include <cuda.h>

#include <cstring>
#include <cstdint>

template <typename Function>
static Function driver(const char *name) {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result;
    CHECK(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result));
    if (!found) {
        std::printf("FAIL: no %s\n", name);
        std::exit(1);
    }
    return reinterpret_cast<Function>(found);
}

__global__ void honest(int *value) { *value = 42; }

int main() {
    CHECK(cudaFree(nullptr));
    auto load = driver<CUresult (*)(CUmodule *, const void *, unsigned, CUjit_option *, void **)>("cuModuleLoadDataEx");
    auto name_of = driver<CUresult (*)(CUresult, const char **)>("cuGetErrorName");
    auto attempt = [&](const char *what, const void *image) {
        static char log[4096];
        std::memset(log, 0, sizeof log);
        CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
        void *values[] = {log, reinterpret_cast<void *>(uintptr_t(sizeof log))};
        CUmodule module = nullptr;
        const char *name = "?";
        CUresult result = load(&module, image, 2, options, values);
        name_of(result, &name);
        for (char *c = log; *c; ++c)
            if (*c == '\n') *c = ' ';
        std::printf("%s: %s: %s\n", what, name, log);
    };

    // A container that promises more than is there: its one entry is longer than itself.
    alignas(8) unsigned char fatbin[16 + 64] = {};
    const uint32_t magic = 0xBA55ED50;
    const uint16_t version = 1, header = 16;
    const uint64_t inside = 64, claimed = 1 << 20;
    const uint16_t kind = 1, entry_version = 0x101;
    const uint32_t entry_header = 64;
    std::memcpy(fatbin, &magic, 4);
    std::memcpy(fatbin + 4, &version, 2);
    std::memcpy(fatbin + 6, &header, 2);
    std::memcpy(fatbin + 8, &inside, 8);
    std::memcpy(fatbin + 16, &kind, 2);
    std::memcpy(fatbin + 18, &entry_version, 2);
    std::memcpy(fatbin + 20, &entry_header, 4);
    std::memcpy(fatbin + 24, &claimed, 8);
    attempt("truncated fatbin", fatbin);

    attempt("syntax error", ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k()\n{\n    .reg .u32 %r<2>;\n    mov.u32 %r1 1;\n    ret;\n}\n");
    attempt("unknown instruction", ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k()\n{\n    frobnicate.u32;\n    ret;\n}\n");
    attempt("no image", "this is no image at all");
    attempt("empty", "");

    int *device, found = 0;
    CHECK(cudaMalloc(&device, sizeof(int)));
    honest<<<1, 1>>>(device);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&found, device, sizeof found, cudaMemcpyDeviceToHost));
    return finish("images", found == 42, 1);
}
