/* Runs one kernel of kernels.ptx through the CUDA driver API and compares its results with the CPU's: ptx_host kernels.ptx NAME.
 *
 * For machines where the CUDA compiler cannot be installed. Needs a C compiler and nothing of CUDA: the few functions are declared here and
 * looked up in libcuda.so.1 when it runs. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1 << 18, SIDE = 128, ROUNDS = 6, NOT_READY = 600, ILLEGAL_ADDRESS = 700 };

typedef int result;
typedef uint64_t address;

static void *library;

static void *find(const char *name) {
    void *found = dlsym(library, name);
    if (!found) {
        printf("FAIL: libcuda.so.1 has no %s\n", name);
        exit(1);
    }
    return found;
}

static void must(result code, const char *what) {
    if (code != 0) {
        printf("FAIL: %s returned %d\n", what, code);
        exit(1);
    }
}

static char *read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        printf("FAIL: cannot read %s\n", path);
        exit(1);
    }
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *text = calloc(1, size + 1);
    if (fread(text, 1, size, file) != (size_t)size) exit(1);
    fclose(file);
    return text;
}

/* What the kernel should have made of a and b. */
static void expected(const char *name, const uint32_t *a, const uint32_t *b, uint32_t *out) {
    if (!strcmp(name, "vector_add")) {
        for (int i = 0; i < N; ++i) out[i] = a[i] + b[i];
    } else if (!strcmp(name, "matrix_multiply")) {
        for (int row = 0; row < SIDE; ++row)
            for (int k = 0; k < SIDE; ++k)
                for (int column = 0; column < SIDE; ++column) out[row * SIDE + column] += a[row * SIDE + k] * b[k * SIDE + column];
    } else if (!strcmp(name, "reduction")) {
        for (int i = 0; i < N; ++i) out[i / 256] += a[i];
    } else if (!strcmp(name, "histogram")) {
        for (int i = 0; i < N; ++i) out[a[i] & 255] += 1;
    } else if (!strcmp(name, "scan")) {
        for (int i = 0; i < N; ++i) out[i] = a[i] + (i % 256 ? out[i - 1] : 0);
    } else if (!strcmp(name, "generator")) {
        for (int i = 0; i < N / 8; ++i) {
            uint32_t state = a[i] | 1;
            for (int k = 0; k < 500; ++k) {
                state ^= state << 13;
                state ^= state >> 17;
                state ^= state << 5;
                out[i] += (state & 255) < (b[i] & 255);
            }
        }
    } else if (!strcmp(name, "collatz")) {
        for (int i = 0; i < N / 8; ++i) {
            uint64_t value = (a[i] & 0xffff) + 1;
            for (; value != 1 && out[i] < 1000; ++out[i]) value = value % 2 ? 3 * value + 1 : value / 2;
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 3) {
        puts("usage: ptx_host kernels.ptx NAME");
        return 2;
    }
    const char *name = argv[2];
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        printf("FAIL: %s\n", dlerror());
        return 1;
    }
    result (*init)(unsigned) = find("cuInit");
    result (*get_device)(int *, int) = find("cuDeviceGet");
    result (*retain)(void **, int) = find("cuDevicePrimaryCtxRetain");
    result (*set_current)(void *) = find("cuCtxSetCurrent");
    result (*load)(void **, const void *) = find("cuModuleLoadData");
    result (*get_function)(void **, void *, const char *) = find("cuModuleGetFunction");
    result (*allocate)(address *, size_t) = find("cuMemAlloc_v2");
    result (*copy_in)(address, const void *, size_t) = find("cuMemcpyHtoD_v2");
    result (*copy_out)(void *, address, size_t) = find("cuMemcpyDtoH_v2");
    result (*clear)(address, unsigned char, size_t) = find("cuMemsetD8_v2");
    result (*pinned)(void **, size_t, unsigned) = find("cuMemHostAlloc");
    result (*device_pointer)(address *, void *, unsigned) = find("cuMemHostGetDevicePointer_v2");
    result (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **) = find("cuLaunchKernel");
    result (*query)(void *) = find("cuStreamQuery");
    result (*synchronize)(void) = find("cuCtxSynchronize");

    int device;
    void *context, *module, *function;
    must(init(0), "cuInit");
    must(get_device(&device, 0), "cuDeviceGet");
    must(retain(&context, device), "cuDevicePrimaryCtxRetain");
    must(set_current(context), "cuCtxSetCurrent");
    must(load(&module, read_file(argv[1])), "cuModuleLoadData");
    must(get_function(&function, module, name), "cuModuleGetFunction");

    uint32_t *a = malloc(4 * N), *b = malloc(4 * N), *out = calloc(N, 4), *right = calloc(N, 4);
    for (uint32_t i = 0; i < N; ++i) {
        a[i] = i * 2654435761u;
        b[i] = i * 40503u + 7;
    }
    address da, db, dout;
    must(allocate(&da, 4 * N), "cuMemAlloc");
    must(allocate(&db, 4 * N), "cuMemAlloc");
    must(allocate(&dout, 4 * N), "cuMemAlloc");
    must(copy_in(da, a, 4 * N), "cuMemcpyHtoD");
    must(copy_in(db, b, 4 * N), "cuMemcpyHtoD");
    must(clear(dout, 0, 4 * N), "cuMemsetD8");

    if (!strcmp(name, "long_kernel")) {
        volatile uint32_t *word;
        must(pinned((void **)&word, 4096, 2), "cuMemHostAlloc");
        *word = 0;
        must(device_pointer(&dout, (void *)word, 0), "cuMemHostGetDevicePointer");
        uint32_t n = 0;
        void *arguments[] = {&da, &db, &dout, &n};
        must(launch(function, 4, 1, 1, 64, 1, 1, 0, NULL, arguments, NULL), "cuLaunchKernel");
        while (!*word) {
            if (query(NULL) != NOT_READY) {
                puts("FAIL: the long kernel ended at once");
                return 1;
            }
        }
        puts("kernel running");
        fflush(stdout);
        printf("the long kernel ended with %d\n", synchronize());
        return 1;
    }
    int matrix = !strcmp(name, "matrix_multiply");
    int faulty = !strcmp(name, "illegal_access");
    uint32_t n = matrix ? SIDE : !strcmp(name, "generator") || !strcmp(name, "collatz") ? N / 8 : N;
    void *arguments[] = {&da, &db, &dout, &n};
    expected(name, a, b, right);
    for (int round = 0; round < ROUNDS; ++round) {
        must(clear(dout, 0, 4 * N), "cuMemsetD8");
        if (faulty) {
            must(launch(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL), "cuLaunchKernel");
            result end = synchronize();
            puts(end == ILLEGAL_ADDRESS ? "illegal_access: told of the illegal address, as it should be" : "illegal_access: FAIL, nothing was said");
            return end == ILLEGAL_ADDRESS ? 0 : 1;
        }
        must(matrix ? launch(function, SIDE / 16, SIDE / 16, 1, 16, 16, 1, 0, NULL, arguments, NULL)
                    : launch(function, (n + 255) / 256, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL),
             "cuLaunchKernel");
        must(copy_out(out, dout, 4 * N), "cuMemcpyDtoH");
        if (memcmp(out, right, 4 * N)) {
            printf("%s: FAIL, wrong results in round %d\n", name, round);
            return 1;
        }
    }
    printf("%s: PASS, %d results verified\n", name, ROUNDS * N);
    return 0;
}
