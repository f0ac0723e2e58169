// Arrays, textures and surfaces of all kinds, against what the programming guide says. With an
// argument it samples in three rounds, before two of which it says "ready" and waits for a line.
#include "../../examples/example.cuh"

#include <cmath>
#include <cstring>
#include <string>

static bool right = true;
static long long checked = 0;

static void expect(const char *what, double found, double wanted, double allowed = 0) {
    ++checked;
    if (std::fabs(found - wanted) <= allowed || (std::isnan(found) && std::isnan(wanted))) return;
    if (right) std::printf("%s: %.9g, not %.9g\n", what, found, wanted);
    right = false;
}

template <typename T>
static T *managed(size_t count) {
    T *memory;
    CHECK(cudaMallocManaged(&memory, count * sizeof(T)));
    return memory;
}

static cudaTextureObject_t texture(const cudaResourceDesc &resource, cudaTextureFilterMode filter, cudaTextureAddressMode address, bool normalized,
                                   cudaTextureReadMode read) {
    cudaTextureDesc description = {};
    for (auto &mode : description.addressMode) mode = address;
    description.filterMode = filter;
    description.readMode = read;
    description.normalizedCoords = normalized;
    description.mipmapFilterMode = filter;
    description.maxMipmapLevelClamp = 100;
    for (auto &part : description.borderColor) part = read == cudaReadModeElementType && filter == cudaFilterModePoint ? 0 : 7;
    cudaTextureObject_t object;
    CHECK(cudaCreateTextureObject(&object, &resource, &description, nullptr));
    return object;
}

static cudaResourceDesc of_array(cudaArray_t array) {
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    return resource;
}

// ---- what the kernels do

template <typename T>
__global__ void fetch(cudaTextureObject_t object, T *out, int from, int count) {
    for (int i = threadIdx.x; i < count; i += blockDim.x) out[i] = tex1Dfetch<T>(object, from + i);
}

__global__ void sample2(cudaTextureObject_t object, const float2 *at, float *out, int count) {
    for (int i = threadIdx.x; i < count; i += blockDim.x) out[i] = tex2D<float>(object, at[i].x, at[i].y);
}

__global__ void sample_more(cudaTextureObject_t line, cudaTextureObject_t solid, cudaTextureObject_t lines, cudaTextureObject_t planes, const float4 *at,
                            float *out, int count) {
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        float4 p = at[i];
        out[4 * i] = tex1D<float>(line, p.x);
        out[4 * i + 1] = tex3D<float>(solid, p.x, p.y, p.z);
        out[4 * i + 2] = tex1DLayered<float>(lines, p.x, int(p.w));
        out[4 * i + 3] = tex2DLayered<float>(planes, p.x, p.y, int(p.w));
    }
}

__global__ void colours(cudaTextureObject_t object, uchar4 *whole, cudaTextureObject_t normal, float4 *parts) {
    whole[threadIdx.x] = tex2D<uchar4>(object, threadIdx.x + 0.5f, 1.5f);
    parts[threadIdx.x] = tex2D<float4>(normal, threadIdx.x + 0.5f, 1.5f);
}

__global__ void directions(cudaTextureObject_t object, const float4 *at, float *out) {
    out[threadIdx.x] = texCubemap<float>(object, at[threadIdx.x].x, at[threadIdx.x].y, at[threadIdx.x].z);
}

__global__ void levels(cudaTextureObject_t object, float *out) { out[threadIdx.x] = tex2DLod<float>(object, 0.5f, 0.5f, 0.25f * threadIdx.x); }

__global__ void gather(cudaTextureObject_t object, float4 *out) { out[threadIdx.x] = tex2Dgather<float4>(object, threadIdx.x + 1.0f, 2.0f, 0); }

__global__ void invert(cudaSurfaceObject_t from, cudaSurfaceObject_t to, int width, int height) {
    int x = threadIdx.x, y = blockIdx.x;
    float value = surf2Dread<float>(from, x * 4, y);
    surf2Dwrite(-value, to, x * 4, height - 1 - y);
    // Outside: zero, and nothing written.
    surf2Dwrite(surf2Dread<float>(from, (width + x) * 4, y, cudaBoundaryModeZero) + 99, to, -4 * (x + 1), y, cudaBoundaryModeZero);
}

__global__ void fill_layers(cudaSurfaceObject_t surface, int layers) {
    for (int layer = 0; layer < layers; ++layer) surf2DLayeredwrite(make_int2(threadIdx.x, layer), surface, threadIdx.x * 8, blockIdx.x, layer);
}

__global__ void beyond(cudaSurfaceObject_t surface) { surf2Dwrite(1.0f, surface, 4096, 0); }

// ---- the guide's formulas

static int place(int i, int n, cudaTextureAddressMode mode, bool normalized) {
    if (mode == cudaAddressModeBorder) return i < 0 || i >= n ? -1 : i;
    if (mode == cudaAddressModeWrap && normalized) return ((i % n) + n) % n;
    if (mode == cudaAddressModeMirror && normalized) {
        int at = ((i % (2 * n)) + 2 * n) % (2 * n);
        return at < n ? at : 2 * n - 1 - at;
    }
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

static double expected2(const std::vector<float> &image, int width, int height, float2 at, cudaTextureFilterMode filter, cudaTextureAddressMode mode,
                        bool normalized, double border) {
    double x = at.x * (normalized ? double(width) : 1), y = at.y * (normalized ? double(height) : 1);
    auto texel = [&](int i, int j) {
        i = place(i, width, mode, normalized), j = place(j, height, mode, normalized);
        return i < 0 || j < 0 ? border : double(image[j * width + i]);
    };
    if (filter == cudaFilterModePoint) return texel(int(std::floor(x)), int(std::floor(y)));
    x -= 0.5, y -= 0.5;
    int i = int(std::floor(x)), j = int(std::floor(y));
    double a = std::round((x - i) * 256) / 256, b = std::round((y - j) * 256) / 256;
    return (1 - a) * (1 - b) * texel(i, j) + a * (1 - b) * texel(i + 1, j) + (1 - a) * b * texel(i, j + 1) + a * b * texel(i + 1, j + 1);
}

// ---- the kinds

static void linear_memory() {
    int *memory;
    int *out = managed<int>(40);
    std::vector<int> values(32);
    for (int i = 0; i < 32; ++i) values[i] = i * i - 5;
    CHECK(cudaMalloc(&memory, 32 * sizeof(int)));
    CHECK(cudaMemcpy(memory, values.data(), 32 * sizeof(int), cudaMemcpyDefault));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = memory;
    resource.res.linear.desc = cudaCreateChannelDesc<int>();
    resource.res.linear.sizeInBytes = 32 * sizeof(int);
    cudaTextureObject_t object = texture(resource, cudaFilterModePoint, cudaAddressModeClamp, false, cudaReadModeElementType);
    fetch<int><<<1, 32>>>(object, out, -4, 40);
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 40; ++i) expect("linear memory", out[i], i < 4 || i >= 36 ? 0 : values[i - 4]);
    CHECK(cudaDestroyTextureObject(object));
}

static void planes() {
    const int width = 13, height = 7, count = 400;
    std::vector<float> image(width * height);
    for (int i = 0; i < width * height; ++i) image[i] = (i * 37 % 101) - 50;
    auto description = cudaCreateChannelDesc<float>();
    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &description, width, height));
    CHECK(cudaMemcpy2DToArray(array, 0, 0, image.data(), width * 4, width * 4, height, cudaMemcpyHostToDevice));
    // The same in memory with a pitch.
    float *memory;
    size_t pitch;
    CHECK(cudaMallocPitch(&memory, &pitch, width * 4, height));
    CHECK(cudaMemcpy2D(memory, pitch, image.data(), width * 4, width * 4, height, cudaMemcpyDefault));
    cudaResourceDesc pitched = {};
    pitched.resType = cudaResourceTypePitch2D;
    pitched.res.pitch2D.devPtr = memory;
    pitched.res.pitch2D.desc = description;
    pitched.res.pitch2D.width = width;
    pitched.res.pitch2D.height = height;
    pitched.res.pitch2D.pitchInBytes = pitch;
    float2 *at = managed<float2>(count);
    float *out = managed<float>(count);
    for (bool normalized : {false, true}) {
        for (int i = 0; i < count; ++i) {
            float x = (i * 7919 % 1000) / 1000.0f * 3 - 1, y = (i * 104729 % 1000) / 1000.0f * 3 - 1;
            at[i] = normalized ? make_float2(x, y) : make_float2(x * width, y * height);
        }
        for (auto filter : {cudaFilterModePoint, cudaFilterModeLinear}) {
            for (auto mode : {cudaAddressModeWrap, cudaAddressModeClamp, cudaAddressModeMirror, cudaAddressModeBorder}) {
                for (const auto &resource : {of_array(array), pitched}) {
                    cudaTextureObject_t object = texture(resource, filter, mode, normalized, cudaReadModeElementType);
                    sample2<<<1, 64>>>(object, at, out, count);
                    CHECK(cudaDeviceSynchronize());
                    double border = filter == cudaFilterModePoint ? 0 : 7;
                    for (int i = 0; i < count; ++i) expect("plane", out[i], expected2(image, width, height, at[i], filter, mode, normalized, border), 1e-4);
                    CHECK(cudaDestroyTextureObject(object));
                }
            }
        }
    }
    // Back to the host, and a part of it to another array.
    std::vector<float> back(width * height);
    CHECK(cudaMemcpy2DFromArray(back.data(), width * 4, array, 0, 0, width * 4, height, cudaMemcpyDeviceToHost));
    for (int i = 0; i < width * height; ++i) expect("back", back[i], image[i]);
    cudaArray_t other;
    CHECK(cudaMallocArray(&other, &description, width, height));
    CHECK(cudaMemcpy2DArrayToArray(other, 0, 0, array, 4, 2, 20, 3));
    CHECK(cudaMemcpy2DFromArray(back.data(), 20, other, 0, 0, 20, 3, cudaMemcpyDeviceToHost));
    for (int j = 0; j < 3; ++j)
        for (int i = 0; i < 5; ++i) expect("part", back[j * 5 + i], image[(j + 2) * width + i + 1]);
    cudaTextureObject_t object = texture(of_array(array), cudaFilterModePoint, cudaAddressModeClamp, false, cudaReadModeElementType);
    float4 *four = managed<float4>(4);
    gather<<<1, 4>>>(object, four);
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 4; ++i) {
        float wanted[4] = {image[2 * width + i], image[2 * width + i + 1], image[width + i + 1], image[width + i]};
        float found[4] = {four[i].x, four[i].y, four[i].z, four[i].w};
        for (int n = 0; n < 4; ++n) expect("gather", found[n], wanted[n]);
    }
    // What the program asked for can be asked back.
    cudaResourceDesc resource;
    cudaTextureDesc asked;
    cudaChannelFormatDesc format;
    cudaExtent extent;
    unsigned flags;
    CHECK(cudaGetTextureObjectResourceDesc(&resource, object));
    CHECK(cudaGetTextureObjectTextureDesc(&asked, object));
    CHECK(cudaArrayGetInfo(&format, &extent, &flags, resource.res.array.array));
    expect("width", extent.width, width);
    expect("height", extent.height, height);
    expect("mode", asked.addressMode[0], cudaAddressModeClamp);
    CHECK(cudaDestroyTextureObject(object));
    CHECK(cudaFreeArray(other));
    CHECK(cudaFreeArray(array));
}

static cudaArray_t solid_array(cudaExtent extent, unsigned flags, const std::vector<float> &values) {
    auto description = cudaCreateChannelDesc<float>();
    cudaArray_t array;
    CHECK(cudaMalloc3DArray(&array, &description, extent, flags));
    cudaMemcpy3DParms copy = {};
    size_t height = extent.height ? extent.height : 1, depth = extent.depth ? extent.depth : 1;
    copy.srcPtr = make_cudaPitchedPtr(const_cast<float *>(values.data()), extent.width * 4, extent.width, height);
    copy.dstArray = array;
    copy.extent = make_cudaExtent(extent.width, height, depth);
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    return array;
}

static void more_dimensions() {
    const int width = 6, height = 5, depth = 4, count = 200;
    std::vector<float> values(width * height * depth);
    for (size_t i = 0; i < values.size(); ++i) values[i] = i * 29 % 53;
    cudaArray_t line = solid_array(make_cudaExtent(width, 0, 0), 0, values);
    cudaArray_t solid = solid_array(make_cudaExtent(width, height, depth), 0, values);
    cudaArray_t lines = solid_array(make_cudaExtent(width, 0, depth), cudaArrayLayered, values);
    cudaArray_t planes = solid_array(make_cudaExtent(width, height, depth), cudaArrayLayered, values);
    cudaTextureObject_t objects[4];
    int n = 0;
    for (auto array : {line, solid, lines, planes}) objects[n++] = texture(of_array(array), cudaFilterModeLinear, cudaAddressModeClamp, false, cudaReadModeElementType);
    float4 *at = managed<float4>(count);
    float *out = managed<float>(4 * count);
    for (int i = 0; i < count; ++i) at[i] = make_float4(i * 13 % 71 / 10.0f, i * 17 % 61 / 10.0f, i * 19 % 51 / 10.0f, i % (depth + 2) - 1);
    sample_more<<<1, 64>>>(objects[0], objects[1], objects[2], objects[3], at, out, count);
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < count; ++i) {
        float p[3] = {at[i].x, at[i].y, at[i].z};
        int first[3];
        double weight[3];
        for (int d = 0; d < 3; ++d) {
            first[d] = int(std::floor(p[d] - 0.5));
            weight[d] = std::round((p[d] - 0.5 - first[d]) * 256) / 256;
        }
        int layer = place(int(at[i].w), depth, cudaAddressModeClamp, false);
        // Sums over the corners of a cell, with so many dimensions; a layer in place of the third.
        auto sum = [&](int dimensions, int rows, int fixed) {
            double total = 0;
            for (int corner = 0; corner < 1 << dimensions; ++corner) {
                double share = 1;
                int index[3] = {0, 0, fixed};
                const int sizes[3] = {width, rows, depth};
                for (int d = 0; d < dimensions; ++d) {
                    int next = corner >> d & 1;
                    share *= next ? weight[d] : 1 - weight[d];
                    index[d] = place(first[d] + next, sizes[d], cudaAddressModeClamp, false);
                }
                total += share * values[(index[2] * rows + index[1]) * width + index[0]];
            }
            return total;
        };
        expect("line", out[4 * i], sum(1, 1, 0), 1e-4);
        expect("solid", out[4 * i + 1], sum(3, height, 0), 1e-4);
        expect("layered line", out[4 * i + 2], sum(1, 1, layer), 1e-4);
        expect("layered plane", out[4 * i + 3], sum(2, height, layer), 1e-4);
    }
    for (auto object : objects) CHECK(cudaDestroyTextureObject(object));
}

static void channels() {
    auto description = cudaCreateChannelDesc<uchar4>();
    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &description, 8, 3));
    std::vector<uchar4> image(24);
    for (int i = 0; i < 24; ++i) image[i] = make_uchar4(i, 255 - i, 10 * i, 128);
    CHECK(cudaMemcpy2DToArray(array, 0, 0, image.data(), 32, 32, 3, cudaMemcpyDefault));
    cudaTextureObject_t whole = texture(of_array(array), cudaFilterModePoint, cudaAddressModeClamp, false, cudaReadModeElementType);
    cudaTextureObject_t normal = texture(of_array(array), cudaFilterModePoint, cudaAddressModeClamp, false, cudaReadModeNormalizedFloat);
    uchar4 *bytes = managed<uchar4>(8);
    float4 *parts = managed<float4>(8);
    colours<<<1, 8>>>(whole, bytes, normal, parts);
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 8; ++i) {
        uchar4 wanted = image[8 + i];
        expect("x", bytes[i].x, wanted.x), expect("y", bytes[i].y, wanted.y), expect("z", bytes[i].z, wanted.z), expect("w", bytes[i].w, wanted.w);
        expect("part", parts[i].x, wanted.x / 255.0, 1e-7), expect("part", parts[i].w, wanted.w / 255.0, 1e-7);
    }
    // Whole numbers are not filtered: the runtime says so already.
    cudaTextureDesc wrong = {};
    wrong.filterMode = cudaFilterModeLinear;
    cudaTextureObject_t object;
    cudaResourceDesc resource = of_array(array);
    expect("filter", cudaCreateTextureObject(&object, &resource, &wrong, nullptr), cudaErrorInvalidFilterSetting);
    cudaGetLastError();
}

static void cubes() {
    std::vector<float> faces(6 * 4 * 4);
    for (size_t i = 0; i < faces.size(); ++i) faces[i] = i / 16 * 100 + i % 16;
    cudaArray_t array = solid_array(make_cudaExtent(4, 4, 6), cudaArrayCubemap, faces);
    cudaTextureObject_t object = texture(of_array(array), cudaFilterModePoint, cudaAddressModeClamp, true, cudaReadModeElementType);
    float4 *at = managed<float4>(6);
    float *out = managed<float>(6);
    const float directions_of[6][3] = {{1, 0.6f, -0.6f}, {-1, 0.6f, 0.6f}, {0.6f, 1, -0.6f}, {0.6f, -1, 0.6f}, {0.6f, 0.6f, 1}, {-0.6f, 0.6f, -1}};
    for (int i = 0; i < 6; ++i) at[i] = make_float4(directions_of[i][0], directions_of[i][1], directions_of[i][2], 0);
    directions<<<1, 6>>>(object, at, out);
    CHECK(cudaDeviceSynchronize());
    // All point to the right and upwards on their face: the last column of the first row.
    for (int i = 0; i < 6; ++i) expect("face", out[i], 100 * i + 3);
    CHECK(cudaDestroyTextureObject(object));
}

static void mipmaps() {
    auto description = cudaCreateChannelDesc<float>();
    cudaMipmappedArray_t array;
    CHECK(cudaMallocMipmappedArray(&array, &description, make_cudaExtent(8, 8, 0), 4));
    for (int level = 0; level < 4; ++level) {
        int side = 8 >> level;
        std::vector<float> image(side * side, 10.0f * level);
        cudaArray_t part;
        CHECK(cudaGetMipmappedArrayLevel(&part, array, level));
        if (level == 3) image[0] = -image[0];
        CHECK(cudaMemcpy2DToArray(part, 0, 0, image.data(), side * 4, side * 4, side, cudaMemcpyDefault));
        if (level < 3) continue;
        // A kernel makes the last level: of levels there are surfaces without asking for them.
        cudaResourceDesc resource = of_array(part);
        cudaSurfaceObject_t surface;
        CHECK(cudaCreateSurfaceObject(&surface, &resource));
        invert<<<1, 1>>>(surface, surface, 1, 1);
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaDestroySurfaceObject(surface));
    }
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeMipmappedArray;
    resource.res.mipmap.mipmap = array;
    float *out = managed<float>(16);
    for (auto filter : {cudaFilterModePoint, cudaFilterModeLinear}) {
        cudaTextureObject_t object = texture(resource, filter, cudaAddressModeClamp, true, cudaReadModeElementType);
        levels<<<1, 16>>>(object, out);
        CHECK(cudaDeviceSynchronize());
        for (int i = 0; i < 16; ++i) {
            double level = std::fmin(0.25 * i, 3);
            expect("level", out[i], filter == cudaFilterModePoint ? 10 * std::floor(level + 0.5) : 10 * level, 1e-4);
        }
        CHECK(cudaDestroyTextureObject(object));
    }
    CHECK(cudaFreeMipmappedArray(array));
}

static void surfaces() {
    const int width = 32, height = 5;
    auto description = cudaCreateChannelDesc<float>();
    cudaArray_t from, to;
    CHECK(cudaMallocArray(&from, &description, width, height, cudaArraySurfaceLoadStore));
    CHECK(cudaMallocArray(&to, &description, width, height, cudaArraySurfaceLoadStore));
    std::vector<float> image(width * height);
    for (int i = 0; i < width * height; ++i) image[i] = i + 1;
    CHECK(cudaMemcpy2DToArray(from, 0, 0, image.data(), width * 4, width * 4, height, cudaMemcpyDefault));
    cudaResourceDesc resource_from = of_array(from), resource_to = of_array(to);
    cudaSurfaceObject_t reads, writes;
    CHECK(cudaCreateSurfaceObject(&reads, &resource_from));
    CHECK(cudaCreateSurfaceObject(&writes, &resource_to));
    invert<<<height, width>>>(reads, writes, width, height);
    CHECK(cudaDeviceSynchronize());
    std::vector<float> back(width * height);
    CHECK(cudaMemcpy2DFromArray(back.data(), width * 4, to, 0, 0, width * 4, height, cudaMemcpyDefault));
    for (int j = 0; j < height; ++j)
        for (int i = 0; i < width; ++i) expect("surface", back[(height - 1 - j) * width + i], -image[j * width + i]);
    CHECK(cudaDestroySurfaceObject(reads));
    // No object is no error; one that is gone is.
    CHECK(cudaDestroySurfaceObject(0));
    CHECK(cudaDestroyTextureObject(0));
    expect("destroyed twice", cudaDestroySurfaceObject(reads), cudaErrorInvalidValue);
    // An array of layers, written by a kernel and copied back whole.
    auto pairs = cudaCreateChannelDesc<int2>();
    cudaArray_t layered;
    CHECK(cudaMalloc3DArray(&layered, &pairs, make_cudaExtent(8, 4, 3), cudaArrayLayered | cudaArraySurfaceLoadStore));
    cudaResourceDesc resource = of_array(layered);
    CHECK(cudaCreateSurfaceObject(&reads, &resource));
    fill_layers<<<4, 8>>>(reads, 3);
    std::vector<int2> all(8 * 4 * 3);
    cudaMemcpy3DParms copy = {};
    copy.srcArray = layered;
    copy.dstPtr = make_cudaPitchedPtr(all.data(), 64, 8, 4);
    copy.extent = make_cudaExtent(8, 4, 3);
    copy.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3D(&copy));
    for (int i = 0; i < 96; ++i) expect("x", all[i].x, i % 8), expect("layer", all[i].y, i / 32);
    // An array that was not made for it has no surface.
    cudaArray_t plain;
    CHECK(cudaMallocArray(&plain, &description, width, height));
    resource = of_array(plain);
    expect("no surface", cudaCreateSurfaceObject(&reads, &resource), cudaErrorInvalidValue);
    cudaGetLastError();
}

// Objects live on while executors are replaced.
static void across() {
    const int width = 64, height = 48, count = 1000;
    std::vector<float> image(width * height);
    for (int i = 0; i < width * height; ++i) image[i] = std::sin(i * 0.37f);
    auto description = cudaCreateChannelDesc<float>();
    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &description, width, height, cudaArraySurfaceLoadStore));
    CHECK(cudaMemcpy2DToArray(array, 0, 0, image.data(), width * 4, width * 4, height, cudaMemcpyDefault));
    cudaTextureObject_t object = texture(of_array(array), cudaFilterModeLinear, cudaAddressModeMirror, true, cudaReadModeElementType);
    cudaResourceDesc resource = of_array(array);
    cudaSurfaceObject_t surface;
    CHECK(cudaCreateSurfaceObject(&surface, &resource));
    float2 *at = managed<float2>(count);
    float *out = managed<float>(count);
    for (int i = 0; i < count; ++i) at[i] = make_float2(i * 0.0137f - 2, i * 0.0071f - 3);
    for (int round = 0; round < 3; ++round) {
        if (round > 0) {
            std::printf("ready %d\n", round);
            std::fflush(stdout);
            if (std::getchar() == EOF) break;
        }
        sample2<<<1, 256>>>(object, at, out, count);
        CHECK(cudaDeviceSynchronize());
        for (int i = 0; i < count; ++i) expect("across", out[i], expected2(image, width, height, at[i], cudaFilterModeLinear, cudaAddressModeMirror, true, 7), 1e-5);
        // The next round has another image, made on the device.
        invert<<<height / 2, width>>>(surface, surface, width, height / 2);
        for (int i = 0; i < width * height; ++i) image[i] = 0.5f;
        CHECK(cudaMemcpy2DToArray(array, 0, 0, image.data(), width * 4, width * 4, height, cudaMemcpyDefault));
    }
}

int main(int argc, char **argv) {
    if (argc > 1 && std::strcmp(argv[1], "beyond") == 0) {
        auto description = cudaCreateChannelDesc<float>();
        cudaArray_t array;
        CHECK(cudaMallocArray(&array, &description, 16, 16, cudaArraySurfaceLoadStore));
        cudaResourceDesc resource = of_array(array);
        cudaSurfaceObject_t surface;
        CHECK(cudaCreateSurfaceObject(&surface, &resource));
        beyond<<<1, 1>>>(surface);
        std::printf("beyond: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
        return 0;
    }
    if (argc > 1) {
        across();
    } else {
        linear_memory();
        planes();
        more_dimensions();
        channels();
        cubes();
        mipmaps();
        surfaces();
    }
    return finish("textures", right, checked);
}
