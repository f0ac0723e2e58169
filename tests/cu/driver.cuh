// The driver API without linking to it: the program runs with whatever libcuda.so.1 it finds.
#pragma once

#include "../../examples/example.cuh"

#include <cuda.h>

template <typename Function>
static Function driver(const char *name, unsigned version = 12000) {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result;
    CHECK(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result));
    if (!found) {
        std::printf("FAIL: no %s\n", name);
        std::exit(1);
    }
    return reinterpret_cast<Function>(found);
}

static const char *name_of(CUresult result) {
    static auto ask = driver<CUresult (*)(CUresult, const char **)>("cuGetErrorName");
    const char *name = "?";
    ask(result, &name);
    return name;
}

#define CHECK_DRIVER(call)                                                  \
    do {                                                                    \
        CUresult result_ = (call);                                          \
        if (result_ != CUDA_SUCCESS) {                                      \
            std::printf("FAIL: %s: %s\n", #call, name_of(result_));         \
            std::exit(1);                                                   \
        }                                                                   \
    } while (0)
