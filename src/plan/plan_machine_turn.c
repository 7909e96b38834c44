/* plan_machine_turn — memory for the arguments of what is measured, all over it by turns. */
#include "plan/plan_machine_inside.h"

static int64_t round_up(int64_t bytes) { return (bytes + 255) / 256 * 256; }

struct tensor plan_machine_turn_take(struct plan_machine_taken *t, int64_t elems, enum dtype dtype)
{
    struct tensor out = {t->m->memory + t->at, dtype};
    t->at += round_up(elems * (int64_t)dtype_bytes(dtype));
    return out;
}

struct tensor plan_machine_turn_take_shared(struct plan_machine_taken *t, int64_t elems,
                                            enum dtype dtype)
{
    struct tensor out = {t->m->shared + t->shared_at, dtype};
    if (!t->m->shared || t->m->cluster->is_gpu)
        return plan_machine_turn_take(t, elems, dtype);
    t->shared_at += round_up(elems * (int64_t)dtype_bytes(dtype));
    return out;
}

bool plan_machine_turn_open(const struct plan_machine_taken *t, int64_t *at,
                            struct plan_machine_turns *out)
{
    const struct plan_machine *m = t->m;
    *out = (struct plan_machine_turns){.m = m, .bytes = t->at, .shared_bytes = t->shared_at};
    out->at = at;
    out->n = t->at > 0 ? m->bytes / t->at : 1;
    out->shared_n = t->shared_at > 0 ? m->shared_bytes / t->shared_at : 1;
    return out->n > 0 && out->shared_n > 0;
}

struct plan_machine_taken plan_machine_turn_next(const struct plan_machine_turns *turns)
{
    int64_t i = (*turns->at)++;
    return (struct plan_machine_taken){turns->m, i % turns->n * turns->bytes,
                                       i % turns->shared_n * turns->shared_bytes};
}
