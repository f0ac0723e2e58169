// What copies of one client suffer from copies of others: they share the copy engines' queues.
//   copies short|long|bulk SECONDS
// Copies 1 MiB (bulk: 64 MiB) of pinned memory from the card and back, again and again, in one
// stream; long: each time behind a kernel of one block that takes 8 ms. Prints how long a round
// takes, and the rate. Several at once show what they cost each other, with
// CUMUX_COPY_CONNECTIONS=N in the daemon's environment:
//   for i in 1 2 3 4 5 6 7; do copies long 5 & done; sleep 1; copies short 3; wait
//   for i in 1 2 3 4 5 6 7 8; do copies bulk 3 & done; wait
#include <algorithm>
#include <chrono>
#include <cstring>
#include "../../examples/example.cuh"

static const long long KERNEL_NS = 8000000;

__global__ void spin(long long ns) {
  long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < ns);
}

static double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int main(int count, char **words) {
  if (count < 3) {
    printf("copies short|long|bulk SECONDS\n");
    return 2;
  }
  const bool is_long = !strcmp(words[1], "long"), is_bulk = !strcmp(words[1], "bulk");
  const size_t bytes = (is_bulk ? 64u : 1u) << 20;
  const double limit = atof(words[2]);
  char *host, *card;
  cudaStream_t stream;
  CHECK(cudaMallocHost(&host, bytes));
  CHECK(cudaMalloc(&card, bytes));
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::vector<double> took;
  const double begun = seconds_now();
  while (seconds_now() - begun < limit) {
    const double before = seconds_now();
    if (is_long) spin<<<1, 32, 0, stream>>>(KERNEL_NS);
    CHECK(cudaMemcpyAsync(host, card, bytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaMemcpyAsync(card, host, bytes, cudaMemcpyHostToDevice, stream));
    CHECK(cudaStreamSynchronize(stream));
    took.push_back(seconds_now() - before);
  }
  std::sort(took.begin(), took.end());
  printf("%s: %zu rounds, p50 %.0f us, p99 %.0f us, %.1f GB/s\n", words[1], took.size(), took[took.size() / 2] * 1e6, took[took.size() * 99 / 100] * 1e6,
         2 * bytes * took.size() / limit / 1e9);
  return 0;
}
