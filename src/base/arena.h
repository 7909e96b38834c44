/* arena — memory taken once, in one piece, and dealt from the front. Never grows; sealed after
 * start-up.
 *
 * The base address may be device memory: an arena only does arithmetic on it. */
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

#define ARENA_ALIGN 64 /* every piece starts on a cache line; a 512-bit vector is one */

static inline size_t arena_round(size_t bytes)
{
    return (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}
/* arena_init — over memory owned by someone else, ARENA_ALIGN-aligned. base == NULL measures only:
 * pieces are NULL + offset, never to be touched, and cap_bytes does not matter. */
void arena_init(struct arena *a, const char *name, void *base, size_t cap_bytes);
/* arena_take — the next piece, ARENA_ALIGN-aligned; running out is an ASSERT (sizes were planned),
 * so is a sealed arena. */
void *arena_take(struct arena *a, size_t bytes);
void arena_reset(struct arena *a); /* forget all pieces (scratch) */
void arena_seal(struct arena *a);

#endif
