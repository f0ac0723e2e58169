// Who blocks whom, between processes: `neighbour victim SECONDS` launches and waits and prints p50 and p99 in microseconds;
// `neighbour alloc|register|pinned|load|kernel|local|long SECONDS` does that one thing over and over beside it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>
#include <cuda.h>
#include <cuda_runtime.h>

using clk = std::chrono::steady_clock;
static double now() { return std::chrono::duration<double>(clk::now().time_since_epoch()).count(); }

__global__ void tick(float* p) { p[threadIdx.x] += 1; }
__global__ void busy(long long ns) {
  long long from, t;
  asm volatile("mov.u64 %0,%globaltimer;" : "=l"(from));
  do asm volatile("mov.u64 %0,%globaltimer;" : "=l"(t)); while (t - from < ns);
}
template <int N> __global__ void stack(int* out, int by) {
  volatile int room[N];
  for (int i = 0; i < N; i += 64) room[(i * by) % N] = i;
  out[0] = room[by % N];
}

static const char* kPtx = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k%d(.param .u64 p){\n.reg .b64 %%rd<3>;.reg .b32 %%r<2>;\nld.param.u64 %%rd1,[p];cvta.to.global.u64 %%rd2,%%rd1;\nmov.u32 %%r1,%d;st.global.u32 [%%rd2],%%r1;ret;}\n";

int main(int count, char** words) {
  if (count < 3) return 9;
  const std::string mode = words[1];
  const double until = now() + atof(words[2]);
  float* p = nullptr;
  if (cudaMalloc(&p, 4096) != cudaSuccess) return 1;
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  tick<<<1, 32, 0, stream>>>(p);
  cudaStreamSynchronize(stream);
  printf("ready\n");
  fflush(stdout);
  std::vector<double> waits;
  long done = 0;
  void* host = aligned_alloc(4096, 8 << 20);
  memset(host, 1, 8 << 20);
  while (now() < until) {
    const double from = now();
    if (mode == "victim") {
      tick<<<1, 32, 0, stream>>>(p);
      cudaStreamSynchronize(stream);
      waits.push_back((now() - from) * 1e6);
    } else if (mode == "alloc") {
      void* q;
      cudaMalloc(&q, 64 << 20);
      cudaFree(q);
    } else if (mode == "register") {
      cudaHostRegister(host, 8 << 20, 0);
      cudaHostUnregister(host);
    } else if (mode == "pinned") {
      void* q;
      cudaMallocHost(&q, 8 << 20);
      cudaFreeHost(q);
    } else if (mode == "load" || mode == "kernel") {
      char text[1024];
      const int id = mode == "load" ? 1 : int(done) + 2;
      snprintf(text, sizeof text, kPtx, id, id);
      CUmodule module;
      CUfunction function;
      if (cuModuleLoadData(&module, text)) return 4;
      snprintf(text, sizeof text, "k%d", id);
      if (cuModuleGetFunction(&function, module, text)) return 5;
      void* arguments[] = {&p};
      cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr);
      cudaStreamSynchronize(stream);
      cuModuleUnload(module);
    } else if (mode == "local") {
      switch (done % 4) {
        case 0: stack<1024><<<1, 32, 0, stream>>>((int*)p, 3); break;
        case 1: stack<4096><<<1, 32, 0, stream>>>((int*)p, 3); break;
        case 2: stack<16384><<<1, 32, 0, stream>>>((int*)p, 3); break;
        default: stack<65536><<<1, 32, 0, stream>>>((int*)p, 3);
      }
      cudaStreamSynchronize(stream);
    } else if (mode == "long") {
      busy<<<1, 1, 0, stream>>>(20000000);
      cudaStreamSynchronize(stream);
    } else {
      return 9;
    }
    done++;
  }
  if (!waits.empty()) {
    std::sort(waits.begin(), waits.end());
    printf("p50 %.1f p99 %.1f max %.1f\n", waits[waits.size() / 2], waits[size_t(double(waits.size()) * 0.99)], waits.back());
  }
  printf("times %ld\n", done);
  return cudaDeviceSynchronize() == cudaSuccess ? 0 : 3;
}
