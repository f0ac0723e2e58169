// A client whose kernel faults: `culprit CLASS` runs a good kernel, then one of that class of fault, waits, and prints what it was told:
//   told CLASS CODE NAME          every wait after the fault failed with this
//   UNTOLD CLASS                  a wait after the fault succeeded
// Classes: store load atomic null misaligned trap assert stack shared invalid_pc endless
//   illegal      an instruction that is none: the kernel of `trap` out of culprit.cubin beside this program, with its first instruction overwritten
//   many         1,000 blocks of 256 threads, each with one store to a wrong address
//   many_traps   the same with a trap
//   storm        256 threads that store to wrong addresses over and over
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <elf.h>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>
#include <cuda_runtime.h>

__global__ void good(int *p) { p[threadIdx.x] += 1; }
__global__ void k_store(int *p) { p[threadIdx.x] = 1; }
__global__ void k_load(int *p, int *o) { int v = p[threadIdx.x]; if (v != 12345) o[threadIdx.x] = v; }
__global__ void k_atomic(int *p, int *o) { o[threadIdx.x] = atomicAdd(p, 1); }
__global__ void k_misaligned(char *p) { *(volatile long long *)(p + 3 + threadIdx.x * 8) = 1; }
__global__ void k_trap() { asm volatile("trap;"); }
__global__ void k_assert(int x) { assert(x == 0); }
__device__ __noinline__ int deep(int n, volatile int *a) { volatile int b[64]; b[n & 63] = a[n & 63]; return n ? deep(n - 1, b) + b[n & 7] : a[0]; }
__global__ void k_stack(int *o, int n) { volatile int a[64]; a[0] = n; *o = deep(n, a); }
__global__ void k_shared(int *o, int i) { __shared__ int s[32]; volatile int *q = s; q[i] = 1; *o = q[threadIdx.x]; }
typedef void (*Function)(int *);
__global__ void k_invalid_pc(int *o, unsigned long long where) { ((Function)where)(o); }
__global__ void k_many(int *p) { p[(size_t(blockIdx.x) << 16) + threadIdx.x] = 1; }
__global__ void k_storm(int *p) { for (int i = 0; i < 1000000; ++i) *(volatile int *)(p + (size_t(i) << 12) + threadIdx.x) = i; }
__global__ void k_endless(volatile int *p) { while (*p != 77) {} }

// Launches k_trap without a first instruction that any card knows.
cudaError_t launch_illegal(const std::string &program, cudaStream_t stream) {
    std::ifstream file(program + ".cubin", std::ios::binary);
    std::vector<char> image{std::istreambuf_iterator<char>(file), {}};
    Elf64_Ehdr header;
    if (image.size() < sizeof header) return cudaErrorFileNotFound;
    std::memcpy(&header, image.data(), sizeof header);
    std::vector<Elf64_Shdr> sections(header.e_shnum);
    if (header.e_shoff + sections.size() * sizeof(Elf64_Shdr) > image.size() || header.e_shstrndx >= sections.size()) return cudaErrorInvalidKernelImage;
    std::memcpy(sections.data(), image.data() + header.e_shoff, sections.size() * sizeof(Elf64_Shdr));
    const char *names = image.data() + sections[header.e_shstrndx].sh_offset;
    bool is_found = false;
    for (const Elf64_Shdr &section : sections) {
        if (std::strcmp(names + section.sh_name, ".text._Z6k_trapv")) continue;
        std::memset(image.data() + section.sh_offset, 0xff, 16);
        is_found = true;
    }
    if (!is_found) return cudaErrorSymbolNotFound;
    cudaLibrary_t library;
    cudaKernel_t kernel;
    if (cudaError_t error = cudaLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0)) return error;
    if (cudaError_t error = cudaLibraryGetKernel(&kernel, library, "_Z6k_trapv")) return error;
    return cudaLaunchKernel((const void *)kernel, 1, 32, nullptr, 0, stream);
}

int main(int argc, char **argv) {
    if (argc < 2) return 9;
    const std::string fault = argv[1];
    int *p, *bad = reinterpret_cast<int *>(0xdead0000ull);
    cudaStream_t s;
    if (cudaMalloc(&p, 4096) || cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)) return 8;
    cudaMemset(p, 0, 4096);
    good<<<1, 32, 0, s>>>(p);
    if (cudaError_t error = cudaStreamSynchronize(s)) { std::printf("early %s %d %s\n", fault.c_str(), error, cudaGetErrorName(error)); return 7; }
    std::printf("ready\n");
    std::fflush(stdout);
    if (fault == "store") k_store<<<1, 32, 0, s>>>(bad);
    else if (fault == "null") k_store<<<1, 32, 0, s>>>(nullptr);
    else if (fault == "load") k_load<<<1, 32, 0, s>>>(bad, p);
    else if (fault == "atomic") k_atomic<<<1, 32, 0, s>>>(bad, p);
    else if (fault == "misaligned") k_misaligned<<<1, 32, 0, s>>>((char *)p);
    else if (fault == "trap") k_trap<<<1, 32, 0, s>>>();
    else if (fault == "assert") k_assert<<<1, 32, 0, s>>>(1);
    else if (fault == "stack") k_stack<<<1, 32, 0, s>>>(p, 100000);
    else if (fault == "shared") k_shared<<<1, 32, 0, s>>>(p, 1 << 20);
    else if (fault == "invalid_pc") k_invalid_pc<<<1, 1, 0, s>>>(p, 0x7ffffff00ull);
    else if (fault == "many") k_many<<<1000, 256, 0, s>>>(bad);
    else if (fault == "many_traps") k_trap<<<1000, 256, 0, s>>>();
    else if (fault == "storm") k_storm<<<1, 256, 0, s>>>(bad);
    else if (fault == "illegal") {
        if (cudaError_t error = launch_illegal(argv[0], s)) { std::printf("early illegal %d %s\n", error, cudaGetErrorName(error)); return 7; }
    }
    else if (fault == "endless") k_endless<<<1, 1, 0, s>>>(p);
    else return 9;
    cudaError_t error = cudaStreamSynchronize(s);
    if (error == cudaSuccess) error = cudaStreamSynchronize(s) == cudaSuccess ? cudaSuccess : cudaErrorUnknown;
    if (error == cudaSuccess) std::printf("UNTOLD %s\n", fault.c_str());
    else std::printf("told %s %d %s\n", fault.c_str(), int(error), cudaGetErrorName(error));
    std::fflush(stdout);
    std::_Exit(0);
}
