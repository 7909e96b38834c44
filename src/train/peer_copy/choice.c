/* peer_copy_choice — see peer_copy/choice.h. */
#include "train/peer_copy/choice.h"

#include "mesh/mesh_comm.h"

#define RING 3

/* shift_node — Returns the node `by` further in a node's pair or ring. */
static int shift_node(int node, int nodes, int by)
{
    const int first = nodes % 2 == 0 ? nodes : nodes - RING; /* first node of the ring */
    return node < first ? node ^ 1 : first + (node - first + by) % RING;
}

/* most_in_node — Returns the largest number of a shard's ranks that a node may hold. The ranks of a
 * tensor group, which hold different shards, are neighbours. */
static int most_in_node(const struct peer_copy_world *w)
{
    const int tensor = w->mesh.size[MESH_AXIS_TENSOR];
    return (w->locals + tensor - 1) / tensor;
}

static int ranks_of_shard(const struct peer_copy_world *w)
{
    return mesh_group_n(&w->mesh, MESH_COMM_DATA_AXES);
}

bool peer_copy_choice_is_within(const struct peer_copy_world *w)
{
    return ranks_of_shard(w) >= 2 * most_in_node(w);
}

bool peer_copy_choice_is_same_shard(const struct peer_copy_world *w, int rank, int other)
{
    return mesh_is_same_group(&w->mesh, MESH_COMM_DATA_AXES, rank, other);
}

static int find_in_ring(const struct peer_copy_world *w, int rank, int by)
{
    if (w->nodes < 2)
        return -1;
    if (peer_copy_choice_is_within(w)) {
        /* The same among the ranks of a shard. The ranks of one node are consecutive in this list.
         * So two ranks that are most_in_node apart in it are on different nodes, from either
         * end. */
        const int context = w->mesh.size[MESH_AXIS_CONTEXT], n = ranks_of_shard(w),
                  each = most_in_node(w);
        struct mesh_coord at = mesh_coord_of(&w->mesh, rank);
        int i = at.at[MESH_AXIS_DATA] * context + at.at[MESH_AXIS_CONTEXT];
        if (n % each == 0)
            i = shift_node(i / each, n / each, by) * each + i % each;
        else
            i = (i + (by == 1 ? each : n - each)) % n;
        at.at[MESH_AXIS_DATA] = i / context;
        at.at[MESH_AXIS_CONTEXT] = i % context;
        return mesh_rank_of(&w->mesh, &at);
    }
    return shift_node(rank / w->locals, w->nodes, by) * w->locals + rank % w->locals;
}

int peer_copy_choice_keeper(const struct peer_copy_world *world, int rank)
{
    return find_in_ring(world, rank, 1);
}

int peer_copy_choice_kept_rank(const struct peer_copy_world *world, int rank)
{
    return find_in_ring(world, rank, RING - 1);
}

/* compare_stamps — Compares by history, then by step; below 0: a is older. */
static int compare_stamps(const struct peer_copy_stamp *a, const struct peer_copy_stamp *b)
{
    if (a->history != b->history)
        return a->history < b->history ? -1 : 1;
    return a->step < b->step ? -1 : a->step > b->step;
}

static bool is_suspect(const struct peer_copy_offer *offers, int ranks,
                       const struct peer_copy_stamp *at)
{
    bool is_so = false;
    for (int rank = 0; rank < ranks; rank++)
        is_so = is_so ||
                (offers[rank].suspect_history > 0 && offers[rank].suspect_history == at->history &&
                 offers[rank].suspect_step <= at->step);
    return is_so;
}

/* newest_below — Returns the newest complete stamp that is older than *limit (NULL: any) and not
 * suspect, or NULL. */
static const struct peer_copy_stamp *newest_below(const struct peer_copy_offer *offers, int ranks,
                                                  int ranks_max,
                                                  const struct peer_copy_stamp *limit)
{
    const struct peer_copy_stamp *best = NULL;
    for (int rank = 0; rank < ranks; rank++)
        for (int slot = 0; slot < PEER_COPY_SLOTS; slot++) {
            const struct peer_copy_stamp *at = &offers[rank].slot[slot];
            if ((at->is_complete && at->step >= 0 && at->ranks >= 1 && at->ranks <= ranks_max) &&
                (!limit || compare_stamps(at, limit) < 0) &&
                (!best || compare_stamps(at, best) > 0) && !is_suspect(offers, ranks, at))
                best = at;
        }
    return best;
}

int peer_copy_choice_slot(const struct peer_copy_offer *offer, int kind, int slice_rank, int ranks,
                          int64_t history, int64_t step)
{
    const struct peer_copy_stamp wanted = {.history = history, .step = step};
    for (int i = kind * PEER_COPY_BUFFERS; i < (kind + 1) * PEER_COPY_BUFFERS; i++)
        if (offer->slot[i].is_complete && offer->slot[i].rank == slice_rank &&
            offer->slot[i].ranks == ranks && compare_stamps(&offer->slot[i], &wanted) == 0)
            return i;
    return -1;
}

static struct peer_copy_chosen copy_of(const struct peer_copy_offer *offers, int keeper, int kind,
                                       int slice_rank, const struct peer_copy_stamp *wanted)
{
    const int slot = peer_copy_choice_slot(&offers[keeper], kind, slice_rank, wanted->ranks,
                                           wanted->history, wanted->step);
    return (struct peer_copy_chosen){slot >= 0 ? keeper : -1, slot};
}

/* find_copy — Finds a copy of a slice from a world with other nodes. */
static struct peer_copy_chosen find_copy(const struct peer_copy_offer *offers, int ranks,
                                         int slice_rank, const struct peer_copy_stamp *wanted)
{
    struct peer_copy_chosen found = {-1, -1};
    for (int kind = 0; kind < PEER_COPY_KINDS && found.rank < 0; kind++)
        for (int rank = 0; rank < ranks && found.rank < 0; rank++)
            found = copy_of(offers, rank, kind, slice_rank, wanted);
    return found;
}

/* find_copies — Returns the number of missing slices, and one rank that lacks its own. */
static int find_copies(const struct peer_copy_offer *offers, const struct peer_copy_world *world,
                       const struct peer_copy_stamp *wanted, struct peer_copy_chosen *chosen,
                       int *missing_out)
{
    int missing_n = 0;
    for (int rank = wanted->ranks - 1; rank >= 0; rank--) {
        struct peer_copy_chosen found = {-1, -1};
        const int ranks = mesh_ranks(&world->mesh);
        const int keeper = wanted->ranks == ranks ? peer_copy_choice_keeper(world, rank) : -1;
        if (wanted->ranks == ranks)
            found = copy_of(offers, rank, PEER_COPY_OWN, rank, wanted);
        if (found.rank < 0 && keeper >= 0)
            found = copy_of(offers, keeper, PEER_COPY_KEPT, rank, wanted);
        chosen[rank] = found.rank >= 0 ? found : find_copy(offers, ranks, rank, wanted);
        if (chosen[rank].rank >= 0)
            continue;
        *missing_out = rank;
        missing_n++;
    }
    return missing_n;
}

void peer_copy_choice_make(const struct peer_copy_offer *offers,
                           const struct peer_copy_world *world, int ranks_max,
                           struct peer_copy_chosen *chosen, struct peer_copy_choice *out)
{
    *out = (struct peer_copy_choice){.missing = -1};
    const struct peer_copy_stamp *at = NULL;
    const int ranks = mesh_ranks(&world->mesh);
    while (!out->is_found && (at = newest_below(offers, ranks, ranks_max, at)) != NULL) {
        int missing = -1, missing_n = find_copies(offers, world, at, chosen, &missing);
        out->is_found = missing_n == 0;
        if (out->is_any && !out->is_found)
            continue; /* missing slices are reported for the newest one */
        *out = (struct peer_copy_choice){.is_found = out->is_found,
                                         .history = at->history,
                                         .step = at->step,
                                         .ranks = at->ranks,
                                         .missing = missing,
                                         .missing_n = missing_n,
                                         .is_any = true,
                                         .progress = at->progress};
    }
}
