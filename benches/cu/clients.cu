// What many programs get of one GPU: `clients N BLOCKS THREADS NS BATCH SECONDS [FMA]` forks N processes. Each launches BATCH kernels and waits for them, over and
// over: kernels that look at the clock until NS nanoseconds have passed, or that do FMA multiply-adds. Prints kernels a second of all together, and how long a
// batch takes: the mean of the processes' medians, and the worst p99.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cuda_runtime.h>

static double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

#define CHECK(call)                                                                          \
  do {                                                                                       \
    cudaError_t error = (call);                                                              \
    if (error != cudaSuccess) {                                                              \
      fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(error));          \
      _exit(3);                                                                              \
    }                                                                                        \
  } while (0)

__global__ void spin(float* p, long long ns) {
  long long from, t;
  asm volatile("mov.u64 %0,%globaltimer;" : "=l"(from));
  float a = p[threadIdx.x];
  do {
    for (int i = 0; i < 32; i++) a = a * 1.0001f + 0.5f;
    asm volatile("mov.u64 %0,%globaltimer;" : "=l"(t));
  } while (t - from < ns);
  p[blockIdx.x * blockDim.x + threadIdx.x] = a;
}

__global__ void multiply_add(float* p, int n) {
  float a = p[threadIdx.x];
  for (int i = 0; i < n; i++) a = a * 1.0001f + 0.5f;
  p[blockIdx.x * blockDim.x + threadIdx.x] = a;
}

constexpr int kMost = 256;

/// What the processes tell each other.
struct Shared {
  std::atomic<int> ready;
  struct {
    double rate, p50, p99, init, first;
  } of[kMost];
};

struct Work {
  int blocks, threads;
  long long ns;
  int batch;
  double seconds;
  int fma;
};

static void client(Shared* shared, int id, int clients, const Work& work) {
  auto& mine = shared->of[id];
  double begun = now();
  CHECK(cudaFree(nullptr));
  mine.init = now() - begun;
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  float* buffer;
  CHECK(cudaMalloc(&buffer, 64 << 20));
  auto run = [&](int times) {
    for (int i = 0; i < times; i++) {
      if (work.fma) multiply_add<<<work.blocks, work.threads, 0, stream>>>(buffer, work.fma);
      else spin<<<work.blocks, work.threads, 0, stream>>>(buffer, work.ns);
    }
    CHECK(cudaStreamSynchronize(stream));
  };
  begun = now();
  run(1);
  mine.first = now() - begun;
  run(50);
  shared->ready++;
  while (shared->ready < clients) usleep(50);

  std::vector<double> batches;
  begun = now();
  while (now() - begun < work.seconds) {
    const double from = now();
    run(work.batch);
    batches.push_back(now() - from);
  }
  mine.rate = batches.size() * double(work.batch) / (now() - begun);
  std::sort(batches.begin(), batches.end());
  mine.p50 = batches[batches.size() / 2];
  mine.p99 = batches[size_t(batches.size() * 0.99)];
}

int main(int count, char** words) {
  const int clients = count > 1 ? atoi(words[1]) : 0;
  if (count < 7 || clients < 1 || clients > kMost) {
    fprintf(stderr, "usage: clients N BLOCKS THREADS NS BATCH SECONDS [FMA], N at most %d\n", kMost);
    return 2;
  }
  const Work work{atoi(words[2]), atoi(words[3]), atoll(words[4]), std::max(1, atoi(words[5])), atof(words[6]), count > 7 ? atoi(words[7]) : 0};
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  Shared* shared = new (memory) Shared{};
  for (int id = 0; id < clients; id++) {
    if (fork() == 0) {
      client(shared, id, clients, work);
      _exit(0);
    }
  }
  int status;
  while (wait(&status) > 0)
    if (status) printf("child status %x\n", status);
  double rate = 0, p50 = 0, p99 = 0, init = 0, first = 0;
  for (int id = 0; id < clients; id++) {
    const auto& one = shared->of[id];
    rate += one.rate;
    p99 = std::max(p99, one.p99);
    p50 += one.p50 / clients;
    init += one.init / clients;
    first += one.first / clients;
  }
  printf("clients %d blocks %d threads %d ns %lld batch %d fma %d | agg %.0f kernels/s  batch p50 %.1f us p99max %.1f us  init %.0f ms first %.3f ms\n", clients,
         work.blocks, work.threads, work.ns, work.batch, work.fma, rate, p50 * 1e6, p99 * 1e6, init * 1e3, first * 1e3);
}
