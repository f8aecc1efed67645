/*
 * For tests, preloaded: makes the Nth call of one function of the C library fail.
 * FAIL_LIBC=malloc:3, =pthread_create:1, =fopen:2, =madvise:1 (of those that give pages back), =hugepage:1 (of those
 * that ask for 2 MB pages: there are none then); malloc:0 fails none, malloc:all all;
 * FAIL_LIBC_CALLS=file gets the number of calls.
 * Only calls from the program itself count, so that the loader and other libraries are left alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);

static atomic_int calls;

/* Returns whether this call, made from `caller`, is the one that has to fail. */
static int fail(const char *name, const void *caller) {
    static atomic_uintptr_t program;
    const char *wish = getenv("FAIL_LIBC");
    size_t n = strlen(name);
    if (!wish || strncmp(wish, name, n) != 0 || wish[n] != ':') return 0;
    Dl_info info;
    if (!program && dladdr((void *)getauxval(AT_ENTRY), &info)) program = (unsigned long)info.dli_fbase;
    if (!dladdr(caller, &info) || (unsigned long)info.dli_fbase != program) return 0;
    return ++calls == atoi(wish + n + 1) || strcmp(wish + n + 1, "all") == 0;
}

__attribute__((destructor)) static void report(void) {
    const char *path = getenv("FAIL_LIBC_CALLS");
    static FILE *(*real)(const char *, const char *);
    if (!path) return;
    *(void **)&real = dlsym(RTLD_NEXT, "fopen");
    FILE *file = real(path, "w");
    if (file) {
        fprintf(file, "%d\n", calls);
        fclose(file);
    }
}

void *malloc(size_t size) {
    if (!fail("malloc", __builtin_return_address(0))) return __libc_malloc(size);
    errno = ENOMEM;
    return NULL;
}

void *calloc(size_t count, size_t size) {
    if (!fail("malloc", __builtin_return_address(0))) return __libc_calloc(count, size);
    errno = ENOMEM;
    return NULL;
}

void *realloc(void *old, size_t size) {
    if (!fail("malloc", __builtin_return_address(0))) return __libc_realloc(old, size);
    errno = ENOMEM;
    return NULL;
}

#undef strdup
char *strdup(const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = fail("malloc", __builtin_return_address(0)) ? NULL : __libc_malloc(size);
    if (copy) return memcpy(copy, text, size);
    errno = ENOMEM;
    return NULL;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (fail("pthread_create", __builtin_return_address(0))) return EAGAIN;
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return real(thread, attributes, start, argument);
}

FILE *fopen(const char *path, const char *mode) {
    static FILE *(*real)(const char *, const char *);
    if (fail("fopen", __builtin_return_address(0))) {
        errno = EMFILE;
        return NULL;
    }
    *(void **)&real = dlsym(RTLD_NEXT, "fopen");
    return real(path, mode);
}

int madvise(void *at, size_t bytes, int advice) {
    const char *name = advice == MADV_DONTNEED ? "madvise" : advice == MADV_HUGEPAGE ? "hugepage" : "-";
    if (!fail(name, __builtin_return_address(0))) return (int)syscall(SYS_madvise, at, bytes, advice);
    if (advice == MADV_HUGEPAGE) syscall(SYS_madvise, at, bytes, MADV_NOHUGEPAGE);
    errno = EINVAL;
    return -1;
}
