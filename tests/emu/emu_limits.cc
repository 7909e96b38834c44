/* emu_limits — the limits of a launch (see emu_limits.h). */
#include "tests/emu/emu_limits.h"

#include <stdio.h>

#define KERNELS_MAX 1024
#define OPT_IN_BYTES ((size_t)48 << 10)
#define PARAM_BYTES_MAX 4096

/* What is known of a kernel: the dynamic shared memory that it was allowed. */
struct known {
    const void *kernel;
    size_t allowed;
};
static struct known known[KERNELS_MAX];
static int known_n;

static struct known *find(const void *kernel)
{
    for (int i = 0; i < known_n; i++)
        if (known[i].kernel == kernel)
            return &known[i];
    if (known_n == KERNELS_MAX)
        return NULL;
    known[known_n] = {kernel, 0};
    return &known[known_n++];
}

void emu_allow_shared(const void *kernel, size_t bytes)
{
    struct known *k = find(kernel);
    if (k)
        k->allowed = bytes;
}

/* Each returns false when its limit is broken, with the reason. */

static bool block_holds(const struct emu_launch *l, char *why, size_t bytes)
{
    size_t threads_n = (size_t)l->block.x * l->block.y * l->block.z;
    if (threads_n > 0 && threads_n <= 1024 && threads_n % 32 == 0 && l->block.z <= 64)
        return true;
    snprintf(why, bytes, "a block of %zu threads", threads_n);
    return false;
}

static bool grid_holds(const struct emu_launch *l, char *why, size_t bytes)
{
    if (l->grid.x > 0 && l->grid.y > 0 && l->grid.z > 0 && l->grid.x <= INT32_MAX &&
        l->grid.y <= 65535 && l->grid.z <= 65535)
        return true;
    snprintf(why, bytes, "a grid of %u %u %u blocks", l->grid.x, l->grid.y, l->grid.z);
    return false;
}

static bool params_hold(const struct emu_launch *l, char *why, size_t bytes)
{
    if (l->param_bytes <= PARAM_BYTES_MAX)
        return true;
    snprintf(why, bytes, "%zu bytes of parameters, at most %d", l->param_bytes, PARAM_BYTES_MAX);
    return false;
}

static bool shared_holds(const struct emu_launch *l, size_t most, char *why, size_t bytes)
{
    const struct known *k = find(l->kernel);
    if (l->shared_bytes > most) {
        snprintf(why, bytes, "%zu bytes of shared memory, at most %zu", l->shared_bytes, most);
        return false;
    }
    if (l->shared_bytes < OPT_IN_BYTES || (k && k->allowed >= l->shared_bytes))
        return true;
    snprintf(why, bytes,
             "%zu bytes of dynamic shared memory, and cudaFuncSetAttribute allowed %zu: a launch "
             "needs it from 48 KiB on",
             l->shared_bytes, k ? k->allowed : 0);
    return false;
}

bool emu_limits_hold(const struct emu_launch *l, size_t shared_most, char *why, size_t bytes)
{
    return block_holds(l, why, bytes) && grid_holds(l, why, bytes) && params_hold(l, why, bytes) &&
           shared_holds(l, shared_most, why, bytes);
}
