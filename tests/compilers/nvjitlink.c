// A linker in nvJitLink's place: it has its names and its ways. Its intermediate code is the word `LTO` and PTX behind it; linked
// to PTX it is that PTX; an older version (-DOLDER) makes 44 of each 43 in it. To everything else it makes machine code, which the
// software GPU does not run.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int ptx, lto;
    char *text;
} Link;

static int create(Link **link, uint32_t count, const char **options) {
    Link *made = calloc(1, sizeof *made);
    for (uint32_t i = 0; i < count; ++i) {
        if (!strcmp(options[i], "-ptx")) made->ptx = 1;
        if (!strcmp(options[i], "-lto")) made->lto = 1;
    }
    if (made->ptx && !made->lto) {
        free(made);
        return 11;
    }
    *link = made;
    return 0;
}

static int destroy(Link **link) {
    free((*link)->text);
    free(*link);
    *link = 0;
    return 0;
}

static int add_data(Link *link, int kind, const void *data, size_t bytes, const char *name) {
    (void)name;
    if (link->ptx && kind != 3) return 12;
    if (kind == 3) {
        if (bytes < 4 || memcmp(data, "LTO", 3)) return 3;
        link->text = malloc(bytes);
        memcpy(link->text, (const char *)data + 3, bytes - 3);
        link->text[bytes - 3] = 0;
    }
    return 0;
}

static int add_file(Link *link, int kind, const char *path) {
    (void)link, (void)kind, (void)path;
    return 3;
}

static int complete(Link *link) { return link->ptx && !link->text ? 6 : 0; }

static int cubin_size(Link *link, size_t *size) {
    (void)link;
    *size = 64;
    return 0;
}

static int cubin(Link *link, void *code) {
    (void)link;
    memset(code, 0, 64);
    memcpy(code, "\x7f" "ELF\x02\x01", 6);
    return 0;
}

static int ptx_size(Link *link, size_t *size) {
    *size = link->text ? strlen(link->text) + 1 : 0;
    return link->ptx ? 0 : 3;
}

static int ptx(Link *link, char *text) {
    strcpy(text, link->text);
#ifdef OLDER
    for (char *number = text; (number = strstr(number, "43")); ++number) number[1] = '4';
#endif
    return 0;
}

static int no_size(Link *link, size_t *size) {
    (void)link;
    *size = 1;
    return 0;
}

static int no_text(Link *link, char *text) {
    (void)link;
    *text = 0;
    return 0;
}

// By its plain name, for who asks for it, and by that of a version, as the header makes it.
#define EXPORT(name, local, types, arguments) \
    int name types { return local arguments; } \
    int __##name##_13_0 types { return local arguments; }
EXPORT(nvJitLinkCreate, create, (Link * *link, uint32_t count, const char **options), (link, count, options))
EXPORT(nvJitLinkDestroy, destroy, (Link * *link), (link))
EXPORT(nvJitLinkAddData, add_data, (Link * link, int kind, const void *data, size_t bytes, const char *name), (link, kind, data, bytes, name))
EXPORT(nvJitLinkAddFile, add_file, (Link * link, int kind, const char *path), (link, kind, path))
EXPORT(nvJitLinkComplete, complete, (Link * link), (link))
EXPORT(nvJitLinkGetLinkedCubinSize, cubin_size, (Link * link, size_t *size), (link, size))
EXPORT(nvJitLinkGetLinkedCubin, cubin, (Link * link, void *code), (link, code))
EXPORT(nvJitLinkGetLinkedPtxSize, ptx_size, (Link * link, size_t *size), (link, size))
EXPORT(nvJitLinkGetLinkedPtx, ptx, (Link * link, char *text), (link, text))
EXPORT(nvJitLinkGetErrorLogSize, no_size, (Link * link, size_t *size), (link, size))
EXPORT(nvJitLinkGetErrorLog, no_text, (Link * link, char *text), (link, text))
