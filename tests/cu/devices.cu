// Uses every device it sees: prints what they are, then works on all of them, and again for each line it reads. "fault" as a line makes an
// illegal access on the first device.
#include "../../examples/example.cuh"

#include <cstring>

__global__ void fill(int *values, int n, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = value + i;
}

__global__ void write_to(int *where) { *where = 1; }

int main() {
    const int n = 4096;
    int count = 0;
    cudaError_t result = cudaGetDeviceCount(&count);
    std::printf("count %d %s\n", count, cudaGetErrorName(result));
    if (result != cudaSuccess) return 3;
    std::vector<int *> memory(count), copy(count);
    for (int device = 0; device < count; ++device) {
        cudaDeviceProp properties;
        size_t free = 0, total = 0;
        CHECK(cudaSetDevice(device));
        CHECK(cudaGetDeviceProperties(&properties, device));
        CHECK(cudaMalloc(&memory[device], n * sizeof(int)));
        CHECK(cudaMalloc(&copy[device], n * sizeof(int)));
        CHECK(cudaMemGetInfo(&free, &total));
        std::printf("device %d %s uuid ", device, properties.name);
        for (int byte = 0; byte < 16; ++byte) std::printf("%02x", (unsigned char)properties.uuid.bytes[byte]);
        std::printf(" sms %d free %zu\n", properties.multiProcessorCount, free >> 20);
    }
    char line[64] = "";
    for (int round = 0; round == 0 || std::fgets(line, sizeof line, stdin); ++round) {
        if (std::strncmp(line, "fault", 5) == 0) {
            CHECK(cudaSetDevice(0));
            write_to<<<1, 1>>>(reinterpret_cast<int *>(0xdead0000ull));
            std::printf("fault %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
            return 4;
        }
        for (int device = 0; device < count; ++device) {
            CHECK(cudaSetDevice(device));
            fill<<<n / 128, 128>>>(memory[device], n, round * 100 + device);
            CHECK(cudaGetLastError());
        }
        for (int device = 0; device < count; ++device) {
            // From the neighbour, then to the host while yet another device is current.
            int from = (device + 1) % count;
            CHECK(cudaSetDevice(from));
            CHECK(cudaDeviceSynchronize());
            CHECK(cudaMemcpyPeer(copy[device], device, memory[from], from, n * sizeof(int)));
            std::vector<int> found(n);
            CHECK(cudaMemcpy(found.data(), copy[device], n * sizeof(int), cudaMemcpyDefault));
            for (int i = 0; i < n; ++i) {
                if (found[i] != round * 100 + from + i) {
                    std::printf("FAIL: round %d, device %d, element %d is %d\n", round, device, i, found[i]);
                    return 1;
                }
            }
            CHECK(cudaMemset(copy[device], 0, n * sizeof(int)));
        }
        std::printf("round %d right\n", round);
        std::fflush(stdout);
    }
    return 0;
}
