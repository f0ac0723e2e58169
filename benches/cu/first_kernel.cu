// Starts, runs one kernel, checks it, says "done" and how long launches cost; with "hold" it then waits for its input to close.
// first_kernel [hold] | first_kernel launches N: CPU time of the calling thread for each of N asynchronous launches.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <cuda_runtime.h>

__global__ void set(int* to, int value) { to[threadIdx.x] = value + int(threadIdx.x); }

static double cpu() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) * 1e9 + double(t.tv_nsec);
}

int main(int count, char** words) {
  int* device = nullptr;
  int host[32] = {};
  if (cudaMalloc(&device, sizeof host) != cudaSuccess) return 1;
  set<<<1, 32>>>(device, 7);
  if (cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost) != cudaSuccess || host[31] != 38) return 2;
  printf("done\n");
  fflush(stdout);
  if (count > 2 && !strcmp(words[1], "launches")) {
    cudaStream_t stream;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    const int rounds = atoi(words[2]) / 100;
    double spent = 0;
    for (int round = 0; round < rounds; round++) {
      const double from = cpu();
      for (int i = 0; i < 100; i++) set<<<1, 32, 0, stream>>>(device, i);
      spent += cpu() - from;
      cudaStreamSynchronize(stream);
    }
    printf("ns per launch %.0f\n", spent / (rounds * 100.0));
  } else if (count > 1 && !strcmp(words[1], "hold")) {
    while (getchar() != EOF) {
    }
  }
  return cudaDeviceSynchronize() == cudaSuccess ? 0 : 3;
}
