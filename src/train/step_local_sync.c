/* step_local_sync — outer steps (step_local.h). */
#include <string.h>

#include "base/assert.h"
#include "train/outer.h"
#include "train/step_inside.h"
#include "train/step_local.h"

/* ---- a fragment's elements ---- */

/* Elements of the table that are neighbours in a rank's arrays too. */
struct run {
    int64_t first, at, elems;
};

/* next_run — of a rank's part of a fragment; *i: the range of the map to go on from, at first 0. */
static bool next_run(const struct step *s, int owner, int fragment, int *i, struct run *out)
{
    const struct fragment_map *map = &s->local.map;
    const struct part_extent part = step_local_part_of(s, owner, fragment);
    for (; *i < map->ranges_n; (*i)++) {
        const struct fragment_range *r = &map->range[*i];
        const int64_t from = r->at > part.first ? r->at : part.first,
                      part_end = part.first + part.elems,
                      end = r->at + r->elems < part_end ? r->at + r->elems : part_end;
        if (r->fragment != fragment || end <= from)
            continue;
        *out = (struct run){r->first + from - r->at,
                            step_local_own(s, owner, fragment) + from - part.first, end - from};
        (*i)++;
        return true;
    }
    return false;
}

/* read_own — this rank's part of a fragment of the replica's own parameters. */
static enum status read_own(struct step *s, int fragment, float *to)
{
    struct run run;
    TRY(store_drain(s->store));
    for (int i = 0; next_run(s, s->local.rank, fragment, &i, &run);)
        TRY(dev_copy(s->stream, to + run.at,
                     tensor_at(store_replicated(s->store, 0), run.first).data,
                     (size_t)run.elems * sizeof *to));
    return dev_sync(s->stream);
}

enum status step_local_sync_fill(struct step *s)
{
    s->local.is_level = true;
    for (int i = 0; s->local.is_on && i < s->local.map.n; i++)
        TRY(read_own(s, i, s->local.outer));
    return ST_OK;
}

/* share_run — values of one rank become parameters on all ranks of the replica. */
static enum status share_run(struct step *s, int owner, const struct run *run, const float *values)
{
    struct step_local *l = &s->local;
    for (int64_t at = 0, n; at < run->elems; at += n) {
        n = run->elems - at < MESH_STATE_ELEMS ? run->elems - at : MESH_STATE_ELEMS;
        if (owner == l->rank)
            memcpy(l->chunk, values + run->at + at, (size_t)n * sizeof *l->chunk);
        TRY(comm_broadcast(s->config.comm, (struct tensor){l->chunk, DTYPE_F32}, n, owner));
        TRY(store_set(s->store, 0, run->first + at, n, l->chunk));
    }
    return ST_OK;
}

/* share — the new parameters of a fragment, of which each rank has its part in `values`. */
static enum status share(struct step *s, int fragment, const float *values)
{
    struct run run;
    for (int owner = 0; owner < s->local.ranks; owner++)
        for (int i = 0; next_run(s, owner, fragment, &i, &run);)
            TRY(s->local.chunk ? share_run(s, owner, &run, values)
                               : store_set(s->store, 0, run.first, run.elems, values + run.at));
    return ST_OK;
}

/* ---- the exchange ---- */

static enum status begin_run(struct step *s, int run)
{
    struct step_local *l = &s->local;
    const struct step_local_runs runs = step_local_runs(s, l->rank, l->flying);
    const int64_t all = step_local_part_of(s, l->rank, l->flying).elems, first = run * runs.elems,
                  n = all - first < runs.elems ? all - first : runs.elems;
    const int64_t from = step_local_own(s, l->rank, l->flying) + first;
    float *at = l->work + from;
    struct tensor t = {at, DTYPE_F32};
    if (l->compress)
        return grad_compress_begin(l->compress, step_local_bucket(s, l->flying) + run, at, at, NULL,
                                   &l->ticket);
    if (l->sent) {
        outer_round(at, l->sent + from, n);
        t = (struct tensor){l->sent + from, DTYPE_BF16};
    }
    return comm_all_reduce_begin(l->across, t, t, n, &l->ticket);
}

static int pieces_n(const struct step *s)
{
    return s->config.local.delay > 0 ? (int)s->config.local.delay : 1;
}

static enum status begin_piece(struct step *s)
{
    struct step_local *l = &s->local;
    const int64_t n = step_local_runs(s, l->rank, l->flying).n, pieces = pieces_n(s);
    const int64_t end = n * (l->pieces + 1) / pieces;
    for (int64_t run = n * l->pieces / pieces; l->across && run < end; run++)
        TRY(begin_run(s, (int)run));
    l->pieces++;
    return ST_OK;
}

enum status step_local_sync_send(struct step *s)
{
    struct step_local *l = &s->local;
    l->is_level = false;
    return l->is_flying && !l->is_sent && l->pieces < pieces_n(s) ? begin_piece(s) : ST_OK;
}

enum status step_local_sync_finish(struct step *s)
{
    struct step_local *l = &s->local;
    if (!l->is_flying || l->is_sent)
        return ST_OK;
    while (l->pieces < pieces_n(s))
        TRY(begin_piece(s));
    if (l->across && step_local_runs(s, l->rank, l->flying).n > 0)
        TRY(comm_wait(l->across, l->ticket));
    const int64_t at = step_local_own(s, l->rank, l->flying),
                  n = step_local_part_of(s, l->rank, l->flying).elems;
    if (l->sent)
        outer_widen(l->sent + at, l->work + at, n);
    outer_mean(l->replicas, l->work + at, n);
    l->is_sent = true;
    return ST_OK;
}

static enum status begin(struct step *s, int fragment)
{
    struct step_local *l = &s->local;
    const int64_t at = step_local_own(s, l->rank, fragment);
    ASSERTF(!l->is_flying, "fragment %d begins while another is in flight", fragment);
    TRY(read_own(s, fragment, l->work));
    outer_gradient(l->outer + at, l->work + at, step_local_part_of(s, l->rank, fragment).elems);
    l->is_flying = true;
    l->is_sent = false;
    l->flying = fragment;
    l->pieces = 0;
    step_heartbeat(s);
    return ST_OK;
}

/* land — the update of the fragment in flight. */
static enum status land(struct step *s, int fragment, double mix, struct step_result *r)
{
    const struct step_local_config *c = &s->config.local;
    struct step_local *l = &s->local;
    const struct outer_rule rule = {c->lr, c->momentum};
    const int64_t at = step_local_own(s, l->rank, fragment),
                  n = step_local_part_of(s, l->rank, fragment).elems;
    TRY(step_local_sync_finish(s));
    step_heartbeat(s);
    outer_update(&rule, l->outer + at, l->momentum + at, l->work + at, n);
    if (mix > 0) {
        TRY(read_own(s, fragment, l->work));
        outer_mix(mix, l->outer + at, l->work + at, n);
    }
    TRY(share(s, fragment, mix > 0 ? l->work : l->outer));
    memset(l->work + at, 0, (size_t)n * sizeof *l->work);
    l->is_flying = false;
    r->outer_steps++;
    return ST_OK;
}

/* exchange — at once, without a replica's own parameters. */
static enum status exchange(struct step *s, int fragment, double mix, struct step_result *r)
{
    TRY(begin(s, fragment));
    return land(s, fragment, mix, r);
}

static enum status exchange_all(struct step *s, struct step_result *r)
{
    for (int i = 0; i < s->local.map.n; i++)
        TRY(exchange(s, i, 0, r));
    s->local.is_level = true;
    return ST_OK;
}

enum status step_local_sync(struct step *s, int64_t steps_done, bool is_last, struct step_result *r)
{
    const struct step_local_config *c = &s->config.local;
    const struct fragment_schedule schedule = step_local_schedule(c);
    struct step_local *l = &s->local;
    const int flying = fragment_flying(&schedule, steps_done),
              begun = fragment_begun(&schedule, steps_done);
    ASSERT(l->is_on);
    if (l->is_flying && (is_last || fragment_landing(&schedule, steps_done) >= 0))
        TRY(land(s, flying, c->mix, r));
    if (is_last)
        TRY(exchange_all(s, r));
    else if (begun >= 0 && c->delay > 0)
        TRY(begin(s, begun));
    else if (begun >= 0)
        TRY(exchange(s, begun, c->mix, r));
    if (begun >= 0 && c->delay == 0 && l->map.n == 1 && !(c->mix > 0))
        l->is_level = true;
    step_run_add_waits(s, r);
    return ST_OK;
}
