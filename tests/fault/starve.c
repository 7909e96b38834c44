/* starve — a library to be loaded before all others (LD_PRELOAD): STARVE=N makes allocation N from
 * main on fail, in the process whose first argument is STARVE_WHO ("worker", or "train" for the
 * supervisor). What libraries take before main (CUDA's tables of kernels, UCX's of settings) is
 * theirs. STARVE_COUNT=FILE: how many there were. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *data, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);

static atomic_long calls, fail_at = -1;
static atomic_int is_it;

typedef int main_fn(int argc, char **argv, char **environment);
static main_fn *real_main;

static int armed_main(int argc, char **argv, char **environment)
{
    const char *who = getenv("STARVE_WHO"), *at = getenv("STARVE");
    atomic_store(&fail_at, at ? atol(at) : -1);
    atomic_store(&is_it, who && argc > 1 && strcmp(argv[1], who) == 0);
    return real_main(argc, argv, environment);
}

typedef int start_fn(main_fn *, int, char **, void (*)(void), void (*)(void), void (*)(void),
                     void *);
int __libc_start_main(main_fn *program, int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld)(void), void *end)
{
    start_fn *start = (start_fn *)dlsym(RTLD_NEXT, "__libc_start_main");
    real_main = program;
    return start(armed_main, argc, argv, init, fini, rtld, end);
}

__attribute__((destructor)) static void tell(void)
{
    char digits[32];
    const char *path = getenv("STARVE_COUNT");
    int fd = path && atomic_load(&is_it) ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
    int n = snprintf(digits, sizeof digits, "%ld\n", atomic_load(&calls));
    if (fd >= 0 && write(fd, digits, (size_t)n) == n)
        close(fd);
}

static int must_fail(void)
{
    if (!atomic_load(&is_it) || atomic_fetch_add(&calls, 1) + 1 != atomic_load(&fail_at))
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t bytes) { return must_fail() ? NULL : __libc_malloc(bytes); }
void *calloc(size_t n, size_t bytes) { return must_fail() ? NULL : __libc_calloc(n, bytes); }
void *realloc(void *data, size_t bytes) { return must_fail() ? NULL : __libc_realloc(data, bytes); }
void *aligned_alloc(size_t align, size_t bytes)
{
    return must_fail() ? NULL : __libc_memalign(align, bytes);
}
