// Two libraries that both have `answer`: the first asks for the next one, which depends on who asks.
#define _GNU_SOURCE
#include <dlfcn.h>

#ifdef FIRST
int answer(void) {
    int (*next)(void) = dlsym(RTLD_NEXT, "answer");
    return next ? next() + 1 : -1;
}
#elif defined(SECOND)
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int answer(void) { return 41; }

// As a library that a user preloads for programs that must see other files than there are.
int stat(const char *path, struct stat *out) { return strcmp(path, "/dev/nvidia-none") ? syscall(SYS_newfstatat, AT_FDCWD, path, out, 0) : 0; }
#else
#include <stdio.h>
int answer(void);
int main(void) {
    void *nothing = dlsym(RTLD_DEFAULT, "__nothing_of_this_name");
    const char *error = dlerror();
    printf("%d %d %d %d\n", answer(), dlsym(RTLD_DEFAULT, "answer") == (void *)answer, nothing == NULL, error != NULL);
    return 0;
}
#endif
