// Thread block clusters: shared memory of other blocks, barriers of a cluster, launches that name a cluster in every
// way, graphs of such launches, and what is refused. Compares with what the CPU finds.
// nvcc: -gencode arch=compute_90,code=compute_90
#include "../../examples/example.cuh"

#include <cooperative_groups.h>
#include <vector>

namespace cg = cooperative_groups;

constexpr int THREADS = 128, BINS = 1000;

// A histogram whose bins lie in the shared memory of all blocks of a cluster.
__global__ void histogram(const unsigned *values, int count, unsigned *bins) {
    extern __shared__ unsigned part[];
    cg::cluster_group cluster = cg::this_cluster();
    int blocks = cluster.num_blocks(), each = (BINS + blocks - 1) / blocks;
    for (int i = threadIdx.x; i < each; i += blockDim.x) part[i] = 0;
    cluster.sync();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        int bin = values[i] % BINS;
        atomicAdd(cluster.map_shared_rank(part, bin / each) + bin % each, 1u);
    }
    cluster.sync();
    for (int i = threadIdx.x; i < each; i += blockDim.x) {
        int bin = cluster.block_rank() * each + i;
        if (bin < BINS && part[i]) atomicAdd(bins + bin, part[i]);
    }
}

// Each block sums what its neighbours have in shared memory, round after round.
__global__ void __cluster_dims__(2, 2, 1) relax(float *out, int rounds) {
    __shared__ float mine[THREADS];
    cg::cluster_group cluster = cg::this_cluster();
    unsigned rank = cluster.block_rank();
    mine[threadIdx.x] = float(rank * THREADS + threadIdx.x);
    for (int round = 0; round < rounds; ++round) {
        cluster.sync();
        float *next = cluster.map_shared_rank(mine, (rank + 1) % cluster.num_blocks());
        float sum = mine[threadIdx.x] + next[(threadIdx.x + 1) % THREADS];
        cluster.sync();
        mine[threadIdx.x] = sum * 0.5f;
    }
    cluster.sync();
    unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
    out[block * THREADS + threadIdx.x] = mine[threadIdx.x];
}

// Where each block is.
__global__ void places(uint4 *out) {
    cg::cluster_group cluster = cg::this_cluster();
    dim3 within = cluster.block_index(), size = cluster.dim_blocks();
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    if (threadIdx.x == 0) out[block] = make_uint4(within.x + 10 * within.y + 100 * within.z, size.x + 10 * size.y + 100 * size.z, cluster.block_rank(), cluster.num_blocks());
}

static bool right = true;

static void expect(bool holds, const char *what) {
    if (!holds) printf("wrong: %s\n", what);
    right &= holds;
}

struct Launch {
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute[1];
    Launch(dim3 grid, dim3 block, dim3 cluster, size_t shared = 0, cudaStream_t stream = nullptr) {
        config.gridDim = grid;
        config.blockDim = block;
        config.dynamicSmemBytes = shared;
        config.stream = stream;
        attribute[0].id = cudaLaunchAttributeClusterDimension;
        attribute[0].val.clusterDim.x = cluster.x;
        attribute[0].val.clusterDim.y = cluster.y;
        attribute[0].val.clusterDim.z = cluster.z;
        config.attrs = attribute;
        config.numAttrs = 1;
    }
};

static void histograms() {
    int count = 100000;
    std::vector<unsigned> values(count), expected(BINS, 0);
    unsigned state = 1;
    for (unsigned &value : values) {
        state = state * 1664525u + 1013904223u;
        value = state >> 8;
        ++expected[value % BINS];
    }
    unsigned *device, *bins;
    CHECK(cudaMalloc(&device, count * sizeof(unsigned)));
    CHECK(cudaMallocManaged(&bins, BINS * sizeof(unsigned)));
    CHECK(cudaMemcpy(device, values.data(), count * sizeof(unsigned), cudaMemcpyHostToDevice));
    for (unsigned cluster : {1, 2, 4, 8, 16}) {
        CHECK(cudaMemset(bins, 0, BINS * sizeof(unsigned)));
        size_t shared = (BINS + cluster - 1) / cluster * sizeof(unsigned);
        Launch launch(16, THREADS, cluster, shared);
        if (cluster > 8) {
            expect(cudaLaunchKernelEx(&launch.config, histogram, (const unsigned *)device, count, bins) == cudaErrorInvalidClusterSize, "a cluster that the function did not ask for");
            cudaGetLastError();
            CHECK(cudaFuncSetAttribute(histogram, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
        }
        CHECK(cudaLaunchKernelEx(&launch.config, histogram, (const unsigned *)device, count, bins));
        CHECK(cudaDeviceSynchronize());
        expect(std::vector<unsigned>(bins, bins + BINS) == expected, "a histogram over the blocks of a cluster");
    }
    int clusters = 0, largest = 0;
    Launch launch(16, THREADS, 4, 4000);
    CHECK(cudaOccupancyMaxActiveClusters(&clusters, histogram, &launch.config));
    CHECK(cudaOccupancyMaxPotentialClusterSize(&largest, histogram, &launch.config));
    expect(clusters > 0 && largest == 16, "the occupancy of clusters");
    CHECK(cudaFree(device));
    CHECK(cudaFree(bins));
}

static void rounds() {
    constexpr int BLOCKS = 4 * 4, ROUNDS = 20;
    float *out;
    CHECK(cudaMallocManaged(&out, BLOCKS * THREADS * sizeof(float)));
    // The kernel says its cluster itself, so that an ordinary launch has it.
    relax<<<dim3(4, 4), THREADS>>>(out, ROUNDS);
    CHECK(cudaDeviceSynchronize());
    std::vector<float> now(4 * THREADS), next;
    for (int i = 0; i < 4 * THREADS; ++i) now[i] = float(i);
    for (int round = 0; round < ROUNDS; ++round) {
        next = now;
        for (int rank = 0; rank < 4; ++rank)
            for (int i = 0; i < THREADS; ++i) next[rank * THREADS + i] = (now[rank * THREADS + i] + now[(rank + 1) % 4 * THREADS + (i + 1) % THREADS]) * 0.5f;
        now = next;
    }
    bool same = true;
    for (int y = 0; y < 4; ++y)
        for (int x = 0; x < 4; ++x)
            for (int i = 0; i < THREADS; ++i) same &= out[(y * 4 + x) * THREADS + i] == now[(y % 2 * 2 + x % 2) * THREADS + i];
    expect(same, "rounds between the blocks of a cluster");
    Launch other(dim3(4, 4), THREADS, dim3(4, 1, 1));
    expect(cudaLaunchKernelEx(&other.config, relax, out, 1) == cudaErrorInvalidClusterSize, "another cluster than the kernel's own");
    cudaGetLastError();
    relax<<<dim3(3, 4), THREADS>>>(out, 1);
    expect(cudaGetLastError() == cudaErrorInvalidClusterSize, "a grid that is no multiple of the cluster");
    CHECK(cudaFree(out));
}

static bool check_places(const uint4 *out, dim3 grid, dim3 cluster) {
    bool same = true;
    for (unsigned z = 0; z < grid.z; ++z)
        for (unsigned y = 0; y < grid.y; ++y)
            for (unsigned x = 0; x < grid.x; ++x) {
                unsigned i = x % cluster.x, j = y % cluster.y, k = z % cluster.z;
                uint4 at = out[(z * grid.y + y) * grid.x + x];
                same &= at.x == i + 10 * j + 100 * k && at.y == cluster.x + 10 * cluster.y + 100 * cluster.z;
                same &= at.z == (k * cluster.y + j) * cluster.x + i && at.w == cluster.x * cluster.y * cluster.z;
            }
    return same;
}

static void graphs() {
    dim3 grid(6, 4, 4), cluster(3, 2, 1), other(2, 1, 4);
    size_t bytes = grid.x * grid.y * grid.z * sizeof(uint4);
    uint4 *out;
    CHECK(cudaMallocManaged(&out, bytes));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    Launch launch(grid, 32, cluster, 0, stream);
    CHECK(cudaLaunchKernelEx(&launch.config, places, out));
    CHECK(cudaStreamEndCapture(stream, &graph));
    auto run = [&] {
        cudaGraphExec_t exec;
        memset(out, 0, bytes);
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaGraphExecDestroy(exec));
    };
    run();
    expect(check_places(out, grid, cluster), "a captured launch with clusters");
    cudaGraphNode_t node;
    size_t count = 1;
    CHECK(cudaGraphGetNodes(graph, &node, &count));
    cudaLaunchAttributeValue value = {};
    CHECK(cudaGraphKernelNodeGetAttribute(node, cudaLaunchAttributeClusterDimension, &value));
    expect(value.clusterDim.x == 3 && value.clusterDim.y == 2 && value.clusterDim.z == 1, "the cluster of a node");
    value.clusterDim.x = 2, value.clusterDim.y = 1, value.clusterDim.z = 4;
    CHECK(cudaGraphKernelNodeSetAttribute(node, cudaLaunchAttributeClusterDimension, &value));
    run();
    expect(check_places(out, grid, other), "a node with another cluster");
    value.clusterDim.x = 4;
    expect(cudaGraphKernelNodeSetAttribute(node, cudaLaunchAttributeClusterDimension, &value) == cudaErrorInvalidClusterSize, "a node with a wrong cluster");
    cudaGetLastError();
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(out));
}

int main() {
    int clusters = 0;
    CHECK(cudaDeviceGetAttribute(&clusters, cudaDevAttrClusterLaunch, 0));
    if (!clusters) {
        Launch launch(4, 32, 2);
        expect(cudaLaunchKernelEx(&launch.config, places, (uint4 *)nullptr) != cudaSuccess, "clusters where the device has none");
        printf("block clusters: %s\n", right ? "NONE" : "FAIL");
        return 0;
    }
    histograms();
    rounds();
    graphs();
    printf("block clusters: %s\n", right ? "PASS" : "FAIL");
    return right ? 0 : 1;
}
