// What all examples share: errors end the program with a sentence, arguments scale the work, one line tells the result.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                                     \
    do {                                                                                                \
        cudaError_t check_result = (call);                                                              \
        if (check_result != cudaSuccess) {                                                              \
            std::printf("FAIL: %s: %s (%s:%d)\n", #call, cudaGetErrorString(check_result), __FILE__, __LINE__); \
            std::exit(1);                                                                               \
        }                                                                                               \
    } while (0)

// The first argument, or what is usual: how often the work is done.
inline int rounds(int argc, char **argv, int usual) {
    int asked = argc > 1 ? std::atoi(argv[1]) : usual;
    return asked > 0 ? asked : usual;
}

// Ends an example whose results were compared with what the CPU finds.
inline int finish(const char *name, bool right, long long checked) {
    std::printf("%s: %s, %lld results verified\n", name, right ? "PASS" : "FAIL", checked);
    return right ? 0 : 1;
}
