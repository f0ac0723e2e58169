// Green contexts of the whole card, for programs that measure them.
#pragma once
#include <cuda.h>
#include "../../examples/example.cuh"

#define DRIVER(call)                                        \
    do {                                                    \
        CUresult status = (call);                           \
        if (status != CUDA_SUCCESS) {                       \
            std::printf("%s: error %d\n", #call, status);   \
            std::exit(1);                                   \
        }                                                   \
    } while (0)

// A context of all multiprocessors, in the address space of the primary one.
static CUgreenCtx make_green(CUdevice device) {
    CUdevResource all;
    CUdevResourceDesc description;
    CUgreenCtx green;
    DRIVER(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
    DRIVER(cuDevResourceGenerateDesc(&description, &all, 1));
    DRIVER(cuGreenCtxCreate(&green, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
}
