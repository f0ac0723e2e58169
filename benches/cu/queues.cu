// Which streams wait for a kernel that does not end, because they share a queue of the context with it:
//   CUDA_DEVICE_MAX_CONNECTIONS=16 queues [STREAMS]
// A kernel spins in each of some streams in turn. Meanwhile work is submitted to every other stream,
// and after 3 ms it is looked which has ended. Prints for each kind of spinning kernel and of work how
// many of the other streams waited, and which ones for the first streams.
//   plain      the kernel, then a value written in its stream
//   chain      a graph of the kernel and of one that writes a value
//   urgent     as chain, and the writing kernel has the greatest priority
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <string>
#include <thread>
#include <vector>
#include <cuda.h>
#include <cuda_runtime.h>

#include "beside_a_spin.cuh"

__global__ void mark(volatile unsigned *word) { *word = 1; __threadfence_system(); }

enum Kind { PLAIN, CHAIN, URGENT };
static const char *names[] = {"plain", "chain", "urgent"};
static unsigned *words, *flag, *memory;
static int least, greatest;

// A graph of one kernel and the marking kernel.
static cudaGraphExec_t make(bool spins, unsigned *word, unsigned *out, bool urgent) {
    cudaGraph_t graph;
    cudaGraphNode_t first, second;
    cudaGraphExec_t executable;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaKernelNodeParams node{};
    unsigned *argument = spins ? flag : out;
    void *arguments[] = {&argument}, *marks[] = {&word};
    node.func = spins ? (void *)spin : (void *)tiny;
    node.gridDim = node.blockDim = dim3(1);
    node.kernelParams = arguments;
    CHECK(cudaGraphAddKernelNode(&first, graph, nullptr, 0, &node));
    node.func = (void *)mark;
    node.kernelParams = marks;
    CHECK(cudaGraphAddKernelNode(&second, graph, &first, 1, &node));
    if (urgent) {
        cudaLaunchAttributeValue value{};
        value.priority = greatest;
        CHECK(cudaGraphKernelNodeSetAttribute(second, cudaLaunchAttributePriority, &value));
    }
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    return executable;
}

struct Lane {
    cudaStream_t stream;
    int priority;
    unsigned *word;
    cudaGraphExec_t work[3], spins[3];
};

static void submit(Lane &lane, Kind kind, bool spins) {
    *(volatile unsigned *)lane.word = 0;
    if (kind == PLAIN) {
        if (spins) spin<<<1, 1, 0, lane.stream>>>(flag);
        else tiny<<<1, 1, 0, lane.stream>>>(memory);
        CHECK(cuStreamWriteValue32(lane.stream, (CUdeviceptr)lane.word, 1, 0));
    } else {
        CHECK(cudaGraphLaunch(spins ? lane.spins[kind] : lane.work[kind], lane.stream));
    }
}

int main(int argc, char **argv) {
    const int count = argc > 1 ? std::atoi(argv[1]) : 40;
    CHECK(cudaSetDevice(0));
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CHECK(cudaHostAlloc((void **)&words, 65536, cudaHostAllocMapped));
    flag = words + 8192;
    CHECK(cudaMalloc((void **)&memory, 1 << 20));
    std::vector<Lane> lanes;
    for (int at = 0; at < count + 3 * (least - greatest); ++at) {
        Lane lane{};
        // So many of the least priority, then three of each other one.
        lane.priority = at < count ? least : least - 1 - (at - count) / 3;
        lane.word = words + 8 * at;
        CHECK(cudaStreamCreateWithPriority(&lane.stream, cudaStreamNonBlocking, lane.priority));
        for (int kind = CHAIN; kind <= URGENT; ++kind) {
            lane.work[kind] = make(false, lane.word, memory, kind == URGENT);
            lane.spins[kind] = make(true, lane.word, memory, kind == URGENT);
        }
        lanes.push_back(lane);
    }
    // Everything once, so that nothing is loaded or made later.
    *(volatile unsigned *)flag = 1;
    for (Lane &lane : lanes)
        for (int kind = PLAIN; kind <= URGENT; ++kind)
            for (bool spins : {false, true}) {
                submit(lane, Kind(kind), spins);
                CHECK(cudaStreamSynchronize(lane.stream));
            }
    std::printf("priorities %d to %d, %d streams of the least\n", least, greatest, count);
    auto set = [&](Lane &lane) { CHECK(cudaMemsetAsync(memory, 0, 4096, lane.stream)); CHECK(cuStreamWriteValue32(lane.stream, (CUdeviceptr)lane.word, 1, 0)); };
    for (int spinning = PLAIN; spinning <= URGENT; ++spinning)
        for (int kind = PLAIN; kind <= URGENT + 1; ++kind) {
            std::string which;
            // Streams of the least priority, and the first of each other one.
            for (int at = 0; at < int(lanes.size()); at = at < count - 1 ? at + (at < 3 ? 1 : 7) : at < count ? count : at + 3) {
                if (at >= int(lanes.size())) break;
                *(volatile unsigned *)flag = 0;
                submit(lanes[at], Kind(spinning), true);
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
                auto begun = std::chrono::steady_clock::now();
                for (int other = 0; other < int(lanes.size()); ++other)
                    if (other != at) {
                        if (kind <= URGENT) submit(lanes[other], Kind(kind), false);
                        else { *(volatile unsigned *)lanes[other].word = 0; set(lanes[other]); }
                    }
                double took = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begun).count();
                std::this_thread::sleep_for(std::chrono::milliseconds(3));
                int same = 0, others = 0;
                std::string list;
                for (int other = 0; other < int(lanes.size()); ++other)
                    if (other != at && *(volatile unsigned *)lanes[other].word == 0) {
                        (lanes[other].priority == lanes[at].priority ? same : others) += 1;
                        list += " " + std::to_string(other) + (lanes[other].priority ? "p" + std::to_string(-lanes[other].priority) : "");
                    }
                *(volatile unsigned *)flag = 1;
                CHECK(cudaDeviceSynchronize());
                if (list.size() > 150) list = list.substr(0, 150) + " ...";
                which += "    in stream " + std::to_string(at) + " of priority " + std::to_string(lanes[at].priority) + ": " + std::to_string(same) + " of its priority and " + std::to_string(others) + " others waited:" + list + (took > 50 ? "  (submitting took " + std::to_string(int(took)) + " ms)" : "") + "\n";
            }
            std::printf("a spinning kernel %s, others %s\n%s", names[spinning], kind <= URGENT ? names[kind] : "set", which.c_str());
            std::fflush(stdout);
        }
}
