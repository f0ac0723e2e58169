// Arrays, textures and surfaces without memory that the host and the device share: copies to and from
// arrays of every kind, in streams and in a graph, and what kernels see of them. With the argument
// "held" it makes objects, says "ready", and for each line samples once more: "destroy" ends the objects.
#include "../../examples/example.cuh"

#include <cstring>
#include <string>

static bool right = true;
static long long checked = 0;

static void expect(const char *what, double found, double wanted) {
    ++checked;
    if (found == wanted) return;
    if (right) std::printf("%s: %.9g, not %.9g\n", what, found, wanted);
    right = false;
}

template <typename T>
static T *device(size_t count) {
    T *memory;
    CHECK(cudaMalloc(&memory, count * sizeof(T)));
    return memory;
}

template <typename T>
static std::vector<T> back(const T *memory, size_t count) {
    std::vector<T> values(count);
    CHECK(cudaMemcpy(values.data(), memory, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
}

static cudaResourceDesc of_array(cudaArray_t array) {
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    return resource;
}

static cudaTextureObject_t texture(const cudaResourceDesc &resource, cudaTextureFilterMode filter = cudaFilterModePoint) {
    cudaTextureDesc description = {};
    for (auto &mode : description.addressMode) mode = cudaAddressModeClamp;
    description.filterMode = description.mipmapFilterMode = filter;
    description.readMode = cudaReadModeElementType;
    description.maxMipmapLevelClamp = 100;
    cudaTextureObject_t object;
    CHECK(cudaCreateTextureObject(&object, &resource, &description, nullptr));
    return object;
}

__global__ void sample(cudaTextureObject_t object, float *out, int width, int height) {
    int x = threadIdx.x, y = blockIdx.x;
    out[y * width + x] = tex2D<float>(object, x + 0.5f, y + 0.5f);
}

// A handle that lies in memory, as in tables of textures.
__global__ void sample_of(const cudaTextureObject_t *objects, float *out) { out[threadIdx.x] = tex2D<float>(objects[threadIdx.x], 1.0f, 0.5f); }

__global__ void sample_line(cudaTextureObject_t object, float *out) { out[threadIdx.x] = tex1D<float>(object, threadIdx.x + 0.5f); }

__global__ void sample_layers(cudaTextureObject_t object, float *out) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = tex2DLayered<float>(object, threadIdx.x + 0.5f, 0.5f, blockIdx.x);
}

__global__ void sample_solid(cudaTextureObject_t object, float *out) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = tex3D<float>(object, threadIdx.x + 0.5f, 1.5f, blockIdx.x + 0.5f);
}

__global__ void sample_levels(cudaTextureObject_t object, float *out) { out[threadIdx.x] = tex2DLod<float>(object, 0.5f, 0.5f, threadIdx.x); }

__global__ void fetch(cudaTextureObject_t object, float *out) { out[threadIdx.x] = tex1Dfetch<float>(object, threadIdx.x); }

__global__ void add_one(cudaSurfaceObject_t surface) {
    int x = threadIdx.x * 4, y = blockIdx.x;
    surf2Dwrite(surf2Dread<float>(surface, x, y) + 1, surface, x, y);
}

static const int width = 48, height = 20;

static std::vector<float> numbers(size_t count, float first = 0) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = first + i % 1009;
    return values;
}

static cudaArray_t plane(unsigned flags = 0) {
    auto description = cudaCreateChannelDesc<float>();
    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &description, width, height, flags));
    return array;
}

static void planes() {
    cudaArray_t array = plane(), other = plane();
    std::vector<float> zeros(width * height);
    CHECK(cudaMemcpy2DFromArray(zeros.data(), width * 4, array, 0, 0, width * 4, height, cudaMemcpyDeviceToHost));
    for (float value : zeros) expect("a new array", value, 0);
    auto image = numbers(width * height, 1);
    CHECK(cudaMemcpy2DToArray(array, 0, 0, image.data(), width * 4, width * 4, height, cudaMemcpyHostToDevice));
    float *out = device<float>(width * height);
    cudaTextureObject_t object = texture(of_array(array)), filtered = texture(of_array(array), cudaFilterModeLinear);
    sample<<<height, width>>>(object, out, width, height);
    auto seen = back(out, width * height);
    for (int i = 0; i < width * height; ++i) expect("a plane", seen[i], image[i]);
    // A part of it, to another array and on to device memory.
    CHECK(cudaMemcpy2DArrayToArray(other, 16, 3, array, 8, 1, 80, 7, cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpy2DFromArray(out, 80, other, 16, 3, 80, 7, cudaMemcpyDeviceToDevice));
    seen = back(out, 20 * 7);
    for (int i = 0; i < 20 * 7; ++i) expect("a part", seen[i], image[(i / 20 + 1) * width + i % 20 + 2]);
    // Half way between two texels; and the handles in memory.
    cudaTextureObject_t both[] = {filtered, object}, *handles = device<cudaTextureObject_t>(2);
    CHECK(cudaMemcpy(handles, both, sizeof both, cudaMemcpyHostToDevice));
    sample_of<<<1, 2>>>(handles, out);
    seen = back(out, 2);
    expect("filtered", seen[0], 1.5), expect("the nearest", seen[1], 2);
    CHECK(cudaDestroyTextureObject(object));
    CHECK(cudaDestroyTextureObject(filtered));
    expect("destroyed twice", cudaDestroyTextureObject(object), cudaErrorInvalidValue);
    cudaGetLastError();
    CHECK(cudaFreeArray(array));
    CHECK(cudaFreeArray(other));
}

static cudaArray_t solid_array(cudaExtent extent, unsigned flags, const std::vector<float> &values) {
    auto description = cudaCreateChannelDesc<float>();
    cudaArray_t array;
    CHECK(cudaMalloc3DArray(&array, &description, extent, flags));
    cudaMemcpy3DParms copy = {};
    size_t rows = extent.height ? extent.height : 1, depth = extent.depth ? extent.depth : 1;
    copy.srcPtr = make_cudaPitchedPtr(const_cast<float *>(values.data()), extent.width * 4, extent.width, rows);
    copy.dstArray = array;
    copy.extent = make_cudaExtent(extent.width, rows, depth);
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    return array;
}

static void more_dimensions() {
    float *out = device<float>(256);
    auto values = numbers(8 * 4 * 5, 3);
    cudaArray_t line = solid_array(make_cudaExtent(40, 0, 0), 0, numbers(40, 7));
    cudaTextureObject_t object = texture(of_array(line));
    sample_line<<<1, 40>>>(object, out);
    auto seen = back(out, 40);
    for (int i = 0; i < 40; ++i) expect("a line", seen[i], 7 + i);
    cudaArray_t layers = solid_array(make_cudaExtent(8, 4, 5), cudaArrayLayered, values), solid = solid_array(make_cudaExtent(8, 4, 5), 0, values);
    sample_layers<<<5, 8>>>(texture(of_array(layers)), out);
    seen = back(out, 40);
    for (int i = 0; i < 40; ++i) expect("layers", seen[i], values[i / 8 * 32 + i % 8]);
    sample_solid<<<5, 8>>>(texture(of_array(solid)), out);
    seen = back(out, 40);
    for (int i = 0; i < 40; ++i) expect("a solid", seen[i], values[i / 8 * 32 + 8 + i % 8]);
    // A box of it, to rows that lie further apart.
    std::vector<float> apart(3 * 12 * 5, -1);
    cudaMemcpy3DParms copy = {};
    copy.srcArray = solid;
    copy.srcPos = make_cudaPos(2, 1, 1);
    copy.dstPtr = make_cudaPitchedPtr(apart.data(), 12 * 4, 12, 5);
    copy.extent = make_cudaExtent(4, 3, 3);
    copy.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3D(&copy));
    for (int i = 0; i < int(apart.size()); ++i) {
        int x = i % 12, y = i / 12 % 5, z = i / 60;
        expect("a box", apart[i], x < 4 && y < 3 ? values[(z + 1) * 32 + (y + 1) * 8 + x + 2] : -1);
    }
    // Levels, the last of which a kernel makes.
    auto description = cudaCreateChannelDesc<float>();
    cudaMipmappedArray_t pyramid;
    CHECK(cudaMallocMipmappedArray(&pyramid, &description, make_cudaExtent(8, 8, 0), 4, cudaArraySurfaceLoadStore));
    for (int level = 0; level < 4; ++level) {
        int side = 8 >> level;
        std::vector<float> image(side * side, 10.0f * level);
        cudaArray_t part;
        CHECK(cudaGetMipmappedArrayLevel(&part, pyramid, level));
        CHECK(cudaMemcpy2DToArray(part, 0, 0, image.data(), side * 4, side * 4, side, cudaMemcpyHostToDevice));
        if (level < 3) continue;
        cudaResourceDesc resource = of_array(part);
        cudaSurfaceObject_t surface;
        CHECK(cudaCreateSurfaceObject(&surface, &resource));
        add_one<<<1, 1>>>(surface);
        CHECK(cudaDestroySurfaceObject(surface));
    }
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeMipmappedArray;
    resource.res.mipmap.mipmap = pyramid;
    cudaTextureDesc sampled = {};
    sampled.normalizedCoords = 1;
    sampled.maxMipmapLevelClamp = 100;
    CHECK(cudaCreateTextureObject(&object, &resource, &sampled, nullptr));
    sample_levels<<<1, 4>>>(object, out);
    seen = back(out, 4);
    for (int i = 0; i < 4; ++i) expect("a level", seen[i], i < 3 ? 10 * i : 31);
    CHECK(cudaFreeMipmappedArray(pyramid));
}

static void memory_as_texture() {
    float *memory = device<float>(512), *out = device<float>(512);
    auto values = numbers(512, 5);
    CHECK(cudaMemcpy(memory, values.data(), 2048, cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = memory;
    resource.res.linear.desc = cudaCreateChannelDesc<float>();
    resource.res.linear.sizeInBytes = 400;
    fetch<<<1, 100>>>(texture(resource), out);
    auto seen = back(out, 100);
    for (int i = 0; i < 100; ++i) expect("memory", seen[i], values[i]);
    resource = {};
    resource.resType = cudaResourceTypePitch2D;
    resource.res.pitch2D.devPtr = memory;
    resource.res.pitch2D.desc = cudaCreateChannelDesc<float>();
    resource.res.pitch2D.width = 40;
    resource.res.pitch2D.height = 8;
    resource.res.pitch2D.pitchInBytes = 256;
    sample<<<8, 40>>>(texture(resource), out, 40, 8);
    seen = back(out, 320);
    for (int i = 0; i < 320; ++i) expect("rows of memory", seen[i], values[i / 40 * 64 + i % 40]);
}

// Copies and kernels of a stream, one after the other, many times; then the same as a graph.
static void streams() {
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    cudaArray_t array = plane(cudaArraySurfaceLoadStore);
    cudaResourceDesc resource = of_array(array);
    cudaSurfaceObject_t surface;
    CHECK(cudaCreateSurfaceObject(&surface, &resource));
    float *pinned, *memory = device<float>(width * height);
    CHECK(cudaMallocHost(&pinned, width * height * 4));
    auto image = numbers(width * height, 2);
    std::memcpy(pinned, image.data(), width * height * 4);
    CHECK(cudaMemcpy2DToArrayAsync(array, 0, 0, pinned, width * 4, width * 4, height, cudaMemcpyHostToDevice, stream));
    auto round = [&] {
        add_one<<<height, width, 0, stream>>>(surface);
        CHECK(cudaMemcpy2DFromArrayAsync(memory, width * 4, array, 0, 0, width * 4, height, cudaMemcpyDeviceToDevice, stream));
        CHECK(cudaMemcpy2DToArrayAsync(array, 0, 0, memory, width * 4, width * 4, height, cudaMemcpyDeviceToDevice, stream));
    };
    for (int i = 0; i < 30; ++i) round();
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    round();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 12; ++i) CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaMemcpy2DFromArrayAsync(pinned, width * 4, array, 0, 0, width * 4, height, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < width * height; ++i) expect("in a stream", pinned[i], image[i] + 42);
    CHECK(cudaDestroySurfaceObject(surface));
    CHECK(cudaFreeArray(array));
}

// Memory of arrays comes back.
static void over_and_over() {
    auto description = cudaCreateChannelDesc<float>();
    for (int i = 0; i < 40; ++i) {
        cudaArray_t array;
        CHECK(cudaMallocArray(&array, &description, 4096, 2048));
        float value = i, seen = -1;
        CHECK(cudaMemcpy2DToArray(array, 400, 7, &value, 4, 4, 1, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy2DFromArray(&seen, 4, array, 400, 7, 4, 1, cudaMemcpyDeviceToHost));
        expect("one texel", seen, i);
        CHECK(cudaFreeArray(array));
    }
}

static void held() {
    cudaArray_t array = plane(cudaArraySurfaceLoadStore);
    auto image = numbers(width * height, 4);
    CHECK(cudaMemcpy2DToArray(array, 0, 0, image.data(), width * 4, width * 4, height, cudaMemcpyHostToDevice));
    cudaTextureObject_t object = texture(of_array(array));
    float *out = device<float>(width * height);
    std::puts("ready");
    std::fflush(stdout);
    char line[64];
    bool has_objects = true;
    for (int round = 1; std::fgets(line, sizeof line, stdin); ++round) {
        if (std::strncmp(line, "destroy", 7) == 0) {
            CHECK(cudaDestroyTextureObject(object));
            CHECK(cudaFreeArray(array));
            has_objects = false;
        } else if (has_objects) {
            sample<<<height, width>>>(object, out, width, height);
            auto seen = back(out, width * height);
            for (int i = 0; i < width * height; ++i) expect("held", seen[i], image[i]);
        }
        CHECK(cudaDeviceSynchronize());
        std::printf("round %d %s\n", round, right ? "right" : "wrong");
        std::fflush(stdout);
    }
}

int main(int argc, char **argv) {
    if (argc > 1) {
        held();
    } else {
        planes();
        more_dimensions();
        memory_as_texture();
        streams();
        over_and_over();
    }
    return finish("arrays", right, checked);
}
