/* rows — see rows.h. */
#include "mesh/sparse_embed.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/assert.h"

struct sparse_embed {
    struct sparse_embed_config c;
    int rank, ranks;
    int64_t list_elems; /* of one rank's list: how many rows, then their numbers in the table */
    int32_t *lists;     /* of all ranks */
    /* of each row of the table: 1 + its number among this rank's rows; 0: not seen */
    int32_t *number;
    int32_t *numbers;   /* of each token */
    int64_t place_rows; /* room of one rank in the buffer: the most that any rank has */
};

static int64_t round_up(int64_t n) { return (n + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN; }

static int64_t rows_most(int64_t rows_n, int64_t tokens_max)
{
    return round_up(tokens_max < rows_n ? tokens_max : rows_n);
}

bool sparse_embed_is_worth(int ranks, int64_t rows_n, int64_t tokens_max)
{
    return ranks > 1 && rows_most(rows_n, tokens_max) <= rows_n / ranks;
}

int64_t sparse_embed_buffer_elems(int ranks, int64_t rows_n, int64_t row_elems, int64_t tokens_max)
{
    return ranks * rows_most(rows_n, tokens_max) * row_elems;
}

enum status sparse_embed_open(const struct sparse_embed_config *config, struct sparse_embed **out)
{
    struct sparse_embed *r = calloc(1, sizeof *r);
    if (!r)
        return FAIL(ST_RETRY, "out of memory: token rows");
    r->c = *config;
    r->rank = comm_place(config->comm)->rank;
    r->ranks = comm_place(config->comm)->ranks;
    r->list_elems = round_up(1 + rows_most(config->rows_n, config->tokens_max));
    r->lists = calloc((size_t)(r->ranks * r->list_elems), sizeof *r->lists);
    r->number = calloc((size_t)config->rows_n, sizeof *r->number);
    r->numbers = calloc((size_t)config->tokens_max, sizeof *r->numbers);
    if (!r->lists || !r->number || !r->numbers) {
        sparse_embed_close(r);
        return FAIL(memory_status(comm_place(config->comm)->ranks * config->tokens_max *
                                  (int64_t)sizeof(int32_t)),
                    "out of memory: rows of %lld tokens; use a smaller BATCH_SIZE",
                    (long long)config->tokens_max);
    }
    *out = r;
    return ST_OK;
}

void sparse_embed_close(struct sparse_embed *r)
{
    if (!r)
        return;
    free(r->lists);
    free(r->number);
    free(r->numbers);
    free(r);
}

/* The list of a rank: [0] how many, then the rows. */
static int32_t *list_of(const struct sparse_embed *r, int rank)
{
    return r->lists + rank * r->list_elems;
}

enum status sparse_embed_begin(struct sparse_embed *r, const int32_t *tokens, int64_t n,
                               struct comm_ticket *ticket)
{
    int32_t *list = list_of(r, r->rank), seen = 0;
    ASSERTF(n > 0 && n <= r->c.tokens_max, "%lld tokens of %lld", (long long)n,
            (long long)r->c.tokens_max);
    for (int64_t i = 0; i < n; i++) {
        int32_t *number = &r->number[tokens[i]];
        if (*number == 0) {
            list[1 + seen] = tokens[i];
            *number = ++seen;
        }
        r->numbers[i] = *number - 1;
    }
    list[0] = seen;
    for (int32_t i = 0; i < seen; i++)
        r->number[list[1 + i]] = 0;
    struct tensor all = {r->lists, DTYPE_I32}, mine = {list, DTYPE_I32};
    return comm_all_gather_begin(r->c.comm, all, mine, r->ranks * r->list_elems, ticket);
}

const int32_t *sparse_embed_indices(const struct sparse_embed *r) { return r->numbers; }

static float *place_of(const struct sparse_embed *r, int rank)
{
    return r->c.buffer + rank * r->place_rows * r->c.row_elems;
}

float *sparse_embed_rows(struct sparse_embed *r)
{
    int32_t most = 0;
    for (int rank = 0; rank < r->ranks; rank++)
        most = list_of(r, rank)[0] > most ? list_of(r, rank)[0] : most;
    ASSERTF(most > 0 && most < r->list_elems, "%d rows", most);
    r->place_rows = round_up(most);
    float *place = place_of(r, r->rank);
    memset(place, 0, (size_t)(r->place_rows * r->c.row_elems) * sizeof *place);
    return place;
}

enum status sparse_embed_exchange_begin(struct sparse_embed *r, struct comm_ticket *ticket)
{
    struct tensor all = {r->c.buffer, DTYPE_F32}, mine = {place_of(r, r->rank), DTYPE_F32};
    return comm_all_gather_begin(r->c.comm, all, mine, r->ranks * r->place_rows * r->c.row_elems,
                                 ticket);
}

static void add_row(const struct sparse_embed *r, const float *row, int64_t at,
                    struct part_extent part, float *to)
{
    int64_t first = at > part.first ? at : part.first, end = at + r->c.row_elems;
    if (end > part.first + part.elems)
        end = part.first + part.elems;
    for (int64_t i = first; i < end; i++)
        to[i - part.first] += row[i - at];
}

void sparse_embed_add(const struct sparse_embed *r, struct part_extent part, float *to)
{
    for (int rank = 0; rank < r->ranks; rank++) {
        const int32_t *list = list_of(r, rank);
        const float *row = place_of(r, rank);
        for (int32_t i = 0; i < list[0]; i++, row += r->c.row_elems)
            add_row(r, row, list[1 + i] * r->c.row_elems, part, to);
    }
}
