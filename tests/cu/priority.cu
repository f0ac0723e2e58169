// Two that share the device: one streams kernels, the other waits for its own.
//   priority hog BLOCKS US PRIORITY     kernels of US microseconds without end in a stream of that priority; ends with its input
//   priority long BLOCKS US N           N kernels of blocks of US microseconds in the default stream, one after the other
//   priority wait N US                  N times one short kernel and its end: percentiles of the wait in microseconds
#include "../../examples/example.cuh"

#include <algorithm>
#include <chrono>
#include <poll.h>
#include <string>
#include <unistd.h>

__global__ void spin(long long ns) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while ((long long)(now - begin) < ns);
}

static int hog(int blocks, int us, int priority) {
    cudaStream_t stream;
    cudaEvent_t turn[16];
    CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority));
    for (auto &one : turn) CHECK(cudaEventCreateWithFlags(&one, cudaEventDisableTiming));
    pollfd input = {0, POLLIN, 0};
    for (long long n = 0;; ++n) {
        // Sixteen are always queued.
        if (n >= 16) CHECK(cudaEventSynchronize(turn[n % 16]));
        spin<<<blocks, 32, 0, stream>>>(1000ll * us);
        CHECK(cudaGetLastError());
        CHECK(cudaEventRecord(turn[n % 16], stream));
        if (n == 32) {
            std::puts("ready");
            std::fflush(stdout);
        }
        if (poll(&input, 1, 0) > 0) break;
    }
    CHECK(cudaDeviceSynchronize());
    return 0;
}

static int longer(int blocks, int us, int count) {
    spin<<<1, 1>>>(0);
    CHECK(cudaDeviceSynchronize());
    std::puts("ready");
    std::fflush(stdout);
    std::getchar();
    for (int n = 0; n < count; ++n) spin<<<blocks, 32>>>(1000ll * us);
    CHECK(cudaDeviceSynchronize());
    std::puts("done");
    std::fflush(stdout);
    std::getchar();
    return 0;
}

static int wait(int count, int us) {
    std::vector<double> waits;
    spin<<<1, 1>>>(0);
    CHECK(cudaDeviceSynchronize());
    for (int n = 0; n < count; ++n) {
        auto begin = std::chrono::steady_clock::now();
        spin<<<1, 32>>>(1000ll * us);
        CHECK(cudaDeviceSynchronize());
        waits.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
        usleep(500 + n % 7 * 130);
    }
    std::sort(waits.begin(), waits.end());
    auto at = [&](double part) { return waits[std::min(waits.size() - 1, size_t(part * waits.size()))]; };
    std::printf("wait_us p50 %.1f p90 %.1f p99 %.1f max %.1f\n", at(0.5), at(0.9), at(0.99), waits.back());
    return 0;
}

int main(int argc, char **argv) {
    auto number = [&](int place, int usual) { return argc > place ? std::atoi(argv[place]) : usual; };
    std::string what = argc > 1 ? argv[1] : "wait";
    if (what == "hog") return hog(number(2, 2), number(3, 500), number(4, 0));
    if (what == "long") return longer(number(2, 64), number(3, 1000), number(4, 1));
    return wait(number(2, 1000), number(3, 50));
}
