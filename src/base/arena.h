/* arena — a bump allocator: its memory is allocated once and used from the front. It never grows,
 * and is sealed after start-up. It only computes addresses, so its memory may be a device's. */
#ifndef CONVOY_BASE_ARENA_H
#define CONVOY_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

struct arena {
    const char *name; /* for messages: "params", "grads", "state", "acts", "scratch" */
    char *base;
    size_t cap_bytes;
    size_t used_bytes;
    bool sealed;
};

#define ARENA_ALIGN 64 /* every allocation starts on a cache line, which a 512-bit vector fills */

/* arena_round — returns the bytes that an allocation of `bytes` occupies: a multiple of
 * ARENA_ALIGN. */
static inline size_t arena_round(size_t bytes)
{
    return (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}
/* arena_init — starts an arena over memory that the caller owns, ARENA_ALIGN-aligned. base NULL:
 * only measure; allocations are NULL + offset and must not be touched, and cap_bytes does not
 * matter. */
void arena_init(struct arena *a, const char *name, void *base, size_t cap_bytes);
/* arena_alloc — returns the next allocation, ARENA_ALIGN-aligned. A full or sealed arena is an
 * ASSERT, because sizes are planned. */
void *arena_alloc(struct arena *a, size_t bytes);
/* arena_seal — forbids further allocations. */
void arena_seal(struct arena *a);

#endif
