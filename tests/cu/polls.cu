// A kernel that polls a word until a copy in another stream writes it, three times. From the second
// time on it is known that the kernel takes long. Then kernels in four streams that wait for one
// another and take 10 ms, three times. Prints "polled", and how many rounds were right.
#include <chrono>

#include "../../examples/example.cuh"

__global__ void poll(volatile unsigned *flag, unsigned *out) {
    while (*flag == 0) {}
    *out += 1;
}

__global__ void meet(volatile unsigned *arrived, unsigned count) {
    atomicAdd(const_cast<unsigned *>(arrived), 1);
    while (*arrived < count) {}
    long long begun, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begun));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - begun < 10000000);
}

int main() {
    unsigned *words, *pinned, right = 0, value;
    CHECK(cudaMalloc(&words, 4096));
    CHECK(cudaMemset(words, 0, 4096));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMallocHost(&pinned, sizeof(unsigned)));
    cudaStream_t streams[4];
    for (cudaStream_t &stream : streams) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (unsigned round = 1; round <= 3; ++round) {
        CHECK(cudaMemsetAsync(words, 0, 4, streams[1]));
        CHECK(cudaStreamSynchronize(streams[1]));
        poll<<<1, 1, 0, streams[0]>>>(words, words + 64);
        CHECK(cudaGetLastError());
        // It polls for long.
        const auto begun = std::chrono::steady_clock::now();
        while (std::chrono::steady_clock::now() - begun < std::chrono::milliseconds(30)) {}
        *pinned = 1;
        CHECK(cudaMemcpyAsync(words, pinned, 4, cudaMemcpyHostToDevice, streams[1]));
        CHECK(cudaStreamSynchronize(streams[0]));
        CHECK(cudaMemcpy(&value, words + 64, 4, cudaMemcpyDeviceToHost));
        right += value == round;
    }
    for (unsigned round = 1; round <= 3; ++round) {
        CHECK(cudaMemsetAsync(words + 128, 0, 4, streams[0]));
        CHECK(cudaStreamSynchronize(streams[0]));
        for (cudaStream_t stream : streams) meet<<<1, 1, 0, stream>>>(words + 128, 4);
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaMemcpy(&value, words + 128, 4, cudaMemcpyDeviceToHost));
        right += value == 4;
    }
    std::printf("polled, %u of 6 rounds right\n", right);
}
