// What the programs share that look at work beside a kernel that does not end: errors of the driver
// and of the runtime end the program, one kernel spins until a word is written, one takes no time.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                              \
    do {                                                                                         \
        auto status = (call);                                                                    \
        if (int(status) != 0) {                                                                  \
            std::printf("%s: %d\n", #call, int(status));                                         \
            std::exit(1);                                                                        \
        }                                                                                        \
    } while (0)

__global__ void spin(volatile unsigned *until) { while (*until == 0) {} }
__global__ void tiny(unsigned *out) { *out += 1; }
