// What `cudaGraphSetConditional` does with its handle on a card, seen from outside: what handles
// look like, and what a kernel that gets another number as a handle changes in memory.
//   conditions
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>

#define CHECK(call)                                                                              \
    do {                                                                                         \
        cudaError_t status = (call);                                                             \
        if (status != cudaSuccess) {                                                             \
            std::printf("%s: %s\n", #call, cudaGetErrorName(status));                            \
            std::exit(1);                                                                        \
        }                                                                                        \
    } while (0)

__global__ void decide(cudaGraphConditionalHandle handle, unsigned value) { cudaGraphSetConditional(handle, value); }
__global__ void count(unsigned *word) { *word += 1; }

static void describe(const char *what, unsigned long long handle) {
    unsigned kind = 0;
    CUdeviceptr begin = 0;
    size_t bytes = 0;
    CUresult known = cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, handle);
    cuMemGetAddressRange(&begin, &bytes, handle);
    std::printf("%s: %#llx, memory type %s %u, in %#llx of %zu bytes\n", what, handle, known == CUDA_SUCCESS ? "known" : "not known", kind, (unsigned long long)begin, bytes);
}

// A graph of one `while` node that counts as long as the condition is not zero.
static cudaGraphExec_t make(cudaGraphConditionalHandle *handle, unsigned *word, unsigned flags) {
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphConditionalHandleCreate(handle, graph, 0, flags));
    cudaGraphNodeParams given = {};
    given.type = cudaGraphNodeTypeConditional;
    given.conditional.handle = *handle, given.conditional.type = cudaGraphCondTypeIf, given.conditional.size = 1;
    cudaGraphNode_t node, inner;
    CHECK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &given));
    cudaKernelNodeParams kernel = {};
    void *arguments[] = {&word};
    kernel.func = (void *)count, kernel.gridDim = kernel.blockDim = dim3(1), kernel.kernelParams = arguments;
    CHECK(cudaGraphAddKernelNode(&inner, given.conditional.phGraph_out[0], nullptr, 0, &kernel));
    cudaGraphExec_t executable;
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    return executable;
}

int main() {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    unsigned *memory, *word, counted = 0, found[64];
    CHECK(cudaMalloc(&memory, 4096));
    CHECK(cudaMalloc(&word, 4));
    CHECK(cudaMemset(memory, 0xab, 4096));
    CHECK(cudaMemset(word, 0, 4));
    cudaGraphConditionalHandle handles[2];
    cudaGraphExec_t executable = make(&handles[0], word, 0);
    make(&handles[1], word, cudaGraphCondAssignDefault);
    describe("a handle", handles[0]);
    describe("another one", handles[1]);
    // A kernel that is in no graph sets it, and then the graph is launched.
    for (unsigned value : {1u, 0u, 2u}) {
        decide<<<1, 1>>>(handles[0], value);
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaGraphLaunch(executable, nullptr));
        CHECK(cudaMemcpy(&counted, word, 4, cudaMemcpyDeviceToHost));
        std::printf("set to %u outside of the graph: the body has run %u times\n", value, counted);
    }
    // An address of our own for a handle.
    decide<<<1, 1>>>((unsigned long long)(memory + 16), 0x12345678u);
    cudaError_t status = cudaDeviceSynchronize();
    std::printf("an address as a handle: %s\n", cudaGetErrorName(status));
    if (status != cudaSuccess) return 0;
    CHECK(cudaMemcpy(found, memory, sizeof found, cudaMemcpyDeviceToHost));
    for (int at = 0; at < 64; ++at)
        if (found[at] != 0xababababu) std::printf("at %+d bytes: %#x\n", (at - 16) * 4, found[at]);
}
