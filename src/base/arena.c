/* arena — see arena.h. Arithmetic only: the memory itself is never read or written here. */
#include "base/arena.h"

#include <stdint.h>

#include "base/assert.h"

void arena_init(struct arena *a, const char *name, void *base, size_t cap_bytes)
{
    ASSERTF((uintptr_t)base % ARENA_ALIGN == 0, "arena %s base %p", name, base);
    *a = (struct arena){
        .name = name, .base = base, .cap_bytes = base == NULL ? SIZE_MAX / 2 : cap_bytes};
}

void *arena_alloc(struct arena *a, size_t bytes)
{
    ASSERTF(!a->sealed, "arena %s is sealed, %zu bytes requested", a->name, bytes);
    ASSERTF(bytes <= a->cap_bytes && arena_round(bytes) <= a->cap_bytes - a->used_bytes,
            "arena %s: %zu bytes requested, %zu of %zu used", a->name, bytes, a->used_bytes,
            a->cap_bytes);
    /* Computed as an integer: a measuring arena has no base, and NULL + offset is not defined for
     * pointers. */
    void *block = (void *)((uintptr_t)a->base + a->used_bytes);
    a->used_bytes += arena_round(bytes);
    return block;
}

void arena_seal(struct arena *a) { a->sealed = true; }
