// Kernels on every device that the program sees ask which device that is, how many there are, and how many multiprocessors their own, another
// and a missing one have.
// nvcc: -rdc=true -lcudadevrt -gencode arch=compute_75,code=compute_75
#include "../../examples/example.cuh"

struct Answers {
    int own, count, multiprocessors, of_other, of_missing;
};

__global__ void ask(Answers *answers) {
    int ignored;
    if (cudaGetDevice(&answers->own) != cudaSuccess) answers->own = -1;
    if (cudaGetDeviceCount(&answers->count) != cudaSuccess) answers->count = -1;
    if (cudaDeviceGetAttribute(&answers->multiprocessors, cudaDevAttrMultiProcessorCount, answers->own) != cudaSuccess) answers->multiprocessors = -1;
    answers->of_other = cudaDeviceGetAttribute(&ignored, cudaDevAttrMultiProcessorCount, answers->own == 0 ? 1 : 0);
    answers->of_missing = cudaDeviceGetAttribute(&ignored, cudaDevAttrMultiProcessorCount, answers->count);
}

int main() {
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    for (int device = 0; device < count; ++device) {
        Answers *memory, answers;
        cudaDeviceProp properties;
        CHECK(cudaSetDevice(device));
        CHECK(cudaGetDeviceProperties(&properties, device));
        CHECK(cudaMalloc(&memory, sizeof answers));
        ask<<<1, 1>>>(memory);
        CHECK(cudaMemcpy(&answers, memory, sizeof answers, cudaMemcpyDefault));
        std::printf("%s %d of %d, %s, %s, %s\n", properties.name, answers.own, answers.count,
                    answers.multiprocessors == properties.multiProcessorCount ? "its own multiprocessors" : "WRONG",
                    cudaGetErrorName(cudaError_t(answers.of_other)), cudaGetErrorName(cudaError_t(answers.of_missing)));
    }
    return 0;
}
