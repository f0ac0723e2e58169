// Solves a sparse system by conjugate gradients, twice: in one cooperative launch whose blocks meet at grid-wide barriers, and with a launch for
// each step. The CPU computes the residual of both answers from the matrix itself.
#include "example.cuh"

#include <cooperative_groups.h>

#include <cmath>

namespace cg = cooperative_groups;

// Compressed sparse rows, symmetric and positive definite.
struct Matrix {
    int rows;
    const int *begin;
    const int *column;
    const double *value;
};

struct Vectors {
    double *x, *r, *p, *q;
};

const int threads = 256;

__device__ double block_sum(double value) {
    __shared__ double part[threads / 32];
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    for (int step = 16; step > 0; step /= 2) value += warp.shfl_down(value, step);
    if (warp.thread_rank() == 0) part[threadIdx.x / 32] = value;
    block.sync();
    double sum = 0;
    for (int i = 0; i < threads / 32; ++i) sum += part[i];
    block.sync();
    return sum;
}

// A quarter of a warp works on each row: its entries are read side by side.
const int team = 8;

// Rows of this block, of q = A p. Gives the block's share of p q.
__device__ double multiply(const Matrix &a, const double *p, double *q) {
    auto tile = cg::tiled_partition<team>(cg::this_thread_block());
    const int first = (blockIdx.x * blockDim.x + threadIdx.x) / team, all = gridDim.x * blockDim.x / team;
    double dot = 0;
    for (int row = first; row < a.rows; row += all) {
        double sum = 0;
        for (int at = a.begin[row] + tile.thread_rank(); at < a.begin[row + 1]; at += team) sum += a.value[at] * p[a.column[at]];
        for (int step = team / 2; step > 0; step /= 2) sum += tile.shfl_down(sum, step);
        if (tile.thread_rank() == 0) {
            q[row] = sum;
            dot += sum * p[row];
        }
    }
    return block_sum(dot);
}

// x += alpha p, r -= alpha q. Gives the block's share of r r.
__device__ double advance(int rows, const Vectors &v, double alpha) {
    double dot = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < rows; i += gridDim.x * blockDim.x) {
        v.x[i] += alpha * v.p[i];
        const double r = v.r[i] -= alpha * v.q[i];
        dot += r * r;
    }
    return block_sum(dot);
}

__device__ void turn(int rows, const Vectors &v, double beta) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < rows; i += gridDim.x * blockDim.x) v.p[i] = v.r[i] + beta * v.p[i];
}

// The blocks' shares, added by every block in the same order: all come to the same number.
__device__ double total(const double *shares, int count) {
    double sum = 0;
    for (int i = threadIdx.x; i < count; i += blockDim.x) sum += shares[i];
    return block_sum(sum);
}

// The whole iteration. `shares` has three numbers for each block; `done` gets the number of steps.
__global__ void solve(Matrix a, Vectors v, double *shares, double limit, int most, int *done) {
    auto grid = cg::this_grid();
    double *const of_pq = shares, *const of_rr = shares + gridDim.x, *const next_rr = shares + 2 * gridDim.x;
    double local = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < a.rows; i += gridDim.x * blockDim.x) local += v.r[i] * v.r[i];
    local = block_sum(local);
    if (threadIdx.x == 0) of_rr[blockIdx.x] = local;
    grid.sync();
    double rr = total(of_rr, gridDim.x);
    int step = 0;
    for (; step < most && rr > limit; ++step) {
        local = multiply(a, v.p, v.q);
        if (threadIdx.x == 0) of_pq[blockIdx.x] = local;
        grid.sync();
        local = advance(a.rows, v, rr / total(of_pq, gridDim.x));
        if (threadIdx.x == 0) next_rr[blockIdx.x] = local;
        grid.sync();
        const double next = total(next_rr, gridDim.x);
        turn(a.rows, v, next / rr);
        rr = next;
        grid.sync();
    }
    if (grid.thread_rank() == 0) *done = step;
}

// The same in separate launches. `sums` holds r r, p q, and the next r r.
__global__ void multiply_step(Matrix a, Vectors v, double *sums) {
    const double local = multiply(a, v.p, v.q);
    if (threadIdx.x == 0) atomicAdd(&sums[1], local);
}

__global__ void advance_step(int rows, Vectors v, double *sums) {
    const double local = advance(rows, v, sums[0] / sums[1]);
    if (threadIdx.x == 0) atomicAdd(&sums[2], local);
}

__global__ void turn_step(int rows, Vectors v, const double *sums) { turn(rows, v, sums[2] / sums[0]); }

template <typename T>
T *upload(const std::vector<T> &from) {
    T *to;
    CHECK(cudaMalloc(&to, from.size() * sizeof(T)));
    CHECK(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
    return to;
}

// Relative residual |b - A x| / |b|, from the matrix on the CPU.
double residual(const std::vector<int> &begin, const std::vector<int> &column, const std::vector<double> &value, const std::vector<double> &b,
                const double *device_x) {
    std::vector<double> x(b.size());
    CHECK(cudaMemcpy(x.data(), device_x, x.size() * sizeof(double), cudaMemcpyDeviceToHost));
    double error = 0, norm = 0;
    for (size_t row = 0; row < b.size(); ++row) {
        double sum = b[row];
        for (int at = begin[row]; at < begin[row + 1]; ++at) sum -= value[at] * x[column[at]];
        error += sum * sum;
        norm += b[row] * b[row];
    }
    return std::sqrt(error / norm);
}

int main(int argc, char **argv) {
    const int side = 64, rows = side * side, count = rounds(argc, argv, 1), most = 1000;
    const double wanted = 1e-10;

    // Heat flow on a plate: five points, and conductances that differ from place to place.
    std::vector<int> begin{0}, column;
    std::vector<double> value, b(rows);
    auto conductance = [](int one, int other) { return 1 + 0.5 * std::sin(0.01 * (one + other)); };
    for (int row = 0; row < rows; ++row) {
        const int y = row / side, x = row % side;
        double sum = 0.05;
        auto neighbour = [&](int nx, int ny) {
            if (nx < 0 || ny < 0 || nx >= side || ny >= side) return;
            const double flow = conductance(row, ny * side + nx);
            column.push_back(ny * side + nx);
            value.push_back(-flow);
            sum += flow;
        };
        neighbour(x, y - 1);
        neighbour(x - 1, y);
        neighbour(x + 1, y);
        neighbour(x, y + 1);
        column.push_back(row);
        value.push_back(sum);
        begin.push_back(int(column.size()));
        b[row] = (row * 37 % 101) / 101.0 - 0.4;
    }
    double norm = 0;
    for (double number : b) norm += number * number;
    const double limit = wanted * wanted * norm;

    const Matrix a{rows, upload(begin), upload(column), upload(value)};
    const std::vector<double> zero(rows);
    const Vectors v{upload(zero), upload(b), upload(b), upload(zero)};
    auto reset = [&] {
        CHECK(cudaMemset(v.x, 0, rows * sizeof(double)));
        CHECK(cudaMemcpy(v.r, b.data(), rows * sizeof(double), cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(v.p, b.data(), rows * sizeof(double), cudaMemcpyHostToDevice));
    };

    // As many blocks as can be on the device at once, and no more than there is work for.
    int device, processors, each, cooperative;
    CHECK(cudaGetDevice(&device));
    CHECK(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, device));
    CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, solve, threads, 0));
    int blocks = each * processors;
    if (blocks > rows / threads) blocks = rows / threads;
    if (!cooperative || blocks < 1) {
        std::printf("FAIL: the device has no cooperative launch\n");
        return 1;
    }
    double *shares, *sums;
    int *done;
    CHECK(cudaMalloc(&shares, 3 * blocks * sizeof(double)));
    CHECK(cudaMalloc(&sums, 3 * sizeof(double)));
    CHECK(cudaMalloc(&done, sizeof(int)));

    bool right = true;
    long long checked = 0;
    for (int round = 0; round < count; ++round) {
        reset();
        void *arguments[] = {(void *)&a, (void *)&v, &shares, (void *)&limit, (void *)&most, &done};
        CHECK(cudaLaunchCooperativeKernel((void *)solve, dim3(blocks), dim3(threads), arguments));
        int together = 0;
        CHECK(cudaMemcpy(&together, done, sizeof together, cudaMemcpyDeviceToHost));
        const double one = residual(begin, column, value, b, v.x);
        right &= together > 10 && together < most && one < 2 * wanted;

        reset();
        double now[3] = {norm, 0, 0};
        int apart = 0;
        for (; apart < most && now[0] > limit; ++apart) {
            CHECK(cudaMemcpyAsync(sums, now, sizeof now, cudaMemcpyHostToDevice));
            multiply_step<<<blocks, threads>>>(a, v, sums);
            advance_step<<<blocks, threads>>>(rows, v, sums);
            turn_step<<<blocks, threads>>>(rows, v, sums);
            CHECK(cudaMemcpy(now, sums, sizeof now, cudaMemcpyDeviceToHost));
            now[0] = now[2];
            now[1] = now[2] = 0;
        }
        const double other = residual(begin, column, value, b, v.x);
        // Sums in another order: nearly the same number of steps.
        right &= std::abs(apart - together) <= 2 && other < 2 * wanted;
        checked += 2LL * rows;
        if (!right) std::printf("%d steps together, residual %g; %d apart, residual %g\n", together, one, apart, other);
    }
    for (const void *memory : {(const void *)a.begin, (const void *)a.column, (const void *)a.value, (const void *)v.x, (const void *)v.r, (const void *)v.p,
                               (const void *)v.q, (const void *)shares, (const void *)sums, (const void *)done})
        CHECK(cudaFree(const_cast<void *>(memory)));
    return finish("conjugate_gradient", right, checked);
}
