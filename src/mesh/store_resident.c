/* store_resident — see store_resident.h. */
#include "mesh/store_resident.h"

#include "base/assert.h"
#include "mesh/store_inside.h"
#include "mesh/store_slice.h"

/* is_settled — all buckets have had equally many updates. */
static bool is_settled(const struct store *s)
{
    bool is_behind = false;
    for (int i = 0; i < s->layout.buckets_n; i++)
        is_behind = is_behind || s->bucket[i].is_behind;
    return !is_behind;
}

static bool can_stay(const struct store *s)
{
    const bool is_table = !s->c.skips_hidden_second && !store_is_hybrid(s) && s->c.has_grads;
    return is_table && !s->is_discrete && store_slice_has_all(s) && is_settled(s);
}

bool store_resident_holds(const struct store_resident *r)
{
    bool has_all = r->parts_n > 0;
    for (int part = 0; part < r->parts_n; part++)
        has_all = has_all && r->part[part].data;
    return has_all;
}

/* take_memory — an allocation leaves the store. */
static void take_memory(struct store *s, const void *data, size_t bytes)
{
    int i = 0;
    while (i < s->memory_n && s->memory[i].data != data)
        i++;
    ASSERTF(i < s->memory_n && s->memory[i].bytes == bytes && !s->memory[i].is_comm,
            "%zu bytes, allocation %d of %d", bytes, i, s->memory_n);
    s->memory[i] = s->memory[--s->memory_n];
}

bool store_resident_take(struct store *s, struct store_resident *out)
{
    ASSERT(out->parts_n == 0);
    store_quiesce(s);
    if (!can_stay(s))
        return false;
    out->bytes = s->c.table->total_elems * (int64_t)sizeof(float);
    out->parts_n = 1 + s->c.moments_n;
    for (int part = 0; part < out->parts_n; part++) {
        out->part[part] = store_replicated(s, part);
        take_memory(s, out->part[part].data, (size_t)out->bytes);
    }
    return true;
}

struct tensor store_resident_adopt(struct store_resident *r, int part, int64_t bytes)
{
    if (!r || part >= r->parts_n || !r->part[part].data)
        return (struct tensor){0};
    ASSERTF(r->bytes == bytes, "part %d of %lld bytes, not %lld", part, (long long)r->bytes,
            (long long)bytes);
    const struct tensor taken = r->part[part];
    r->part[part] = (struct tensor){0};
    return taken;
}

void store_resident_free(struct store_resident *r, struct dev *dev)
{
    for (int part = 0; part < r->parts_n; part++)
        if (r->part[part].data)
            dev_free(dev, r->part[part].data, (size_t)r->bytes);
    *r = (struct store_resident){0};
}
