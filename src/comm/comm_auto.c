/* comm_auto — nccl where every rank has it, else ucx: decided when all addresses are known, by the
 * same rule on every rank.
 *
 * Both are begun; a rank's address holds both. What is not taken is closed before the other meets
 * its peers. That a rank has no NCCL is no failure; that NCCL, once taken, fails is one: nothing
 * changes its way silently. Must not know what is moved. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/must.h"
#include "base/text.h"
#include "comm/comm_ops.h"

#define NAMED_MAX 6

/* How a rank's address begins; ucx's follows, then nccl's. */
struct card {
    int32_t ucx_bytes, nccl_bytes; /* nccl: 0: it has none */
    char bus[24];                  /* of its GPU */
};

struct comm_auto {
    const struct comm_ops *ucx;
    void *ucx_state, *nccl_state; /* NULL: not begun */
};

/* One of the two as if the wire were its own. */
static void close_one(struct comm_wire *wire, const struct comm_ops *ops, void **state)
{
    void *kept = wire->state;
    wire->state = *state;
    if (*state != NULL)
        ops->close(wire);
    *state = NULL;
    wire->state = kept;
}

static enum status begin_one(struct comm_wire *wire, const struct comm_ops *ops, void *address,
                             int64_t *bytes, void **state)
{
    void *kept = wire->state;
    wire->state = NULL;
    *bytes = 0;
    enum status st = ops->begin_open(wire, address, bytes);
    *state = wire->state;
    wire->state = kept;
    return st;
}

/* Without NCCL nothing is lost: why is said on this rank, that it is so to all. */
static int64_t begin_nccl(struct comm_wire *wire, struct comm_auto *state, void *address,
                          int64_t room)
{
    char own[COMM_ADDRESS_MAX];
    int64_t bytes = 0;
    enum status st = begin_one(wire, &comm_nccl_ops, own, &bytes, &state->nccl_state);
    if (st == ST_OK && bytes > room)
        st = FAIL(ST_NO_DEVICE, "its address does not fit beside UCX's: %lld bytes in %lld",
                  (long long)bytes, (long long)room);
    if (st == ST_OK) {
        memcpy(address, own, (size_t)bytes);
        return bytes;
    }
    LOG_INFO("BACKEND=auto: rank %d has no NCCL: %s", wire->config.place.rank, status_message());
    status_clear();
    close_one(wire, &comm_nccl_ops, &state->nccl_state);
    return 0;
}

static enum status begin_open(struct comm_wire *wire, void *address, int64_t *address_bytes)
{
    char ucx[COMM_ADDRESS_MAX];
    int64_t bytes;
    struct comm_auto *state = calloc(1, sizeof *state);
    struct card card = {0};
    struct dev_info info;
    if (state == NULL)
        return FAIL(ST_RETRY, "out of memory: a comm");
    wire->state = state;
    state->ucx = comm_ops_find(COMM_KIND_UCX, &wire->config.place);
    TRY(begin_one(wire, state->ucx, ucx, &bytes, &state->ucx_state));
    if (bytes > COMM_ADDRESS_MAX - (int64_t)sizeof card)
        return FAIL(ST_NO_DEVICE,
                    "this rank's network address takes %lld bytes: it has many network devices; "
                    "choose some with UCX_NET_DEVICES",
                    (long long)bytes);
    char *at = (char *)address + sizeof card;
    memcpy(at, ucx, (size_t)bytes);
    card.ucx_bytes = (int32_t)bytes;
    card.nccl_bytes = (int32_t)begin_nccl(wire, state, at + bytes,
                                          COMM_ADDRESS_MAX - (int64_t)sizeof card - bytes);
    dev_info(wire->config.dev, &info);
    text_copy(card.bus, sizeof card.bus, info.bus);
    memcpy(address, &card, sizeof card);
    *address_bytes = (int64_t)sizeof card + card.ucx_bytes + card.nccl_bytes;
    return ST_OK;
}

/* ---- the choice ---- */

/* Of a rank's address: what other ranks sent is not trusted to be whole. */
static enum status read_card(const void *addresses, const int64_t *bytes, int rank,
                             struct card *out)
{
    memset(out, 0, sizeof *out);
    if (bytes[rank] >= (int64_t)sizeof *out)
        memcpy(out, (const char *)addresses + (size_t)rank * COMM_ADDRESS_MAX, sizeof *out);
    if (bytes[rank] < (int64_t)sizeof *out || out->ucx_bytes < 0 || out->nccl_bytes < 0 ||
        (int64_t)sizeof *out + out->ucx_bytes + out->nccl_bytes != bytes[rank])
        return FAIL(
            ST_DISAGREE,
            "rank %d chooses its transport otherwise (%lld bytes); give all nodes the same BACKEND",
            rank, (long long)bytes[rank]);
    out->bus[sizeof out->bus - 1] = 0;
    return ST_OK;
}

/* Two ranks of one node on one GPU, which NCCL refuses: the second of them; -1: none. */
static int find_shared_gpu(const struct comm_place *place, const struct card *cards)
{
    for (int a = 0; a < place->ranks; a++)
        for (int b = a - a % place->locals; b < a; b++)
            if (cards[a].bus[0] != 0 && strcmp(cards[a].bus, cards[b].bus) == 0)
                return a;
    return -1;
}

/* The sentence and the choice. */
static bool takes_nccl(const struct comm_place *place, const struct card *cards, char *why,
                       size_t cap)
{
    struct text who = {.limit = 128};
    int without = 0, shared;
    for (int rank = 0; rank < place->ranks; rank++) {
        if (cards[rank].nccl_bytes > 0)
            continue;
        if (without < NAMED_MAX)
            text_add(&who, "%s%d", without > 0 ? ", " : "", rank);
        without++;
    }
    if (without > 0)
        text_format(why, cap, "NCCL is not on %s %s%s of %d, whose logs say why",
                    without > 1 ? "ranks" : "rank", who.data != NULL ? who.data : "?",
                    without > NAMED_MAX ? " and more" : "", place->ranks);
    text_free(&who);
    if (without > 0)
        return false;
    shared = find_shared_gpu(place, cards);
    if (shared >= 0)
        text_format(why, cap, "NCCL refuses two ranks on one GPU, and rank %d shares %s", shared,
                    cards[shared].bus);
    else
        text_format(why, cap, "all %d ranks have NCCL", place->ranks);
    return shared < 0;
}

/* The addresses of one of the two, as end_open takes them. */
static void extract(const void *addresses, const struct card *cards, int ranks, bool is_nccl,
                    char *out, int64_t *bytes)
{
    for (int rank = 0; rank < ranks; rank++) {
        const size_t at = (size_t)rank * COMM_ADDRESS_MAX;
        bytes[rank] = is_nccl ? cards[rank].nccl_bytes : cards[rank].ucx_bytes;
        memcpy(out + at,
               (const char *)addresses + at + sizeof *cards + (is_nccl ? cards[rank].ucx_bytes : 0),
               (size_t)bytes[rank]);
    }
}

static enum status choose(struct comm_wire *wire, const void *addresses, const int64_t *bytes,
                          struct card *cards, char *own, int64_t *own_bytes)
{
    struct comm_auto *state = wire->state;
    const struct comm_place *place = &wire->config.place;
    for (int rank = 0; rank < place->ranks; rank++)
        TRY(read_card(addresses, bytes, rank, &cards[rank]));
    bool is_nccl = takes_nccl(place, cards, wire->why, sizeof wire->why);
    extract(addresses, cards, place->ranks, is_nccl, own, own_bytes);
    close_one(wire, is_nccl ? state->ucx : &comm_nccl_ops,
              is_nccl ? &state->ucx_state : &state->nccl_state);
    wire->ops = is_nccl ? &comm_nccl_ops : state->ucx;
    wire->state = is_nccl ? state->nccl_state : state->ucx_state;
    free(state);
    return wire->ops->end_open(wire, own, own_bytes);
}

static enum status end_open(struct comm_wire *wire, const void *addresses, const int64_t *bytes)
{
    size_t ranks = (size_t)wire->config.place.ranks;
    struct card *cards = calloc(ranks, sizeof *cards);
    char *own = calloc(ranks, COMM_ADDRESS_MAX);
    int64_t *own_bytes = calloc(ranks, sizeof *own_bytes);
    enum status st = cards != NULL && own != NULL && own_bytes != NULL
                         ? choose(wire, addresses, bytes, cards, own, own_bytes)
                         : FAIL(ST_RETRY, "out of memory: the addresses of %zu ranks", ranks);
    free(cards);
    free(own);
    free(own_bytes);
    return st;
}

static void wire_close(struct comm_wire *wire)
{
    struct comm_auto *state = wire->state;
    if (state == NULL)
        return;
    close_one(wire, &comm_nccl_ops, &state->nccl_state);
    if (state->ucx != NULL)
        close_one(wire, state->ucx, &state->ucx_state);
    free(state);
    wire->state = NULL;
}

const struct comm_ops comm_auto_ops = {
    .kind = COMM_KIND_AUTO,
    .name = "auto",
    .begin_open = begin_open,
    .end_open = end_open,
    .close = wire_close,
};
