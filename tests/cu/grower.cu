// Takes device memory as it is told: each line on the standard input is an order.
//   take MIB    one block more; answers "take MIB RESULT FREE TOTAL", both in MiB
//   give        the last block goes back
//   sum         answers "sum right" if every block still has what was written into it
#include "../../examples/example.cuh"

#include <cstdio>
#include <string>
#include <vector>

struct Block {
    unsigned *at;
    size_t words;
    unsigned value;
};

static bool is_right(const Block &block) {
    // Its ends and its middle.
    for (size_t word : {size_t(0), block.words / 2, block.words - 1}) {
        unsigned value = 0;
        CHECK(cudaMemcpy(&value, block.at + word, sizeof value, cudaMemcpyDeviceToHost));
        if (value != block.value) return false;
    }
    return true;
}

int main() {
    std::vector<Block> blocks;
    CHECK(cudaFree(nullptr));
    std::puts("ready");
    std::fflush(stdout);
    char order[32];
    while (std::scanf("%31s", order) == 1) {
        std::string word = order;
        if (word == "take") {
            size_t mib = 0, free = 0, total = 0;
            if (std::scanf("%zu", &mib) != 1) return 1;
            Block block = {nullptr, (mib << 20) / sizeof(unsigned), unsigned(blocks.size() + 1) * 0x01010101u};
            cudaError_t result = cudaMalloc(&block.at, mib << 20);
            if (result == cudaSuccess) {
                CHECK(cudaMemset(block.at, int(block.value & 0xff), mib << 20));
                blocks.push_back(block);
            }
            cudaGetLastError();
            CHECK(cudaMemGetInfo(&free, &total));
            std::printf("take %zu %s %zu %zu\n", mib, cudaGetErrorName(result), free >> 20, total >> 20);
        } else if (word == "give" && !blocks.empty()) {
            CHECK(cudaFree(blocks.back().at));
            blocks.pop_back();
            std::puts("given");
        } else if (word == "sum") {
            bool right = true;
            for (const Block &block : blocks) right &= is_right(block);
            std::printf("sum %s\n", right ? "right" : "WRONG");
        }
        std::fflush(stdout);
    }
    return 0;
}
