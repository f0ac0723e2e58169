// Asks the driver for what was compiled before, as NVRTC does: finds it, or "compiles" and keeps
// it. The slots of the table are in crates/shim/src/private/compilers.rs.
//   kept SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct table {
    size_t bytes;
    int (*make_key)(void **key, unsigned kind, const void *source, size_t bytes, const char *options, const char *host, const char *build, unsigned architecture,
                    unsigned variant);
    int (*end_key)(void *key);
    int (*find)(void *key, size_t reserved, const void **data, unsigned *bytes);
    int (*keep)(void *key, size_t reserved, const void *data, size_t bytes);
    int (*forget)(void *key);
    int (*take_back)(const void *data);
};

int main(int count, char **words) {
    if (count != 2) return 2;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return puts(dlerror()), 1;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    int (*get_table)(const void **, const void *) = (int (*)(const void **, const void *))dlsym(driver, "cuGetExportTable");
    static const uint8_t id[16] = {0xda, 0x91, 0x51, 0xd3, 0x3a, 0xe6, 0xcc, 0x41, 0xa5, 0xc0, 0x4f, 0x26, 0xd5, 0x33, 0xe3, 0x28};
    const struct table *table;
    if (init(0) || get_table((const void **)&table, id) || table->bytes != sizeof *table) return puts("no table"), 1;
    void *key;
    if (table->make_key(&key, 1, words[1], strlen(words[1]), " -arch=sm_90", "HOST64", "today", 90, 0)) return puts("no key"), 1;
    const void *data;
    unsigned bytes;
    int found = table->find(key, 0, &data, &bytes);
    if (found == 0) {
        printf("found %.*s\n", (int)bytes, (const char *)data);
        if (table->take_back(data)) return puts("not taken back"), 1;
    } else {
        char made[100];
        int length = snprintf(made, sizeof made, "the code of %s", words[1]);
        printf("%d, made %s, kept: %d\n", found, made, table->keep(key, 0, made, length));
    }
    return table->end_key(key);
}
