/* consensus — see consensus.h. */
#include "train/trainer/consensus.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"
#include "base/text.h"
#include "comm/core/part.h"

/* One counter per request: how many ranks have received it. An all-reduce adds them up exactly. */
#define REQUESTS_N (BOARD_REQUEST_INTERRUPT + 1)

struct outcome {
    int32_t st;
    char message[1024];
};

void consensus_init(struct consensus *consensus, struct comm *comm)
{
    *consensus = (struct consensus){.comm = comm, .ranks = 1};
    if (!comm)
        return;
    consensus->rank = comm_place(comm)->rank;
    consensus->ranks = comm_place(comm)->ranks;
}

bool consensus_is_rank0(const struct consensus *consensus) { return consensus->rank == 0; }

enum status consensus_broadcast(const struct consensus *consensus, void *bytes, int64_t n)
{
    if (consensus->ranks == 1)
        return ST_OK;
    return comm_broadcast(consensus->comm, (struct tensor){bytes, DTYPE_U8}, n, 0);
}

enum status consensus_gather(const struct consensus *consensus, void *all, int64_t each)
{
    ASSERTF(each % PART_ALIGN == 0, "%lld bytes", (long long)each);
    if (consensus->ranks == 1)
        return ST_OK;
    struct tensor out = {all, DTYPE_U8};
    return comm_all_gather(consensus->comm, out, tensor_at(out, consensus->rank * each),
                           consensus->ranks * each);
}

enum status consensus_compare(const struct consensus *consensus, const char *text,
                              struct consensus_differs *out)
{
    char *all = memory_new((size_t)consensus->ranks, CONSENSUS_TEXT);
    text_copy(all + (size_t)consensus->rank * CONSENSUS_TEXT, CONSENSUS_TEXT, text);
    enum status st = consensus_gather(consensus, all, CONSENSUS_TEXT);
    *out = (struct consensus_differs){0};
    for (int rank = consensus->ranks - 1; st == ST_OK && rank > 0; rank--) {
        const char *own = all + (size_t)rank * CONSENSUS_TEXT;
        if (strncmp(own, all, CONSENSUS_TEXT) == 0)
            continue;
        out->rank = rank;
        text_copy(out->own, sizeof out->own, own);
        text_copy(out->rank0, sizeof out->rank0, all);
    }
    free(all);
    return st;
}

enum status consensus_outcome(const struct consensus *consensus, enum status st)
{
    struct outcome outcome = {.st = (int32_t)st};
    struct status_saved saved;
    if (consensus->ranks == 1)
        return st;
    status_save(&saved);
    text_copy(outcome.message, sizeof outcome.message, st == ST_OK ? "" : status_message());
    TRY(consensus_broadcast(consensus, &outcome, sizeof outcome));
    if (consensus_is_rank0(consensus)) {
        status_restore(&saved);
        return st;
    }
    outcome.message[sizeof outcome.message - 1] = 0;
    if (outcome.st == ST_OK)
        return ST_OK;
    return FAIL((unsigned)outcome.st < STATUS_N ? (enum status)outcome.st : ST_BUG, "%s%s",
                comm_place(consensus->comm)->nodes > 1 ? "on node 0: " : "", outcome.message);
}

enum status consensus_request(const struct consensus *consensus, enum board_request mine,
                              enum board_request *out)
{
    float seen[REQUESTS_N] = {0};
    *out = mine;
    if (consensus->ranks == 1)
        return ST_OK;
    seen[mine] = 1;
    struct tensor both = {seen, DTYPE_F32};
    TRY(comm_all_reduce(consensus->comm, both, both, REQUESTS_N));
    for (int request = 0; request < REQUESTS_N; request++)
        if (seen[request] > 0)
            *out = (enum board_request)request;
    return ST_OK;
}
