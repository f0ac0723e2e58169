// The programs of `cumux lab`. Without arguments: one round of each, compared with what the CPU finds.
//   load KIND SECONDS SIZE  requests one after the other for so long; KIND is spin, tiny, matmul or memory
//   streams SIZE            two streams against one, and copies beside kernels
//   launches                what a launch costs the host
//   slices SECONDS          a kernel that watches the card's clock: gaps are other contexts' turns
//   fault                   works a little, then writes where nothing is
// `load` says "ready" and begins when it reads a line, or at once with a further argument. What it found is one line of JSON. SIZE 0 is for a software GPU.
#include "example.cuh"
#include "matrix.cuh"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <string>

static double now_us() {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// One chain of dependent steps a thread, for as long as they take.
__global__ void spin(float *out, int steps) {
    float value = threadIdx.x;
    for (int i = 0; i < steps; ++i) value = value * 0.5f + 1.0f;
    out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

__global__ void triad(float *a, const float *b, const float *c, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) a[i] = b[i] + 3.0f * c[i];
}

__global__ void fill(float *a, float value, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) a[i] = value;
}

// As fill, with so many dependent steps for each value.
__global__ void work_on(float *a, int steps, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float value = float(i);
        for (int step = 0; step < steps; ++step) value = value * 0.5f + 1.0f;
        a[i] = value;
    }
}

__global__ void write_to(int *address) { *address = 1; }

// Looks at the card's clock for so long; a gap in it was somebody else's turn.
__global__ void watch(unsigned long long ns, unsigned long long *gaps, int *count, int most) {
    unsigned long long first, last, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(first));
    last = first;
    int found = 0;
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        if (now - last > 20000 && found < most) {
            gaps[2 * found] = last;
            gaps[2 * found + 1] = now;
            ++found;
        }
        last = now;
    } while (now - first < ns);
    *count = found;
}

enum Kind { SPIN, TINY, MATMUL, MEMORY };

// One workload: its memory, and one request of it.
struct Work {
    Kind kind;
    int size, n;
    float *a = nullptr, *b = nullptr, *c = nullptr;

    Work(Kind kind, int size, int side = 0) : kind(kind), size(size) {
        switch (kind) {
            case SPIN:
            case TINY: n = 16 * 256; break;
            case MATMUL: n = side ? side : size ? 512 * size : 64; break;
            case MEMORY: n = size ? (16 << 20) * size : 1 << 14; break;
        }
        size_t count = kind == MATMUL ? size_t(n) * n : n;
        CHECK(cudaMalloc(&a, count * sizeof(float)));
        if (kind == MATMUL || kind == MEMORY) {
            CHECK(cudaMalloc(&b, count * sizeof(float)));
            CHECK(cudaMalloc(&c, count * sizeof(float)));
            fill<<<64, 256>>>(b, 1.0f, int(count));
            fill<<<64, 256>>>(c, 2.0f, int(count));
        }
    }

    void launch(cudaStream_t stream, int blocks = 16) {
        switch (kind) {
            case SPIN: spin<<<blocks, 256, 0, stream>>>(a, size ? 10000 * size : 40); break;
            case TINY: spin<<<1, 32, 0, stream>>>(a, 8); break;
            case MATMUL: multiply<<<dim3(n / tile, n / tile), dim3(tile, tile), 0, stream>>>(b, c, a, n); break;
            case MEMORY: triad<<<size ? 1024 : 8, 256, 0, stream>>>(a, b, c, n); break;
        }
    }

    void request(cudaStream_t stream) {
        int count = kind == MATMUL || kind == MEMORY ? 1 : 8;
        for (int i = 0; i < count; ++i) launch(stream);
        CHECK(cudaGetLastError());
        CHECK(cudaStreamSynchronize(stream));
    }

    // Compares a result with what it must be.
    bool right() {
        std::vector<float> found(64);
        CHECK(cudaMemcpy(found.data(), a, (kind == TINY ? 32 : 64) * sizeof(float), cudaMemcpyDeviceToHost));
        for (int i = 0; i < (kind == TINY ? 32 : 64); ++i) {
            float expected = i;
            if (kind == MATMUL) expected = 2.0f * n;
            else if (kind == MEMORY) expected = 7.0f;
            else
                for (int step = 0; step < (kind == TINY ? 8 : size ? 10000 * size : 40); ++step) expected = expected * 0.5f + 1.0f;
            if (found[i] < expected * 0.999f || found[i] > expected * 1.001f) return false;
        }
        return true;
    }
};

static bool kind_of(const char *name, Kind *kind) {
    const char *names[] = {"spin", "tiny", "matmul", "memory"};
    for (int i = 0; i < 4; ++i) {
        if (!std::strcmp(name, names[i])) {
            *kind = Kind(i);
            return true;
        }
    }
    return false;
}

static double part(const std::vector<double> &sorted, double where) {
    return sorted[std::min(sorted.size() - 1, size_t(sorted.size() * where))];
}

// 99 of 100 take at most this, in a typical fifth of the time: one hiccup of the machine is in one
// fifth alone.
static double typical_p99(const std::vector<double> &took) {
    const size_t fifths = 5;
    if (took.size() < 20 * fifths) {
        std::vector<double> all(took);
        std::sort(all.begin(), all.end());
        return part(all, 0.99);
    }
    std::vector<double> found;
    for (size_t i = 0; i < fifths; ++i) {
        std::vector<double> fifth(took.begin() + took.size() * i / fifths, took.begin() + took.size() * (i + 1) / fifths);
        std::sort(fifth.begin(), fifth.end());
        found.push_back(part(fifth, 0.99));
    }
    std::sort(found.begin(), found.end());
    return found[fifths / 2];
}

static int load(Kind kind, double seconds, int size, bool waits, double begun) {
    Work work(kind, size);
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    work.request(stream);
    double start_ms = (now_us() - begun) / 1e3;
    for (int i = 0; i < 2; ++i) work.request(stream);
    std::puts("ready");
    std::fflush(stdout);
    char line[16];
    if (waits && !std::fgets(line, sizeof line, stdin)) return 1;
    std::vector<double> took;
    std::vector<std::pair<double, double>> spans;
    double begin = now_us(), last = begin;
    // The others begin at about the same time: what is done until they all work does not count.
    while (last - begin < seconds * 1e5) {
        work.request(stream);
        double now = now_us();
        if (spans.size() < 60) spans.push_back({last, now});
        last = now;
    }
    double from = last;
    while (last - from < seconds * 1e6) {
        work.request(stream);
        double now = now_us();
        took.push_back(now - last);
        last = now;
    }
    bool right = work.right();
    double p99 = typical_p99(took);
    std::sort(took.begin(), took.end());
    p99 = std::max(p99, part(took, 0.5));
    std::printf("{\"requests\":%zu,\"seconds\":%.6f,\"start_ms\":%.3f,\"right\":%s,\"p50_us\":%.2f,\"p99_us\":%.2f,\"points_us\":[", took.size(),
                (last - from) / 1e6, start_ms, right ? "true" : "false", part(took, 0.5), p99);
    for (int i = 1; i <= 20; ++i) std::printf("%s%.2f", i > 1 ? "," : "", part(took, i / 20.0 - 0.01));
    std::printf("],\"spans_us\":[");
    for (size_t i = 0; i < spans.size(); ++i) std::printf("%s[%.1f,%.1f]", i ? "," : "", spans[i].first, spans[i].second);
    std::printf("]}\n");
    return right ? 0 : 1;
}

static double timed(int rounds, cudaStream_t first, cudaStream_t second, Work *one, Work *two, int blocks) {
    double best = 1e30;
    for (int attempt = 0; attempt < 3; ++attempt) {
        CHECK(cudaDeviceSynchronize());
        double from = now_us();
        for (int i = 0; i < rounds; ++i) {
            one->launch(first, blocks);
            two->launch(second, blocks);
        }
        CHECK(cudaDeviceSynchronize());
        best = std::min(best, now_us() - from);
    }
    return best / 1e3;
}

// The matrix product and kernels of several sizes in two streams; then copies beside kernels.
static int streams(int size) {
    cudaStream_t each[3];
    for (auto &stream : each) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    int rounds = size ? 100 : 4;
    std::printf("{\"streams\":[");
    for (int blocks : {1, 16, 64, 256}) {
        Work one(SPIN, size), two(SPIN, size);
        // Room for the largest.
        CHECK(cudaFree(one.a));
        CHECK(cudaFree(two.a));
        CHECK(cudaMalloc(&one.a, blocks * 256 * sizeof(float)));
        CHECK(cudaMalloc(&two.a, blocks * 256 * sizeof(float)));
        double single = timed(rounds, each[0], each[0], &one, &two, blocks), both = timed(rounds, each[0], each[1], &one, &two, blocks);
        std::printf("%s{\"blocks\":%d,\"one_ms\":%.4f,\"two_ms\":%.4f}", blocks == 1 ? "" : ",", blocks, single, both);
    }
    {
        // Small products, as small layers are: a large one fills the card alone, and the smallest
        // ends before the next launch.
        int side = size ? 256 : 64;
        Work one(MATMUL, 0, side), two(MATMUL, 0, side);
        double single = timed(rounds, each[0], each[0], &one, &two, 0), both = timed(rounds, each[0], each[1], &one, &two, 0);
        std::printf("],\"matmul\":{\"blocks\":%d,\"one_ms\":%.4f,\"two_ms\":%.4f}", (side / tile) * (side / tile), single, both);
    }
    const int pieces = 6;
    const size_t count = size ? 4 << 20 : 1 << 12;
    float *host, *device;
    CHECK(cudaHostAlloc((void **)&host, pieces * count * sizeof(float), cudaHostAllocDefault));
    CHECK(cudaMalloc(&device, pieces * count * sizeof(float)));
    // Copies and kernels of one size, in one stream, in three, and the kernels alone.
    enum Way { ONE, THREE, ALONE };
    auto pass = [&](int steps, Way way) {
        for (int piece = 0; piece < pieces; ++piece) {
            cudaStream_t stream = each[way == THREE ? piece % 3 : 0];
            float *there = device + piece * count, *here = host + piece * count;
            if (way != ALONE) CHECK(cudaMemcpyAsync(there, here, count * sizeof(float), cudaMemcpyHostToDevice, stream));
            if (steps) work_on<<<64, 256, 0, stream>>>(there, steps, int(count));
            else fill<<<64, 256, 0, stream>>>(there, float(piece), int(count));
            if (way != ALONE) CHECK(cudaMemcpyAsync(here, there, count * sizeof(float), cudaMemcpyDeviceToHost, stream));
        }
        CHECK(cudaDeviceSynchronize());
    };
    std::printf(",\"overlap\":[");
    for (int steps : {0, 1, 4, 16}) {
        double best[3] = {1e30, 1e30, 1e30};
        for (int attempt = 0; attempt < 3; ++attempt) {
            for (Way way : {ONE, THREE, ALONE}) {
                double from = now_us();
                pass(steps * (size ? 256 : 16), way);
                best[way] = std::min(best[way], (now_us() - from) / 1e3);
            }
        }
        std::printf("%s{\"kernels_ms\":%.4f,\"serial_ms\":%.4f,\"overlapped_ms\":%.4f}", steps ? "," : "", best[ALONE], best[ONE], best[THREE]);
    }
    std::printf("]}\n");
    return 0;
}

static double thread_ns() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return double(now.tv_sec) * 1e9 + double(now.tv_nsec);
}

// A processor's time for one launch, in bursts as short as those of a request: the driver's own
// work for a full queue is not in it.
static int launches() {
    Work work(TINY, 0);
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    std::vector<double> each;
    const int rounds = 4000, batch = 8;
    for (int round = 0; round < rounds; ++round) {
        double from = thread_ns();
        for (int i = 0; i < batch; ++i) work.launch(stream);
        each.push_back((thread_ns() - from) / batch);
        CHECK(cudaGetLastError());
        CHECK(cudaStreamSynchronize(stream));
    }
    std::sort(each.begin(), each.end());
    std::printf("{\"launch_ns\":%.1f}\n", part(each, 0.5));
    return work.right() ? 0 : 1;
}

static int slices(double seconds) {
    const int most = 4096;
    unsigned long long *gaps;
    int *count;
    CHECK(cudaMallocManaged(&gaps, 2 * most * sizeof *gaps));
    CHECK(cudaMallocManaged(&count, sizeof *count));
    CHECK(cudaDeviceSynchronize());
    std::puts("ready");
    std::fflush(stdout);
    char line[16];
    if (!std::fgets(line, sizeof line, stdin)) return 1;
    watch<<<1, 1>>>((unsigned long long)(seconds * 1e9), gaps, count, most);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    std::printf("{\"gaps\":[");
    for (int i = 0; i < *count; ++i) std::printf("%s[%llu,%llu]", i ? "," : "", gaps[2 * i], gaps[2 * i + 1]);
    std::printf("]}\n");
    return 0;
}

static int fault() {
    Work work(SPIN, 0);
    for (int i = 0; i < 20; ++i) work.request(0);
    write_to<<<1, 1>>>((int *)0xdead0000ull);
    cudaError_t end = cudaDeviceSynchronize();
    std::printf("{\"told\":\"%s\"}\n", cudaGetErrorName(end));
    return end == cudaErrorIllegalAddress ? 0 : 1;
}

int main(int argc, char **argv) {
    double begun = now_us();
    Kind kind;
    std::string what = argc > 1 ? argv[1] : "";
    if (what == "load" && (argc == 5 || argc == 6) && kind_of(argv[2], &kind)) return load(kind, std::atof(argv[3]), std::atoi(argv[4]), argc == 5, begun);
    if (what == "streams" && argc == 3) return streams(std::atoi(argv[2]));
    if (what == "launches" && argc == 2) return launches();
    if (what == "slices" && argc == 3) return slices(std::atof(argv[2]));
    if (what == "fault" && argc == 2) return fault();
    if (argc > 2 || (argc == 2 && std::atoi(argv[1]) < 1)) {
        std::puts("lab_work: FAIL, its arguments are not understood: see the top of lab_work.cu");
        return 2;
    }
    bool right = true;
    for (int each = SPIN; each <= MEMORY; ++each) {
        Work work(Kind(each), 0);
        work.request(0);
        right &= work.right();
    }
    return finish("lab_work", right, 4 * 64);
}
