/* comm_nodes_open — opens, splits and closes the state of nodes.c: the members, their connections,
 * memory for calls, and the sizes at which the algorithm changes. Must not know calls. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "comm/algorithm/nodes.h"

_Static_assert(COMM_RANKS_MAX <= MESSAGE_RANKS_MAX, "tags tell the ranks of a comm apart");

/* ---- sizes ---- */

/* The algorithm of an all_reduce, by its bytes and the number of ranks. Measured over TCP on
 * loopback (2 vCPU Intel Xeon, Sapphire Rapids class, AVX-512, Debian 12) by
 * build/tests/bench/bench_ucx.
 *
 *   up to star_max   only of ranks that share cores: over one rank (star.c); with several workers
 *                    on a node up to eager_max
 *   up to eager_max  with the header: each rank sends its whole buffer to all ranks, one message
 *                    each way, and adds everything
 *   up to whole_max  the same in chunks: adding overlaps with moving, and no send copies
 *   above            in parts: chunks to the owner of each part, and sums back (direct.h).
 *                    Each byte travels twice, for any number of ranks. Parts up to eager_max go to
 *                    their owner with the header.
 *
 * Chunks have at most chunk_bytes bytes; UCX sends messages of that size eagerly. */
struct size {
    int ranks_max;
    int64_t star_max, eager_max, whole_max, chunk_bytes;
};
#define EAGER_EXTRA (8 << 10) /* above a chunk: UCX's limit of eager messages */

static const struct size sizes[] = {
    {2, 0, 64 << 10, 512 << 10, 126 << 10},
    {4, 64 << 10, 16 << 10, 0, 88 << 10},
    {16, 64 << 10, 8 << 10, 0, 88 << 10},
    {COMM_RANKS_MAX, 0, 2 << 10, 0, 32 << 10},
};

static const struct size *size_of(int ranks)
{
    const struct size *size = sizes;
    while (ranks > size->ranks_max)
        size++;
    return size;
}

/* ---- the level inside a node: the memory that its workers share ---- */

/* Returns each worker's rail as a partition of the node's buffers: the parts of the ranks with its
 * local number. */
static struct shm_coll_partition partition_rails(const struct comm_two_level *two_level)
{
    const struct comm_nodes_shm *s = two_level->intra;
    const int nodes = two_level->nodes, locals = two_level->locals;
    for (int v = 0; v < nodes; v++)
        for (int l = 0; l < locals; l++)
            s->extents[l * nodes + v] = two_level->parts[v * locals + l];
    return (struct shm_coll_partition){.extents = s->extents, .each = nodes};
}

static enum status shm_reduce(struct comm_two_level *two_level, const struct comm_call *call,
                              struct comm_direct_call base, enum dtype dtype_out,
                              struct message_wait *wait)
{
    const struct comm_nodes_shm *s = two_level->intra;
    const struct shm_coll_partition partition = partition_rails(two_level);
    (void)base, (void)wait;
    return comm_shm_reduce(s->shm, call, &partition, two_level->rail, dtype_out);
}

static enum status shm_gather(struct comm_two_level *two_level, const struct comm_call *call,
                              struct comm_direct_call base, struct message_wait *wait)
{
    const struct comm_nodes_shm *s = two_level->intra;
    const struct shm_coll_partition partition = partition_rails(two_level);
    (void)base, (void)wait;
    return comm_shm_gather(s->shm, call, &partition, two_level->finished);
}

static enum status shm_broadcast(struct comm_two_level *two_level, const struct comm_call *call,
                                 struct comm_direct_call base, int local, struct message_wait *wait)
{
    const struct comm_nodes_shm *s = two_level->intra;
    (void)base, (void)wait;
    return comm_shm_broadcast(s->shm, call, local);
}

static const struct comm_two_level_ops shm_ops = {.wants_whole_rail = true,
                                                  .reduce = shm_reduce,
                                                  .gather = shm_gather,
                                                  .broadcast = shm_broadcast};

/* ---- open, close ---- */

/* Allocates the arrays for the members. */
static enum status open_members(struct comm_nodes *state, const struct comm_ctx *ctx, int group)
{
    const struct comm_place *place = &ctx->config.place;
    const struct size *size = size_of(place->ranks);
    int n = place->ranks;
    state->n = n;
    state->me = place->rank;
    state->eager_max = size->eager_max;
    state->whole_max = size->whole_max;
    state->root_rank = memory_new((size_t)n, sizeof(*state->root_rank));
    state->sources = memory_new((size_t)n, sizeof(*state->sources));
    state->parts = memory_new((size_t)n, sizeof(*state->parts));
    for (int r = 0; r < n; r++)
        state->root_rank[r] = transport_root_rank(ctx, r);
    state->eager = (struct comm_eager){
        .messenger = state->root->messenger,
        .group = group,
        .n = n,
        .me = state->me,
        .root_rank = state->root_rank,
        .eager_max = size->star_max > size->eager_max ? size->star_max : size->eager_max};
    TRY(comm_eager_open(&state->eager));
    state->direct = (struct comm_direct){.messenger = state->root->messenger,
                                         .group = group,
                                         .root_rank = state->root_rank,
                                         .n = n,
                                         .me = state->me,
                                         .nodes = place->nodes,
                                         .locals = place->locals,
                                         .memory = {.ops = &comm_memory_host}};
    return comm_direct_open(&state->direct, size->chunk_bytes);
}

/* Opens the two levels: inside the node, and between workers with equal local numbers. Owns shm
 * from then on. */
static enum status open_two_level(struct comm_nodes *state, const struct comm_ctx *ctx,
                                  struct comm_shm *shm)
{
    const struct comm_two_level_config config = {.ops = &shm_ops,
                                                 .intra = &state->shm,
                                                 .messenger = state->root->messenger,
                                                 .memory = {.ops = &comm_memory_host},
                                                 .place = &ctx->config.place,
                                                 .group = state->eager.group,
                                                 .root_rank = state->root_rank,
                                                 .chunk_bytes = state->direct.chunk_bytes};
    state->shm = (struct comm_nodes_shm){
        .shm = shm, .extents = memory_new((size_t)state->n, sizeof(*state->shm.extents))};
    return comm_two_level_open(&state->two_level, &config);
}

/* Chooses the sizes up to which calls use the star. All members choose the same, because each has
 * received from every member whether it shares cores. A node of several workers adds longer buffers
 * in its own memory first. */
static void choose_star(struct comm_nodes *state)
{
    const bool is_star =
        state->n >= 3 && state->n <= COMM_STAR_RANKS_MAX && state->root->shares_cores;
    const struct size *size = size_of(state->n);
    state->star_max = !is_star                       ? -1
                      : state->two_level.ops != NULL ? size->eager_max
                                                     : size->star_max;
}

/* Returns true if this rank has a GPU whose memory its UCX moves. GPU memory is moved directly if
 * all ranks return true. */
static bool offers_gpu(const struct comm_ctx *ctx)
{
    const struct comm_nodes *state = ctx->state;
    return dev_is_discrete(ctx->config.dev) && messenger_supports_gpu(state->root->messenger);
}

static enum status open_gpu(struct comm_nodes *state, struct comm_ctx *ctx)
{
    ctx->about.has_gpu_direct = true;
    return comm_gpu_open(&state->gpu, ctx, state->root->messenger, state->eager.group,
                         state->root_rank);
}

enum status comm_nodes_open_begin(struct comm_ctx *ctx, void *address, int64_t *address_bytes)
{
    struct comm_nodes *state = ctx->state = memory_new(1, sizeof(*state));
    state->root = memory_new(1, sizeof(*state->root));
    state->owns_root = true;
    state->root->group_next = 1;
    const struct comm_config *c = &ctx->config;
    const struct message_config config = {.net = c->net,
                                          .eager_bytes =
                                              size_of(c->place.ranks)->chunk_bytes + EAGER_EXTRA,
                                          .data_addr = c->data_addr,
                                          .master = c->master,
                                          .shares_cores = ctx->wait_policy == WAIT_POLICY_YIELD};
    TRY(messenger_open(&config, &state->root->messenger));
    bool is_intra_node = ctx->config.place.locals > 1 && offers_gpu(ctx);
    return message_choose_pack(state->root->messenger, is_intra_node, address, COMM_ADDRESS_MAX,
                               address_bytes);
}

enum status comm_nodes_open_end(struct comm_ctx *ctx, const void *addresses, const int64_t *bytes)
{
    struct comm_nodes *state = ctx->state;
    struct comm_shm *shm = NULL;
    TRY(open_members(state, ctx, 0));
    if (ctx->config.place.locals > 1) {
        TRY(comm_shm_open(ctx, &shm));
        TRY(open_two_level(state, ctx, shm));
    }
    bool *is_peer = memory_new((size_t)state->n, sizeof(*is_peer));
    for (int r = 0; r < state->n; r++)
        is_peer[r] = r != state->me;
    struct message_world world = {.generation = ctx->generation,
                                  .rank = state->me,
                                  .ranks = state->n,
                                  .is_peer = is_peer,
                                  .addresses = addresses,
                                  .stride = COMM_ADDRESS_MAX,
                                  .bytes = bytes,
                                  .secret = ctx->config.secret,
                                  .offers_gpu = offers_gpu(ctx)};
    enum status st = message_connect(state->root->messenger, &world, comm_nodes_wait(ctx).watch);
    free(is_peer);
    if (st == ST_OK && state->shm.shm != NULL)
        st = comm_shm_join(state->shm.shm);
    if (st == ST_OK) {
        struct transport_about *about = &ctx->about;
        const struct messenger *messenger = state->root->messenger;
        const char *intra = state->shm.shm != NULL ? "shm + " : "";
        text_format(about->backend, sizeof(about->backend), "%s%s", intra,
                    messenger_driver_name(messenger));
        text_format(about->name, sizeof(about->name), "%s%s", intra, messenger_name(messenger));
    }
    state->root->shares_cores = messenger_shares_cores(state->root->messenger);
    choose_star(state);
    /* Appends the reason to the note about GPUs. */
    const char *reason = messenger_choice_reason(state->root->messenger);
    size_t n = strlen(ctx->choice_reason);
    if (reason[0] != 0)
        text_format(ctx->choice_reason + n, sizeof(ctx->choice_reason) - n, "%s%s",
                    n > 0 ? "; " : "", reason);
    if (st == ST_OK && messenger_rank_without_gpu(state->root->messenger) < 0)
        st = open_gpu(state, ctx);
    if (st == ST_OK && state->me == 0 && dev_is_discrete(ctx->config.dev))
        messenger_log_gpu(state->root->messenger);
    return comm_nodes_finish(ctx, st);
}

void comm_nodes_open_close(struct comm_ctx *ctx)
{
    struct comm_nodes *state = ctx->state;
    ctx->state = NULL;
    if (state == NULL)
        return;
    comm_gpu_close(&state->gpu);
    comm_two_level_free(&state->two_level);
    comm_shm_close(state->shm.shm);
    free(state->shm.extents);
    comm_direct_free(&state->direct);
    free(state->root_rank);
    comm_eager_free(&state->eager);
    free(state->sources);
    free(state->parts);
    if (state->owns_root) {
        messenger_close(state->root->messenger);
        free(state->root);
    }
    free(state);
}

/* Agrees with the other members on a number for their group: the greatest that is free with all of
 * them. They exchange it in the parent's group, where all of them are in the same call. */
static enum status agree_on_group(struct comm_nodes *state, struct comm_ctx *ctx)
{
    struct message_wait wait = comm_nodes_wait(ctx);
    int32_t mine = state->root->group_next, next = mine;
    TRY(comm_eager_begin(&state->eager, ctx->call, &mine, 0, sizeof(mine)));
    TRY(comm_eager_end(&state->eager, ctx, &wait));
    for (int r = 0; r < state->n; r++) {
        int32_t theirs = mine;
        if (r != state->me)
            memcpy(&theirs, comm_eager_received(&state->eager, r), sizeof(theirs));
        next = theirs > next ? theirs : next;
    }
    if (next >= MESSAGE_GROUPS)
        return FAIL(ST_BUG, "more than %d groups of ranks in one generation", MESSAGE_GROUPS);
    state->eager.group = state->direct.group = next; /* two_level is opened later */
    state->root->group_next = next + 1;
    return ST_OK;
}

enum status comm_nodes_open_split(struct comm_ctx *ctx)
{
    const struct comm_nodes *parent = ctx->parent->state;
    struct comm_nodes *state = ctx->state = memory_new(1, sizeof(*state));
    state->root = parent->root;
    TRY(open_members(state, ctx, parent->eager.group));
    enum status st = agree_on_group(state, ctx);
    struct comm_shm *shm = NULL;
    if (st == ST_OK && ctx->config.place.locals > 1)
        st = comm_shm_split(parent->shm.shm, ctx, &shm);
    if (shm != NULL)
        st = open_two_level(state, ctx, shm);
    choose_star(state);
    if (st == ST_OK && ctx->about.has_gpu_direct)
        st = open_gpu(state, ctx);
    return comm_nodes_finish(ctx, st);
}
