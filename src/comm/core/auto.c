/* comm_auto — the transport AUTO: NCCL if every rank can use it, else HOST. Must not know the
 * meaning of the data.
 *
 * Both transports are begun, and a rank's address holds both addresses. When all addresses have
 * arrived, every rank chooses by the same rule, closes the other transport, and opens the chosen
 * one. A rank without NCCL is no error. A failure of NCCL after the choice is one: the transport is
 * never changed silently. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "comm/core/transport.h"
#include "comm/nccl/lib.h"

#define NAMED_MAX 6

/* The start of a rank's address. The HOST address follows, then the NCCL address. */
struct address_header {
    int32_t host_bytes, nccl_bytes; /* nccl_bytes 0: this rank has no NCCL */
    int32_t shares_gpus;            /* 1: its NCCL accepts two ranks on one GPU */
    char bus[24];                   /* PCI bus id of its GPU */
    char uuid[16];                  /* UUID of its GPU, or of its MIG instance */
};

struct comm_auto {
    const struct transport_ops *host;
    void *host_state, *nccl_state; /* NULL: not begun, or closed */
};

/* close_one, begin_one — call one of the two transports with its own state in ctx. */
static void close_one(struct comm_ctx *ctx, const struct transport_ops *ops, void **state)
{
    void *saved = ctx->state;
    ctx->state = *state;
    if (*state != NULL)
        ops->close(ctx);
    *state = NULL;
    ctx->state = saved;
}

static enum status begin_one(struct comm_ctx *ctx, const struct transport_ops *ops, void *address,
                             int64_t *bytes, void **state)
{
    void *saved = ctx->state;
    ctx->state = NULL;
    *bytes = 0;
    enum status st = ops->begin_open(ctx, address, bytes);
    *state = ctx->state;
    ctx->state = saved;
    return st;
}

/* Begins NCCL and returns the bytes of its address. 0: this rank has no NCCL; the reason is logged
 * here, and the other ranks see the 0. */
static int64_t begin_nccl(struct comm_ctx *ctx, struct comm_auto *state, void *address,
                          int64_t bytes_max)
{
    char own[COMM_ADDRESS_MAX];
    int64_t bytes = 0;
    enum status st = begin_one(ctx, &comm_nccl_ops, own, &bytes, &state->nccl_state);
    if (st == ST_OK && bytes > bytes_max)
        st = FAIL(ST_NO_DEVICE, "its address does not fit: %lld bytes in %lld", (long long)bytes,
                  (long long)bytes_max);
    if (st == ST_OK) {
        memcpy(address, own, (size_t)bytes);
        return bytes;
    }
    LOG_WARN("BACKEND=auto: rank %d has no %s, so exchanges between GPUs go through host memory, "
             "which is an estimated 10 to 50 times slower: %s",
             ctx->config.place.rank, nccl_lib_name(), status_message());
    status_clear();
    close_one(ctx, &comm_nccl_ops, &state->nccl_state);
    return 0;
}

static enum status begin_open(struct comm_ctx *ctx, void *address, int64_t *address_bytes)
{
    char host[COMM_ADDRESS_MAX];
    int64_t bytes;
    struct comm_auto *state = memory_new(1, sizeof *state);
    struct address_header header = {0};
    struct dev_info info;
    ctx->state = state;
    state->host = transport_find(COMM_KIND_HOST, &ctx->config.place);
    TRY(begin_one(ctx, state->host, host, &bytes, &state->host_state));
    if (bytes > COMM_ADDRESS_MAX - (int64_t)sizeof header)
        return FAIL(ST_NO_DEVICE,
                    "this rank's network address has %lld bytes: the node has many network "
                    "devices; choose some with UCX_NET_DEVICES",
                    (long long)bytes);
    char *at = (char *)address + sizeof header;
    memcpy(at, host, (size_t)bytes);
    header.host_bytes = (int32_t)bytes;
    header.nccl_bytes = (int32_t)begin_nccl(ctx, state, at + bytes,
                                            COMM_ADDRESS_MAX - (int64_t)sizeof header - bytes);
    dev_info(ctx->config.dev, &info);
    header.shares_gpus = header.nccl_bytes > 0 && nccl_lib_shares_gpus(nccl_lib_version());
    text_copy(header.bus, sizeof header.bus, info.bus);
    memcpy(header.uuid, info.uuid, sizeof header.uuid);
    memcpy(address, &header, sizeof header);
    *address_bytes = (int64_t)sizeof header + header.host_bytes + header.nccl_bytes;
    return ST_OK;
}

/* ---- the choice ---- */

/* is_one_gpu — returns true if two ranks have the same GPU, or MIG instances of one. Nodes may be
 * processes of one machine, so ranks of different nodes are compared by the GPUs' numbers. */
static bool is_one_gpu(const struct comm_place *place, const struct address_header *headers, int a,
                       int b)
{
    static const char unknown[sizeof headers->uuid];
    const struct address_header *x = &headers[a], *y = &headers[b];
    return a / place->locals == b / place->locals
               ? x->bus[0] != 0 && strcmp(x->bus, y->bus) == 0
               : memcmp(x->uuid, unknown, sizeof x->uuid) != 0 &&
                     memcmp(x->uuid, y->uuid, sizeof x->uuid) == 0;
}

/* Finds two ranks on one GPU. NCCL refuses them, even if they have separate MIG instances: it
 * compares PCI addresses (nccl_lib_shares_gpus). Returns the second rank and sets *other to the
 * first; -1: there are none. */
static int find_shared_gpu(const struct comm_place *place, const struct address_header *headers,
                           int *other)
{
    for (int a = 0; a < place->ranks; a++)
        for (int b = 0; b < a; b++) {
            *other = b;
            if (is_one_gpu(place, headers, a, b) &&
                !(headers[a].shares_gpus && headers[b].shares_gpus))
                return a;
        }
    return -1;
}

/* Chooses a transport and writes the reason to `reason`. Returns true for NCCL. */
static bool choose_nccl(const struct comm_place *place, const struct address_header *headers,
                        char *reason, size_t cap)
{
    struct text ranks = {.limit = 128};
    int without = 0, shared, other = 0;
    for (int rank = 0; rank < place->ranks; rank++) {
        if (headers[rank].nccl_bytes > 0)
            continue;
        if (without < NAMED_MAX)
            text_add(&ranks, "%s%d", without > 0 ? ", " : "", rank);
        without++;
    }
    if (without > 0)
        text_format(reason, cap, "%s is not on %s %s%s of %d: see the reason in their logs",
                    nccl_lib_name(), without > 1 ? "ranks" : "rank",
                    ranks.data != NULL ? ranks.data : "?", without > NAMED_MAX ? " and more" : "",
                    place->ranks);
    text_free(&ranks);
    if (without > 0)
        return false;
    shared = find_shared_gpu(place, headers, &other);
    if (shared >= 0) {
        /* Writes the reason why NCCL refuses ranks `other` and `rank`. */
        bool is_same = memcmp(headers[shared].uuid, headers[other].uuid, sizeof headers->uuid) == 0;
        if (is_same || nccl_lib_is_rccl())
            text_format(reason, cap, "%s refuses two ranks on one GPU, and rank %d shares %s",
                        nccl_lib_name(), shared, headers[shared].bus);
        else
            text_format(
                reason, cap,
                "NCCL refuses two MIG instances of one GPU, and ranks %d and %d have instances "
                "of %s; NCCL 2.30 and newer accept them with NCCL_MULTI_RANK_GPU_ENABLE=1",
                other, shared, headers[shared].bus);
    } else
        text_format(reason, cap, "all %d ranks have %s", place->ranks, nccl_lib_name());
    return shared < 0;
}

static enum status choose_ops(struct comm_ctx *ctx, const void *addresses, const int64_t *bytes,
                              struct address_header *headers, char *own, int64_t *own_bytes)
{
    struct comm_auto *state = ctx->state;
    const struct comm_place *place = &ctx->config.place;
    for (int rank = 0; rank < place->ranks; rank++) {
        /* Reads and checks the header of a rank's address, which another process sent. */
        memset(&headers[rank], 0, sizeof *&headers[rank]);
        if (bytes[rank] >= (int64_t)sizeof *&headers[rank])
            memcpy(&headers[rank], (const char *)addresses + (size_t)rank * COMM_ADDRESS_MAX,
                   sizeof *&headers[rank]);
        if (bytes[rank] < (int64_t)sizeof *&headers[rank] || headers[rank].host_bytes < 0 ||
            headers[rank].nccl_bytes < 0 ||
            (int64_t)sizeof *&headers[rank] + headers[rank].host_bytes + headers[rank].nccl_bytes !=
                bytes[rank])
            return FAIL(
                ST_DISAGREE,
                "rank %d chooses its transport differently (%lld bytes); give all nodes the "
                "same BACKEND",
                rank, (long long)bytes[rank]);
        headers[rank].bus[sizeof headers[rank].bus - 1] = 0;
    }
    bool is_nccl = choose_nccl(place, headers, ctx->choice_reason, sizeof ctx->choice_reason);
    /* Copies the addresses of the chosen transport in the form that its end_open expects. */
    int ranks = place->ranks;
    for (int rank = 0; rank < ranks; rank++) {
        const size_t at = (size_t)rank * COMM_ADDRESS_MAX;
        own_bytes[rank] = is_nccl ? headers[rank].nccl_bytes : headers[rank].host_bytes;
        memcpy(own + at,
               (const char *)addresses + at + sizeof *headers +
                   (is_nccl ? headers[rank].host_bytes : 0),
               (size_t)own_bytes[rank]);
    }
    close_one(ctx, is_nccl ? state->host : &comm_nccl_ops,
              is_nccl ? &state->host_state : &state->nccl_state);
    ctx->ops = is_nccl ? &comm_nccl_ops : state->host;
    ctx->state = is_nccl ? state->nccl_state : state->host_state;
    free(state);
    return ctx->ops->end_open(ctx, own, own_bytes);
}

static enum status end_open(struct comm_ctx *ctx, const void *addresses, const int64_t *bytes)
{
    size_t ranks = (size_t)ctx->config.place.ranks;
    struct address_header *headers = memory_new(ranks, sizeof *headers);
    char *own = memory_new(ranks, COMM_ADDRESS_MAX);
    int64_t *own_bytes = memory_new(ranks, sizeof *own_bytes);
    enum status st = choose_ops(ctx, addresses, bytes, headers, own, own_bytes);
    free(headers);
    free(own);
    free(own_bytes);
    return st;
}

static void ctx_close(struct comm_ctx *ctx)
{
    struct comm_auto *state = ctx->state;
    if (state == NULL)
        return;
    close_one(ctx, &comm_nccl_ops, &state->nccl_state);
    if (state->host != NULL)
        close_one(ctx, state->host, &state->host_state);
    free(state);
    ctx->state = NULL;
}

const struct transport_ops comm_auto_ops = {
    .name = "auto",
    .begin_open = begin_open,
    .end_open = end_open,
    .close = ctx_close,
};
