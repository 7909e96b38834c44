/* step_sentinel — compares the parameters and moments that several ranks hold alike, if each has
 * them whole (mesh/store/store.h). Each rank makes a checksum of its bytes; all ranks get all of
 * them, and vote in the same way. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/memory.h"
#include "mesh/store/state.h"
#include "train/feature/sentinel.h"
#include "train/feature/step_checksums.h"
#include "train/feature/step_sentinel.h"
#include "train/feature/step_update_sums.h"

/* Checksums are exchanged as whole numbers of 16 bits, which sums of doubles keep. */
#define WORDS 4

/* The ranks that hold the same as this one: along the data and the context axis. */
struct replicas {
    int *rank, n;
};

static int ranks_of(const struct step_core *s) { return mesh_ranks(&s->mesh.mesh); }

enum status step_sentinel_exchange_some(struct step_core *s, const uint64_t *own, int n, int slot,
                                        int slots_n, uint64_t *all)
{
    const int all_n = slots_n * n;
    struct comm_ticket ticket;
    double *words = calloc((size_t)all_n * WORDS, sizeof *words);
    if (!words)
        return FAIL(ST_RETRY, "out of memory: %d checksums of each of %d ranks", n, slots_n);
    double *mine = words + (ptrdiff_t)slot * n * WORDS;
    for (int i = 0; own && i < n * WORDS; i++)
        mine[i] = (double)(own[i / WORDS] >> (16 * (i % WORDS)) & 0xFFFF);
    enum status st = store_all_reduce_begin(s->store, words, all_n * WORDS, &ticket);
    if (st == ST_OK)
        st = store_wait(s->store, ticket);
    if (st == ST_OK) {
        for (int i = 0; i < all_n; i++)
            all[i] = 0;
        for (int i = 0; i < all_n * WORDS; i++)
            all[i / WORDS] |= (uint64_t)words[i] << (16 * (i % WORDS));
    }
    free(words);
    return st;
}

enum status step_sentinel_exchange(struct step_core *s, const uint64_t *own, int n, uint64_t *all)
{
    return step_sentinel_exchange_some(s, own, n, comm_place(s->config.comm)->rank, ranks_of(s),
                                       all);
}

/* judge_all — Compares group by group; the first rank of a group stands for it. all: the numbers of
 * the checksums of each array, rank after rank. */
static void judge_all(const struct step_core *s, const uint64_t *all, struct step_sentinel *out)
{
    const int ranks = ranks_of(s);
    struct replicas replicas = {.rank = memory_new((size_t)ranks, sizeof(int))};
    uint64_t *sum = memory_new((size_t)ranks, sizeof *sum);
    *out = (struct step_sentinel){.is_same = true, .rank = -1};
    for (int rank = 0; rank < ranks && out->is_same; rank++) {
        /* The first array in which the ranks that hold the same as rank `first` differ. */
        const int numbers = CHECKSUM_N * step_arrays(s->step);
        replicas.n = mesh_group(&s->mesh.mesh, rank, MESH_COMM_DATA_AXES, replicas.rank);
        if (replicas.rank[0] != rank)
            continue;
        for (int at = 0; at < numbers && out->is_same; at++) {
            for (int i = 0; i < replicas.n; i++)
                sum[i] = all[replicas.rank[i] * numbers + at];
            const struct sentinel_vote vote = sentinel_vote(sum, replicas.n);
            out->is_same = vote.odd < 0;
            out->rank = vote.is_majority && vote.odd >= 0 ? replicas.rank[vote.odd] : -1;
            out->first = rank;
            out->array = at / CHECKSUM_N;
            out->replicas_n = replicas.n;
        }
    }
    free(replicas.rank);
    free(sum);
}

/* whole_array — Returns the address of an array that lies whole on this rank, else NULL. */
static float *whole_array(const struct step_core *s, int array)
{
    return state_describe(store_state(s->store), array, 0).here;
}

bool step_sentinel_compares(const struct step *step)
{
    const struct step_core *s = step_core(step);
    return step_mesh_store_ranks(s) > 1 && whole_array(s, 0) && s->config.sentinel_every > 0 &&
           !s->local.is_on;
}

/* sum_replicas — Begins this rank's checksums of each array that lies whole on it; 0 for the
 * others. */
static enum status sum_replicas(struct step_core *s)
{
    const int arrays = step_arrays(s->step);
    TRY(step_checksums_begin(s, arrays));
    for (int array = 0; array < arrays; array++) {
        const struct tensor whole = {whole_array(s, array), DTYPE_F32};
        if (whole.data)
            TRY(step_checksums_add(s, array, whole, s->table.total_elems, 0));
    }
    return ST_OK;
}

enum status step_sentinel_submit(struct step_core *s)
{
    if (s->frozen.table.params_n > 0)
        TRY(step_update_sums_submit(s));
    return step_sentinel_compares(s->step) ? sum_replicas(s) : ST_OK;
}

enum status step_sentinel(struct step *step, struct step_sentinel *out)
{
    struct step_core *s = step_core(step);
    const int numbers = CHECKSUM_N * step_arrays(step);
    const struct step_checksum *own;
    ASSERT(step_sentinel_compares(step));
    TRY(store_drain(s->store));
    TRY(sum_replicas(s));
    TRY(step_checksums_end(s, &own));
    uint64_t *all = memory_new((size_t)(ranks_of(s) * numbers), sizeof *all);
    enum status st = step_sentinel_exchange(s, own->sum, numbers, all);
    if (st == ST_OK)
        judge_all(s, all, out);
    free(all);
    return st;
}

/* updates_whole — Returns true if this rank updates all parameters. */
static bool updates_whole(const struct step_core *s)
{
    return store_local_shard(s->store, 0).elems == store_layout(s->store)->bucket[0].elems;
}

/* own_parameters — Finds contiguous parameters that this rank updates: all of them, its local
 * shard, or its part of the largest bucket if it also holds the parts of other ranks. */
static bool own_parameters(const struct step_core *s, struct step_replica *out)
{
    const bool has_masters = whole_array(s, 0) != NULL;
    const struct layout *layout = store_layout(s->store);
    if (!step_update_sums_of(s->step) || step_arrays(s->step) < 2)
        return false;
    out->parameters = store_local_shard(s->store, 0).p.data;
    out->elems = updates_whole(s) ? s->table.total_elems : layout->shard_elems;
    if (!has_masters || updates_whole(s))
        return true;
    out->elems = 0;
    for (int i = 0; i < layout->buckets_n; i++) {
        const struct store_local_shard a = store_local_shard(s->store, i);
        if (a.elems > out->elems)
            *out = (struct step_replica){.parameters = a.p.data, .elems = a.elems};
    }
    return out->elems > 0;
}

bool step_sentinel_replica(const struct step *step, struct step_replica *out)
{
    const struct step_core *s = step_core(step);
    *out = (struct step_replica){.parameters = whole_array(s, 0), .elems = s->table.total_elems};
    if (s->local.is_on)
        return false;
    /* Parameters that other ranks update are overwritten before they are compared. */
    return (out->parameters && step_mesh_store_ranks(s) > 2 && updates_whole(s)) ||
           own_parameters(s, out);
}
