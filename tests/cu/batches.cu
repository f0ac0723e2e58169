// Batches of three-dimensional copies, between pitched memory, plain memory and an array, and what
// discards managed memory. The copies of one batch have no order among themselves, so none reads
// what another writes.
#include "../../examples/example.cuh"

static void say(const char *what, bool right) { std::printf("%s: %s\n", what, right ? "right" : "WRONG"); }

static cudaMemcpy3DOperand at(void *memory, size_t row, size_t rows) {
    cudaMemcpy3DOperand operand = {};
    operand.type = cudaMemcpyOperandTypePointer;
    operand.op.ptr.ptr = memory;
    operand.op.ptr.rowLength = row;
    operand.op.ptr.layerHeight = rows;
    return operand;
}

int main() {
    const size_t width = 20, height = 6, depth = 3, pitch = 32, all = pitch * height * depth;
    unsigned char *from, *to, *host;
    CHECK(cudaMalloc(&from, all));
    CHECK(cudaMalloc(&to, all));
    CHECK(cudaMallocHost(&host, all));
    for (size_t i = 0; i < all; ++i) host[i] = static_cast<unsigned char>(i % 251);
    CHECK(cudaMemcpy(from, host, all, cudaMemcpyHostToDevice));
    // The host does not wait for this, and streams that do not block do not either.
    CHECK(cudaMemset(to, 0, all));
    CHECK(cudaDeviceSynchronize());
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    // Out of the pitched box into a dense one, and a row of it to the host.
    cudaMemcpy3DBatchOp ops[2] = {};
    ops[0].src = at(from, pitch, height);
    ops[0].dst = at(to, 0, 0);
    ops[0].extent = make_cudaExtent(width, height, depth);
    ops[0].srcAccessOrder = ops[1].srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    ops[1].src = at(from + pitch * height, pitch, height);
    ops[1].dst = at(host, width, 1);
    ops[1].extent = make_cudaExtent(width, 1, 1);
    CHECK(cudaMemcpy3DBatchAsync(2, ops, 0, stream));
    CHECK(cudaStreamSynchronize(stream));
    bool right = true;
    for (size_t x = 0; x < width; ++x) right &= host[x] == (pitch * height + x) % 251;
    CHECK(cudaMemcpy(host, to, all, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < all; ++i) {
        const size_t x = i % width, row = i / width;
        right &= host[i] == (row < height * depth ? (row * pitch + x) % 251 : 0);
    }
    say("boxes", right);
    cudaChannelFormatDesc words = cudaCreateChannelDesc<unsigned>();
    cudaArray_t array;
    if (cudaMallocArray(&array, &words, width / 4, height) == cudaSuccess) {
        // Rows and extents count in the array's elements.
        ops[0].src = at(from, pitch / 4, height);
        ops[0].dst = {};
        ops[0].dst.type = cudaMemcpyOperandTypeArray;
        ops[0].dst.op.array.array = array;
        ops[0].extent = make_cudaExtent(width / 4, height, 1);
        CHECK(cudaMemcpy3DBatchAsync(1, ops, 0, stream));
        // A batch comes after the one before it on its stream.
        ops[1].src = ops[0].dst;
        ops[1].src.op.array.offset.x = 1;
        ops[1].src.op.array.offset.y = 2;
        ops[1].dst = at(host, 4, 1);
        ops[1].extent = make_cudaExtent(4, 1, 1);
        CHECK(cudaMemcpy3DBatchAsync(1, &ops[1], 0, stream));
        CHECK(cudaStreamSynchronize(stream));
        right = true;
        for (size_t x = 0; x < 16; ++x) right &= host[x] == (2 * pitch + 4 + x) % 251;
        say("arrays", right);
    } else {
        cudaGetLastError();
    }
    void *managed;
    size_t bytes = 4096;
    CHECK(cudaMallocManaged(&managed, bytes));
    cudaError_t discarded = cudaMemDiscardBatchAsync(&managed, &bytes, 1, 0, stream);
    CHECK(cudaStreamSynchronize(stream));
    void *wrong = from;
    say("discarded", discarded == cudaSuccess && cudaMemDiscardBatchAsync(&wrong, &bytes, 1, 0, stream) == cudaErrorInvalidValue);
    return 0;
}
