// A compiler in NVRTC's place: it has its names and its ways, and compiles PTX to PTX. For a real architecture (`sm_90`) it makes
// what the software GPU does not run, for a virtual one (`compute_90`) it makes no machine code.
#include <stdlib.h>
#include <string.h>

typedef struct {
    char *source;
    int real;
    int compiled;
} Program;

int nvrtcVersion(int *major, int *minor) {
    *major = 13;
    *minor = 0;
    return 0;
}

int nvrtcCreateProgram(Program **program, const char *source, const char *name, int count, const char *const *headers, const char *const *names) {
    (void)name, (void)count, (void)headers, (void)names;
    *program = calloc(1, sizeof **program);
    (*program)->source = strdup(source);
    return 0;
}

int nvrtcDestroyProgram(Program **program) {
    free((*program)->source);
    free(*program);
    *program = 0;
    return 0;
}

int nvrtcCompileProgram(Program *program, int count, const char *const *options) {
    for (int i = 0; i < count; ++i) {
        const char *value = strchr(options[i], '=');
        if (!value++ || (strncmp(options[i], "-arch=", 6) && strncmp(options[i], "--gpu-architecture=", 19))) continue;
        if (!strncmp(value, "sm_", 3))
            program->real = 1;
        else if (strncmp(value, "compute_", 8))
            return 5;
    }
    program->compiled = 1;
    return 0;
}

int nvrtcGetPTXSize(Program *program, size_t *size) {
    *size = strlen(program->source) + 1;
    return program->compiled ? 0 : 3;
}

int nvrtcGetPTX(Program *program, char *text) {
    strcpy(text, program->source);
    return 0;
}

// An ELF header of machine code for sm_90.
static const char machine_code[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0x33, 7, 0, 0, 0, 0, 0, 0, 0, 2, 0, (char)190, 0, 1, 0, 0, 0,
                                      0,    0,   0,   0,   0, 0, 0, 0,    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,         0, 0, 0, 0, 0, 90, 5, 90, 0, 64};

int nvrtcGetCUBINSize(Program *program, size_t *size) {
    *size = program->real ? sizeof machine_code : 0;
    return 0;
}

int nvrtcGetCUBIN(Program *program, char *code) {
    if (program->real) memcpy(code, machine_code, sizeof machine_code);
    return 0;
}
