/* step_fill — draws the initial parameters of a step, a part of a tensor on each thread. The pool
 * is its own: the device's belongs to the device. Must not know how the state is divided. */
#include <stdlib.h>

#include "base/memory.h"
#include "base/thread_pool.h"
#include "train/step_inside.h"

#define FILL_PART ((int64_t)1 << 16)
#define FILL_PARTS 32

struct fill {
    const struct param_table *table;
    uint64_t seed;
    int param;
    int64_t first, n;
    float *out;
};

static void fill_part(void *arg, int part_i, int thread_i)
{
    (void)thread_i;
    const struct fill *f = arg;
    int64_t at = part_i * FILL_PART, n = f->n - at < FILL_PART ? f->n - at : FILL_PART;
    param_fill(f->table, f->param, f->seed, f->first + at, n, f->out + at);
}

static enum status fill_row(struct step *s, struct thread_pool *pool, int row, float *buffer)
{
    const struct param *p = &s->table.param[row];
    for (int64_t first = 0; first < p->elems; first += FILL_PARTS * FILL_PART) {
        struct fill f = {.table = &s->table,
                         .seed = s->config.seed,
                         .param = row,
                         .first = first,
                         .n = p->elems - first,
                         .out = buffer};
        if (f.n > FILL_PARTS * FILL_PART)
            f.n = FILL_PARTS * FILL_PART;
        if (!store_holds(s->store, 0, p->offset + first, f.n))
            continue;
        thread_pool_run(pool, (int)((f.n + FILL_PART - 1) / FILL_PART), fill_part, &f);
        TRY(store_set(s->store, 0, p->offset + first, f.n, buffer));
        step_heartbeat(s);
    }
    return ST_OK;
}

enum status step_fill(struct step *s)
{
    enum status st = ST_OK;
    struct thread_pool *pool = NULL;
    float *buffer = memory_new(FILL_PARTS * FILL_PART, sizeof *buffer);
    TRY_OR(thread_pool_open(thread_pool_cores() < THREAD_POOL_MAX ? thread_pool_cores()
                                                                  : THREAD_POOL_MAX,
                            &pool),
           out_buffer);
    for (int row = 0; st == ST_OK && row < s->table.params_n; row++)
        st = fill_row(s, pool, row, buffer);
    thread_pool_close(pool);
out_buffer:
    free(buffer);
    return st;
}
