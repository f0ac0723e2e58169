// Bodies under gravity, all pairs, by tiles in shared memory. Compared with the CPU's own steps within a small error.
#include "example.cuh"

#include <cmath>

constexpr float step = 0.01f, softening = 0.05f;

__host__ __device__ inline void attract(float4 body, float4 other, float3 &force) {
    float x = other.x - body.x, y = other.y - body.y, z = other.z - body.z;
    float square = x * x + y * y + z * z + softening;
    float weight = other.w / (square * sqrtf(square));
    force.x += x * weight;
    force.y += y * weight;
    force.z += z * weight;
}

__host__ __device__ inline void move(float4 &body, float4 &speed, float3 force) {
    speed.x += force.x * step;
    speed.y += force.y * step;
    speed.z += force.z * step;
    body.x += speed.x * step;
    body.y += speed.y * step;
    body.z += speed.z * step;
}

__global__ void advance(const float4 *before, float4 *after, float4 *speeds, int n) {
    extern __shared__ float4 tile[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 body = before[i];
    float3 force = {0, 0, 0};
    for (int start = 0; start < n; start += blockDim.x) {
        tile[threadIdx.x] = before[start + threadIdx.x];
        __syncthreads();
        for (int k = 0; k < blockDim.x; ++k) attract(body, tile[k], force);
        __syncthreads();
    }
    move(body, speeds[i], force);
    after[i] = body;
}

int main(int argc, char **argv) {
    const int n = 1024, threads = 128, count = rounds(argc, argv, 4);
    std::vector<float4> bodies(n), speeds(n), next(n);
    for (int i = 0; i < n; ++i) bodies[i] = {std::sin(i * 1.7f), std::cos(i * 2.3f), std::sin(i * 0.9f), 1.0f / n};
    float4 *device[2], *device_speeds;
    const size_t bytes = n * sizeof(float4);
    CHECK(cudaMalloc(&device[0], bytes));
    CHECK(cudaMalloc(&device[1], bytes));
    CHECK(cudaMalloc(&device_speeds, bytes));
    CHECK(cudaMemcpy(device[0], bodies.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(device_speeds, 0, bytes));
    for (int round = 0; round < count; ++round) {
        advance<<<n / threads, threads, threads * sizeof(float4)>>>(device[round % 2], device[1 - round % 2], device_speeds, n);
        CHECK(cudaGetLastError());
    }
    std::vector<float4> found(n);
    CHECK(cudaMemcpy(found.data(), device[count % 2], bytes, cudaMemcpyDeviceToHost));
    for (int round = 0; round < count; ++round) {
        for (int i = 0; i < n; ++i) {
            float3 force = {0, 0, 0};
            for (int k = 0; k < n; ++k) attract(bodies[i], bodies[k], force);
            next[i] = bodies[i];
            move(next[i], speeds[i], force);
        }
        bodies.swap(next);
    }
    bool right = true;
    for (int i = 0; i < n; ++i) {
        float error = std::fabs(found[i].x - bodies[i].x) + std::fabs(found[i].y - bodies[i].y) + std::fabs(found[i].z - bodies[i].z);
        right &= error < 1e-4f;
    }
    CHECK(cudaFree(device[0]));
    CHECK(cudaFree(device[1]));
    CHECK(cudaFree(device_speeds));
    return finish("nbody", right, n);
}
