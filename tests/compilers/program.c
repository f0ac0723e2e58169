// Compiles a kernel while it runs, asks for machine code as programs do, loads what it gets and runs it.
//
//   program linked             by the libraries it is linked with
//   program opened FOLDER      by libraries that it opens itself, by path and by name
//   program plugin FOLDER      by a library of its own that is linked with them
//   program jitlink FOLDER     with nvJitLink: texts, intermediate code, and what cannot be linked
//   program plain              the same with the nvJitLink that it is linked with, by plain names
//   program plugins FOLDER     the same in libraries of its own that are linked with two versions of it
//   program text               prints the kernel
//   program file FILE          loads what another program has compiled
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD ".version 8.0\n.target sm_80\n.address_size 64\n"
static const char kernel[] = HEAD
    ".visible .entry k(.param .u64 out) {\n.reg .b64 %rd<2>;\n.reg .b32 %r<2>;\nld.param.u64 %rd1, [out];\nmov.u32 %r1, 42;\nst.global.u32 [%rd1], %r1;\nret;\n}\n";
static const char caller[] = HEAD
    ".extern .func (.param .b32 r) f ();\n.visible .entry k(.param .u64 out) {\n.reg .b64 %rd<2>;\n.reg .b32 %r<2>;\nld.param.u64 %rd1, [out];\n"
    "{\n.param .b32 q;\ncall.uni (q), f, ();\nld.param.b32 %r1, [q];\n}\nst.global.u32 [%rd1], %r1;\nret;\n}\n";
static const char callee[] = HEAD ".visible .func (.param .b32 r) f () {\n.reg .b32 %r<2>;\nmov.u32 %r1, 43;\nst.param.b32 [r], %r1;\nret;\n}\n";

static void *symbol(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) {
        printf("FAIL: no %s\n", name);
        exit(1);
    }
    return found;
}

#define DRIVER(type, name) ((type)symbol(cuda, name))

// Loads an image and runs its kernel: what the kernel has written, or the negative of an error.
static int run(const void *image) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    void *context, *module, *function;
    unsigned long long out = 0;
    int result = DRIVER(int (*)(unsigned), "cuInit")(0);
    if (!result) result = DRIVER(int (*)(void **, int), "cuDevicePrimaryCtxRetain")(&context, 0);
    if (!result) result = DRIVER(int (*)(void *), "cuCtxSetCurrent")(context);
    if (!result) result = DRIVER(int (*)(void **, const void *), "cuModuleLoadData")(&module, image);
    if (!result) result = DRIVER(int (*)(void **, void *, const char *), "cuModuleGetFunction")(&function, module, "k");
    if (!result) result = DRIVER(int (*)(unsigned long long *, size_t), "cuMemAlloc_v2")(&out, 4);
    void *arguments[] = {&out};
    typedef int (*Launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
    if (!result) result = DRIVER(Launch, "cuLaunchKernel")(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
    int value = 0;
    if (!result) result = DRIVER(int (*)(void *, unsigned long long, size_t), "cuMemcpyDtoH_v2")(&value, out, 4);
    return result ? -result : value;
}

typedef struct {
    int (*create)(void **, const char *, const char *, int, const char *const *, const char *const *);
    int (*compile)(void *, int, const char *const *);
    int (*size)(void *, size_t *);
    int (*code)(void *, char *);
    int (*destroy)(void **);
} Compiler;

static void compile(const char *what, const Compiler *compiler) {
    const char *options[] = {"-DX=sm_90", "--gpu-architecture=sm_90", "--maxrregcount=24"};
    void *program;
    size_t size = 0;
    int result = compiler->create(&program, kernel, "k.cu", 0, NULL, NULL);
    if (!result) result = compiler->compile(program, 3, options);
    if (!result) result = compiler->size(program, &size);
    char *code = malloc(size + 1);
    if (!result) result = compiler->code(program, code);
    compiler->destroy(&program);
    code[size] = 0;
    const char *kind = size && code[0] == '.' ? strstr(code, "\n.maxnreg 24\n") ? "limited PTX" : "PTX without a limit" : "machine code";
    printf("%s: %d, %s, %d\n", what, result, kind, result ? 0 : run(code));
    // Who asks for PTX gets it, as ever.
    const char *virtual[] = {"-arch=compute_90"};
    compiler->create(&program, kernel, "k.cu", 0, NULL, NULL);
    compiler->compile(program, 1, virtual);
    compiler->size(program, &size);
    if (size) printf("FAIL: machine code of %zu bytes for a virtual architecture\n", size);
    compiler->destroy(&program);
    free(code);
}

#ifdef LINKED
int nvrtcCreateProgram(void **, const char *, const char *, int, const char *const *, const char *const *);
int nvrtcCompileProgram(void *, int, const char *const *);
int nvrtcGetCUBINSize(void *, size_t *);
int nvrtcGetCUBIN(void *, char *);
int nvrtcDestroyProgram(void **);

#ifdef PLUGIN
__attribute__((visibility("default")))
#else
static
#endif
Compiler
linked(void) {
    return (Compiler){nvrtcCreateProgram, nvrtcCompileProgram, nvrtcGetCUBINSize, nvrtcGetCUBIN, nvrtcDestroyProgram};
}
#endif

static Compiler opened(void *library) {
    return (Compiler){symbol(library, "nvrtcCreateProgram"), symbol(library, "nvrtcCompileProgram"), symbol(library, "nvrtcGetCUBINSize"),
                      symbol(library, "nvrtcGetCUBIN"), symbol(library, "nvrtcDestroyProgram")};
}

typedef struct {
    int (*create)(void **, uint32_t, const char **);
    int (*add)(void *, int, const void *, size_t, const char *);
    int (*complete)(void *);
    int (*log_size)(void *, size_t *);
    int (*log)(void *, char *);
    int (*size)(void *, size_t *);
    int (*code)(void *, void *);
    int (*destroy)(void **);
} Linker;

static void link_with(const char *what, const Linker *linker, const char *const *texts, const int *kinds, int count) {
    const char *options[] = {"-arch=sm_90", "-lto"};
    void *link;
    size_t size = 0;
    int result = linker->create(&link, 2, options);
    for (int i = 0; !result && i < count; ++i) {
        char name[16];
        snprintf(name, sizeof name, "text%d", i);
        result = linker->add(link, kinds[i], texts[i], strlen(texts[i]) + 1, name);
    }
    if (!result) result = linker->complete(link);
    if (result) {
        linker->log_size(link, &size);
        char *log = malloc(size + 1);
        linker->log(link, log);
        printf("%s: %d, %s", what, result, *log ? log : "\n");
        return;
    }
    linker->size(link, &size);
    char *code = malloc(size + 1);
    linker->code(link, code);
    printf("%s: %d, %s, %d\n", what, result, code[0] == '.' ? "PTX" : "machine code", run(code));
    linker->destroy(&link);
}

static void link_all(const Linker *linker) {
    char intermediate[sizeof callee + 3] = "LTO";
    strcat(intermediate, callee);
    enum { CUBIN = 1, PTX = 2, LTO = 3 };
    link_with("texts", linker, (const char *[]){caller, callee}, (int[]){PTX, PTX}, 2);
    link_with("text as machine code", linker, (const char *[]){caller, callee}, (int[]){PTX, CUBIN}, 2);
    link_with("intermediate", linker, (const char *[]){caller, intermediate}, (int[]){PTX, LTO}, 2);
    link_with("missing", linker, (const char *[]){caller}, (int[]){PTX}, 1);
}

#ifdef LINKED_BY_PLAIN_NAMES
int nvJitLinkCreate(void **, uint32_t, const char **);
int nvJitLinkAddData(void *, int, const void *, size_t, const char *);
int nvJitLinkComplete(void *);
int nvJitLinkGetErrorLogSize(void *, size_t *);
int nvJitLinkGetErrorLog(void *, char *);
int nvJitLinkGetLinkedCubinSize(void *, size_t *);
int nvJitLinkGetLinkedCubin(void *, void *);
int nvJitLinkDestroy(void **);

__attribute__((visibility("default"))) void link_by_plain_names(void) {
    link_all(&(Linker){nvJitLinkCreate, nvJitLinkAddData, nvJitLinkComplete, nvJitLinkGetErrorLogSize, nvJitLinkGetErrorLog,
                       nvJitLinkGetLinkedCubinSize, nvJitLinkGetLinkedCubin, nvJitLinkDestroy});
}
#endif

int main(int count, char **arguments) {
    char path[4096];
    const char *mode = count > 1 ? arguments[1] : "", *folder = count > 2 ? arguments[2] : ".";
    if (!strcmp(mode, "opened")) {
        // A program that asks whether there is a compiler, before there is one.
        if (dlsym(RTLD_DEFAULT, "nvrtcCompileProgram")) printf("FAIL: a compiler that nobody has opened\n");
        if (dlsym(RTLD_DEFAULT, "nvJitLinkCreate")) printf("FAIL: a linker that nobody has opened\n");
        snprintf(path, sizeof path, "%s/libnvrtc.so.13", folder);
        Compiler compiler = opened(dlopen(path, RTLD_NOW | RTLD_LOCAL));
        compile("by path", &compiler);
        compiler = opened(dlopen("libnvrtc.so.13", RTLD_NOW | RTLD_LOCAL));
        compile("by name", &compiler);
        // For all to see.
        dlopen(path, RTLD_NOW | RTLD_GLOBAL);
        compiler = opened(RTLD_DEFAULT);
        compile("by default", &compiler);
    } else if (!strcmp(mode, "plugin")) {
        snprintf(path, sizeof path, "%s/libplugin.so", folder);
        Compiler compiler = ((Compiler(*)(void))symbol(dlopen(path, RTLD_NOW | RTLD_LOCAL), "linked"))();
        compile("plugin", &compiler);
#ifdef LINKED
    } else if (!strcmp(mode, "linked")) {
        Compiler compiler = linked();
        compile("linked", &compiler);
#endif
    } else if (!strcmp(mode, "jitlink")) {
        snprintf(path, sizeof path, "%s/libnvJitLink.so.13", folder);
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
#define LINKER(name) symbol(library, "__nvJitLink" name "_13_0")
        link_all(&(Linker){LINKER("Create"), LINKER("AddData"), LINKER("Complete"), LINKER("GetErrorLogSize"), LINKER("GetErrorLog"),
                           LINKER("GetLinkedCubinSize"), LINKER("GetLinkedCubin"), LINKER("Destroy")});
#ifdef LINKED_BY_PLAIN_NAMES
    } else if (!strcmp(mode, "plain")) {
        link_by_plain_names();
#endif
    } else if (!strcmp(mode, "plugins")) {
        const char *plugins[] = {"libolder.so", "libnewer.so"};
        for (int i = 0; i < 2; ++i) {
            snprintf(path, sizeof path, "%s/%s", folder, plugins[i]);
            ((void (*)(void))symbol(dlopen(path, RTLD_NOW | RTLD_LOCAL), "link_by_plain_names"))();
        }
    } else if (!strcmp(mode, "text")) {
        fputs(kernel, stdout);
    } else if (!strcmp(mode, "file")) {
        FILE *file = fopen(folder, "rb");
        if (!file) return printf("FAIL: no %s\n", folder);
        fseek(file, 0, SEEK_END);
        long size = ftell(file);
        rewind(file);
        // Nothing follows: machine code says itself how long it is.
        char *code = malloc(size);
        if (fread(code, 1, size, file) != (size_t)size) return printf("FAIL: %s\n", folder);
        printf("file: %d\n", run(code));
    }
    return 0;
}
