// Looks for devices as programs do before they open the driver: by device files, and with NVML.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void *library;

static void *symbol(const char *name) {
    void *found = dlsym(library, name);
    if (!found) {
        printf("FAIL: no %s\n", name);
        exit(1);
    }
    return found;
}

/// cuInit, and how many devices there are then, in this process.
static void use(const char *who) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit"), (*ask)(int *) = (int (*)(int *))dlsym(driver, "cuDeviceGetCount"), count = -1;
    int result = init(0), told = ask(&count);
    printf("%s: %d %d, %d devices\n", who, result, told, count);
    fflush(stdout);
}

static void use_in_child(const char *who) {
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        use(who);
        _exit(0);
    }
    waitpid(child, 0, 0);
}

#define NVML(type, name) ((int (*) type)symbol(name))

int main(void) {
    struct stat file;
    int there = stat("/dev/nvidiactl", &file) == 0 && stat("/dev/nvidia0", &file) == 0 && S_ISCHR(file.st_mode);
    printf("device files: %s, another: %d, opened: %s\n", there ? "there" : "none", stat("/dev/nvidia-none", &file), open("/dev/nvidiactl", O_RDWR) < 0 ? "no" : "yes");
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) {
        printf("NVML: none\n");
        return 0;
    }
    unsigned count = 0, index = 0;
    int version = 0, major = 0, minor = 0;
    char name[96], uuid[96], shortened[4];
    void *device, *same;
    int results[] = {NVML((void), "nvmlInit_v2")(), NVML((unsigned *), "nvmlDeviceGetCount_v2")(&count), NVML((int *), "nvmlSystemGetCudaDriverVersion_v2")(&version)};
    printf("NVML: %d %d %d, %u devices, CUDA %d\n", results[0], results[1], results[2], count, version);
    for (unsigned i = 0; i < count; ++i) {
        NVML((unsigned, void **), "nvmlDeviceGetHandleByIndex_v2")(i, &device);
        NVML((void *, char *, unsigned), "nvmlDeviceGetName")(device, name, sizeof name);
        NVML((void *, char *, unsigned), "nvmlDeviceGetUUID")(device, uuid, sizeof uuid);
        NVML((void *, unsigned *), "nvmlDeviceGetIndex")(device, &index);
        NVML((void *, int *, int *), "nvmlDeviceGetCudaComputeCapability")(device, &major, &minor);
        NVML((const char *, void **), "nvmlDeviceGetHandleByUUID")(uuid, &same);
        printf("%u: %s, %d.%d, %s\n", index, name, major, minor, device == same && !strncmp(uuid, "GPU-", 4) && strlen(uuid) == 40 ? "found again" : uuid);
    }
    printf("too short: %d, too many: %d, no such: %d, refused: %d\n", NVML((void *, char *, unsigned), "nvmlDeviceGetName")(device, shortened, sizeof shortened),
           NVML((unsigned, void **), "nvmlDeviceGetHandleByIndex_v2")(count, &device),
           NVML((const char *, void **), "nvmlDeviceGetHandleByPciBusId_v2")("ffff:ff:1f.0", &same), NVML((void *, int, int *), "nvmlDeviceGetTemperature")(device, 0, &version));
    use_in_child("a child of who has looked");
    use("who has looked");
    use_in_child("a child of who uses them");
    return 0;
}
