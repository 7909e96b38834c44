/* council — see council.h. */
#include "train/council.h"

#include <string.h>

#include "base/text.h"

/* One place for each request: how many ranks have seen it. A sum says so exactly. */
#define REQUESTS_N (BOARD_REQUEST_INTERRUPT + 1)

struct outcome {
    int32_t st;
    char message[1024];
};

void council_init(struct council *council, struct comm *comm)
{
    *council = (struct council){.comm = comm, .ranks = 1};
    if (!comm)
        return;
    council->rank = comm_place(comm)->rank;
    council->ranks = comm_place(comm)->ranks;
}

bool council_is_lead(const struct council *council) { return council->rank == 0; }

enum status council_share(const struct council *council, void *bytes, int64_t n)
{
    if (council->ranks == 1)
        return ST_OK;
    return comm_broadcast(council->comm, (struct tensor){bytes, DTYPE_U8}, n, 0);
}

enum status council_outcome(const struct council *council, enum status st)
{
    struct outcome outcome = {.st = (int32_t)st};
    struct status_saved saved;
    if (council->ranks == 1)
        return st;
    status_keep(&saved);
    text_copy(outcome.message, sizeof outcome.message, st == ST_OK ? "" : status_message());
    TRY(council_share(council, &outcome, sizeof outcome));
    if (council_is_lead(council)) {
        status_back(&saved);
        return st;
    }
    outcome.message[sizeof outcome.message - 1] = 0;
    if (outcome.st == ST_OK)
        return ST_OK;
    return FAIL((unsigned)outcome.st < STATUS_N ? (enum status)outcome.st : ST_BUG, "%s%s",
                comm_place(council->comm)->nodes > 1 ? "on node 0: " : "", outcome.message);
}

enum status council_request(const struct council *council, enum board_request mine,
                            enum board_request *out)
{
    float seen[REQUESTS_N] = {0};
    *out = mine;
    if (council->ranks == 1)
        return ST_OK;
    seen[mine] = 1;
    struct tensor both = {seen, DTYPE_F32};
    TRY(comm_all_reduce(council->comm, both, both, REQUESTS_N));
    for (int request = 0; request < REQUESTS_N; request++)
        if (seen[request] > 0)
            *out = (enum board_request)request;
    return ST_OK;
}
