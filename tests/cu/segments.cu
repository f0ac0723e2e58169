// The same kernels again and again, without memory: a program that a successor goes on with from
// any moment at which nothing runs. Each line of standard input has it do some passes.
#include "../../examples/example.cuh"

__global__ void wait_for(int turns) {
    const long long begun = clock64();
    while (clock64() - begun < turns) {}
}

int main() {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    std::puts("ready");
    std::fflush(stdout);
    char line[16];
    for (int round = 1; std::fgets(line, sizeof line, stdin); ++round) {
        for (int kernel = 0; kernel < 2400; ++kernel) wait_for<<<1 + kernel % 40, 1, 0, stream>>>(kernel);
        CHECK(cudaGetLastError());
        CHECK(cudaStreamSynchronize(stream));
        std::printf("round %d\n", round);
        std::fflush(stdout);
    }
    return 0;
}
