/* comm_nccl_open — communicators of NCCL: open, split, close, and memory registered with them. Must
 * not know the meaning of the data. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "comm/nccl/inside.h"
#include "dev/dev.h"

#define FINALIZE_MS 1000
#define FINALIZE_SLEEP_US 200

/* A rank's address. */
struct peer_info {
    int32_t version;
    int16_t has_id, is_rccl;
    struct nccl_id id;
};

/* ---- open, close ---- */

enum status comm_nccl_open_begin(struct comm_ctx *ctx, void *address, int64_t *address_bytes)
{
    struct comm_nccl *state = memory_new(1, sizeof *state);
    state->root = memory_new(1, sizeof *state->root);
    state->owns_root = true;
    state->root->first = state;
    ctx->state = state;
    if (!dev_is_discrete(ctx->config.dev))
        return FAIL(ST_BAD_SETTING,
                    "NCCL and RCCL are for GPUs only; use DEVICE=cuda or hip, or BACKEND=ucx");
    TRY(nccl_lib_open(&state->root->nccl));
    TRY(dev_make_current(ctx->config.dev));
    TRY(dev_stream_open_high(ctx->config.dev, &state->root->stream));
    TRY(dev_alloc(ctx->config.dev, COMM_NCCL_SCRATCH_BYTES, &state->root->scratch));
    struct peer_info info = {.version = nccl_lib_version(),
                             .has_id = ctx->config.place.rank == 0,
                             .is_rccl = nccl_lib_is_rccl()};
    int result = info.has_id ? comm_nccl_lib(state)->ncclGetUniqueId(&info.id) : NCCL_SUCCESS;
    if (result != NCCL_SUCCESS)
        return nccl_lib_fail(comm_nccl_lib(state), NULL, result, "a new unique id");
    memcpy(address, &info, sizeof info);
    *address_bytes = sizeof info;
    return ST_OK;
}

/* Checks that all ranks have the same version, and that rank 0 sent an id. */
static enum status check_peer_infos(const struct comm_ctx *ctx, const void *addresses,
                                    const int64_t *bytes, struct nccl_id *id_out)
{
    struct peer_info first = {0}, other;
    char a[24], b[24];
    for (int rank = 0; rank < ctx->config.place.ranks; rank++) {
        if (bytes[rank] != (int64_t)sizeof other)
            return FAIL(ST_DISAGREE,
                        "rank %d does not use %s: its address has %lld bytes; give all nodes "
                        "the same BACKEND",
                        rank, nccl_lib_name(), (long long)bytes[rank]);
        memcpy(&other, (const char *)addresses + (size_t)rank * COMM_ADDRESS_MAX, sizeof other);
        if (rank == 0)
            first = other;
        if (other.is_rccl != first.is_rccl)
            return FAIL(ST_DISAGREE,
                        "rank %d has GPUs of another vendor than rank 0, and NCCL and RCCL do not "
                        "exchange data; use BACKEND=ucx or tcp",
                        rank);
        if (other.version != first.version)
            return FAIL(
                ST_DISAGREE,
                "%s differs: %s on rank 0, %s on rank %d; install the same version on every node",
                nccl_lib_name(), nccl_lib_version_text(first.version, a, sizeof a),
                nccl_lib_version_text(other.version, b, sizeof b), rank);
    }
    if (first.has_id != 1)
        return FAIL(ST_BUG, "rank 0 sent no unique id");
    *id_out = first.id;
    return ST_OK;
}

static enum status init_comm(struct comm_ctx *ctx, const struct nccl_id *id)
{
    struct comm_nccl *state = ctx->state;
    struct nccl_config config = nccl_lib_config(nccl_lib_version(), ctx->config.device_sms);
    TRY(dev_make_current(ctx->config.dev));
    int result = comm_nccl_lib(state)->ncclCommInitRankConfig(&state->comm, ctx->config.place.ranks,
                                                              *id, ctx->config.place.rank, &config);
    return comm_nccl_opened(ctx, result);
}

enum status comm_nccl_open_end(struct comm_ctx *ctx, const void *addresses, const int64_t *bytes)
{
    const struct comm_nccl *state = ctx->state;
    struct nccl_id id;
    char text[24];
    TRY(check_peer_infos(ctx, addresses, bytes, &id));
    TRY(init_comm(ctx, &id));
    ctx->about.stream = state->root->stream;
    text_format(ctx->about.name, sizeof ctx->about.name, "%s %s",
                nccl_lib_is_rccl() ? "rccl" : "nccl",
                nccl_lib_version_text(nccl_lib_version(), text, sizeof text));
    if (ctx->config.place.rank == 0)
        LOG_INFO("%s %s", nccl_lib_name(), nccl_lib_about());
    return ST_OK;
}

/* ---- memory ---- */

/* Allocates by ncclMemAlloc, which rounds up, and logs the increase, as far as other processes do
 * not disturb the measurement. */
static bool allocate_memory(const struct nccl_lib *nccl, struct dev *dev, int64_t bytes, void **out)
{
    struct dev_info before, after;
    char asked[32], grown[32];
    dev_info(dev, &before);
    if (nccl->ncclMemAlloc(out, (size_t)bytes) != NCCL_SUCCESS)
        return false;
    dev_info(dev, &after);
    if (before.free_bytes >= after.free_bytes && after.free_bytes >= 0)
        LOG_DEBUG(
            "%s's allocator: %s requested, %s allocated", nccl_lib_name(),
            text_format_bytes(asked, sizeof asked, (double)bytes),
            text_format_bytes(grown, sizeof grown, (double)(before.free_bytes - after.free_bytes)));
    return true;
}

/* Allocates memory by NCCL and registers it, so that other GPUs and the network can read and write
 * it directly. If the library cannot, comm.c uses ordinary device memory. */
enum status comm_nccl_open_alloc(struct comm_ctx *ctx, int64_t bytes, void **out)
{
    const struct comm_nccl *state = ctx->state;
    const struct nccl_lib *nccl = comm_nccl_lib(state);
    if (!nccl->has_memory)
        return ST_OK;
    TRY(dev_make_current(ctx->config.dev));
    struct comm_nccl_memory *memory = memory_new(1, sizeof *memory);
    bool is_allocated = allocate_memory(nccl, ctx->config.dev, bytes, &memory->data);
    enum status st = is_allocated ? dev_adopt(ctx->config.dev, memory->data, (size_t)bytes) : ST_OK;
    if (!is_allocated || st != ST_OK) {
        if (is_allocated)
            (void)nccl->ncclMemFree(memory->data);
        free(memory);
        return st;
    }
    if (nccl->ncclCommRegister(state->comm, memory->data, (size_t)bytes, &memory->handle) !=
        NCCL_SUCCESS)
        memory->handle = NULL; /* NCCL copies through its own buffers then */
    memory->next = state->root->memory;
    state->root->memory = memory;
    *out = memory->data;
    return ST_OK;
}

/* ---- close ---- */

/* Returns true if every rank is done with the communicator. Waits FINALIZE_MS at most, for ranks
 * that close a little later. */
static bool is_finalized(const struct comm_ctx *ctx)
{
    const struct comm_nccl *state = ctx->state;
    const struct comm_config *config = &ctx->config;
    const int64_t end_ms = clock_ms() + FINALIZE_MS;
    int result = comm_nccl_lib(state)->ncclCommFinalize(state->comm);
    while (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS) {
        if (comm_nccl_lib(state)->ncclCommGetAsyncError(state->comm, &result) != NCCL_SUCCESS)
            return false;
        if (result == NCCL_SUCCESS)
            return true;
        if (clock_ms() >= end_ms || (config->is_aborted && config->is_aborted(config->arg)))
            return false;
        clock_sleep_us(FINALIZE_SLEEP_US);
    }
    return false;
}

/* Ends the communicators. A communicator without a failure is finalized, so no rank frees memory
 * that another still reads; it is aborted if the other ranks do not finalize it in time. No call is
 * in progress here. */
static void destroy_comm(struct comm_ctx *ctx)
{
    struct comm_nccl *state = ctx->state;
    if (state->owns_root) {
        const struct nccl_lib *nccl = comm_nccl_lib(state);
        for (struct comm_nccl_memory *m = state->root->memory; m != NULL; m = m->next)
            if (m->handle != NULL)
                (void)nccl->ncclCommDeregister(state->comm, m->handle);
    }
    if (is_finalized(ctx)) {
        (void)comm_nccl_lib(state)->ncclCommDestroy(state->comm);
        state->comm = NULL;
        return;
    }
    LOG_DEBUG("%s: a communicator is aborted: not all ranks have closed it within %d ms",
              nccl_lib_name(), FINALIZE_MS);
    comm_nccl_abort(ctx);
}

void comm_nccl_open_close(struct comm_ctx *ctx)
{
    struct comm_nccl *state = ctx->state;
    if (state == NULL)
        return;
    (void)dev_make_current(ctx->config.dev);
    if (state->comm != NULL)
        destroy_comm(ctx);
    struct comm_nccl **link = &state->root->first;
    while (*link != NULL && *link != state)
        link = &(*link)->next;
    if (*link != NULL)
        *link = state->next;
    if (state->owns_root) {
        dev_stream_close(state->root->stream);
        dev_free(ctx->config.dev, state->root->scratch, COMM_NCCL_SCRATCH_BYTES);
        while (state->root->memory != NULL) {
            struct comm_nccl_memory *m = state->root->memory;
            state->root->memory = m->next;
            dev_disown(ctx->config.dev, m->data);
            (void)state->root->nccl->ncclMemFree(m->data);
            free(m);
        }
        free(state->root);
    }
    free(state);
    ctx->state = NULL;
}

/* ---- split ---- */

/* Shares an id: the first member makes it and sends it to each other member through the parent.
 * Ranks outside the split are not involved. */
static enum status share_id(struct comm_ctx *ctx, struct nccl_id *id)
{
    struct comm_ctx *up = ctx->parent;
    const struct comm_nccl *state = ctx->state, *above = up->state;
    struct stream *s = state->root->stream;
    void *scratch = state->root->scratch;
    int result;
    if (ctx->config.place.rank > 0) {
        result = comm_nccl_lib(above)->ncclRecv(scratch, sizeof *id, NCCL_UINT8, ctx->ranks[0],
                                                above->comm, comm_nccl_stream(above));
        TRY(comm_nccl_complete(up, result));
        TRY(dev_copy(s, id, scratch, sizeof *id));
        return dev_sync(s);
    }
    result = comm_nccl_lib(state)->ncclGetUniqueId(id);
    if (result != NCCL_SUCCESS)
        return nccl_lib_fail(comm_nccl_lib(state), NULL, result, "a new unique id");
    TRY(dev_copy(s, scratch, id, sizeof *id));
    TRY(dev_sync(s));
    for (int i = 1; i < ctx->config.place.ranks; i++) {
        result = comm_nccl_lib(above)->ncclSend(scratch, sizeof *id, NCCL_UINT8, ctx->ranks[i],
                                                above->comm, comm_nccl_stream(above));
        TRY(comm_nccl_complete(up, result));
    }
    return ST_OK;
}

enum status comm_nccl_open_split(struct comm_ctx *ctx)
{
    const struct comm_nccl *parent = ctx->parent->state;
    struct comm_nccl *state = memory_new(1, sizeof *state);
    struct nccl_id id;
    state->root = parent->root;
    state->next = state->root->first;
    state->root->first = state;
    ctx->state = state;
    ctx->parent->call = ctx->call; /* its deadline applies */
    enum status st = share_id(ctx, &id);
    ctx->parent->call = NULL;
    TRY(st);
    return init_comm(ctx, &id);
}
