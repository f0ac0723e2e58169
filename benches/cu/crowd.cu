// What a launch costs when the kernels of several clients that wait for each of them go to the card
// in one graph, with a branch for each, in place of one graph for each.
//   crowd [CLIENTS] [SECONDS]     8, 0.5 of each
// A client's work is a kernel of one block and a kernel that counts a word in host memory up, which
// the host looks at. With several in a graph the whole graph waits for the slowest of them.
#include <chrono>
#include <thread>
#include "../../examples/example.cuh"

__global__ void work(float *out) { out[threadIdx.x] = out[threadIdx.x] * .5f + 1; }
__global__ void mark(volatile unsigned *word) { *word = *word + 1; }

struct Client {
    float *out;
    volatile unsigned *word;
    unsigned launched = 0;
    bool is_done() const { return *word == launched; }
};

// Clients whose work is launched together.
struct Crowd {
    std::vector<Client *> clients;
    cudaGraphExec_t graph;
    cudaStream_t stream;
};

static cudaGraphNode_t add(cudaGraph_t graph, const cudaGraphNode_t *after, void *function, void *argument, int threads) {
    cudaGraphNode_t node;
    cudaKernelNodeParams given = {};
    void *arguments[] = {&argument};
    given.func = function, given.gridDim = dim3(1), given.blockDim = dim3(threads), given.kernelParams = arguments;
    CHECK(cudaGraphAddKernelNode(&node, graph, after, after ? 1 : 0, &given));
    return node;
}

static Crowd gather(std::vector<Client *> clients) {
    Crowd crowd;
    crowd.clients = clients;
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    for (Client *client : clients) {
        cudaGraphNode_t first = add(graph, nullptr, (void *)work, client->out, 32);
        add(graph, &first, (void *)mark, (void *)client->word, 1);
    }
    CHECK(cudaGraphInstantiate(&crowd.graph, graph, 0));
    CHECK(cudaStreamCreateWithFlags(&crowd.stream, cudaStreamNonBlocking));
    return crowd;
}

// How often each thread's crowds are launched, each as soon as all of it is done. Returns kernels.
static double serve(std::vector<Crowd> &crowds, double seconds, double &in_driver) {
    using clock = std::chrono::steady_clock;
    const auto begun = clock::now();
    double kernels = 0, spent = 0;
    unsigned long launches = 0;
    while (std::chrono::duration<double>(clock::now() - begun).count() < seconds) {
        for (Crowd &crowd : crowds) {
            bool done = true;
            for (Client *client : crowd.clients) done &= client->is_done();
            if (!done) continue;
            for (Client *client : crowd.clients) ++client->launched;
            const auto before = clock::now();
            CHECK(cudaGraphLaunch(crowd.graph, crowd.stream));
            spent += std::chrono::duration<double, std::micro>(clock::now() - before).count();
            kernels += crowd.clients.size(), ++launches;
        }
    }
    in_driver = spent / launches;
    for (Crowd &crowd : crowds) CHECK(cudaStreamSynchronize(crowd.stream));
    return kernels / seconds;
}

int main(int count, char **words) {
    const int clients = count > 1 ? std::atoi(words[1]) : 8;
    const double seconds = count > 2 ? std::atof(words[2]) : .5;
    std::vector<Client> all(clients);
    for (Client &client : all) {
        CHECK(cudaMalloc(&client.out, 32 * sizeof(float)));
        CHECK(cudaMallocHost((void **)&client.word, 64));
        *client.word = 0;
    }
    for (int each = 1; each <= clients; each *= 2) {
        for (int threads : {1, 2}) {
            if (clients / each < threads) continue;
            std::vector<std::vector<Crowd>> of(threads);
            for (int first = 0, number = 0; first < clients; first += each, ++number) {
                std::vector<Client *> some;
                for (int at = first; at < first + each && at < clients; ++at) some.push_back(&all[at]);
                of[number % threads].push_back(gather(some));
            }
            std::vector<double> rates(threads), spent(threads);
            std::vector<std::thread> running;
            for (int at = 0; at < threads; ++at) running.emplace_back([&, at] { rates[at] = serve(of[at], seconds, spent[at]); });
            for (std::thread &one : running) one.join();
            double rate = 0;
            for (double one : rates) rate += one;
            std::printf("%d clients, %d in a graph, %d threads: %.0f thousand kernels a second, a launch %.2f us\n", clients, each, threads, rate / 1e3, spent[0]);
            for (std::vector<Crowd> &crowds : of)
                for (Crowd &crowd : crowds) CHECK(cudaGraphExecDestroy(crowd.graph));
        }
    }
}
