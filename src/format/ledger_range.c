/* ledger_range — see ledger_range.h. Lines were audited before; one that is not of a ledger is
 * passed over. */
#include "format/ledger_range.h"

#include <inttypes.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

struct reader {
    struct ledger_range *out;
    int64_t from, to;
    int64_t generation; /* whose provenance counts; 0: none */
};

/* take_start — what earlier generations did behind `after` is superseded. */
static enum status take_start(struct reader *r, const struct ledger_range_maker *start)
{
    struct ledger_range *out = r->out;
    r->generation = 0;
    if (start->after >= r->to)
        return ST_OK;
    while (out->makers_n > 0 &&
           (out->maker[out->makers_n - 1].after >= start->after || start->after <= r->from))
        out->makers_n--;
    if (start->after > r->from && out->makers_n == 0)
        return ST_OK;
    if (out->makers_n == LEDGER_RANGE_MAKERS_MAX)
        return FAIL(ST_BAD_DATA,
                    "steps %" PRId64 " to %" PRId64 " were made in more than %d ways; name fewer",
                    r->from + 1, r->to, LEDGER_RANGE_MAKERS_MAX);
    out->maker[out->makers_n++] = *start;
    r->generation = start->generation;
    return ST_OK;
}

static bool is_same(const struct ledger_range_maker *a, const struct ledger_range_maker *b)
{
    return a->data == b->data && strcmp(a->provenance, b->provenance) == 0;
}

static void take_provenance(struct reader *r, const char *json)
{
    struct ledger_range *out = r->out;
    struct ledger_range_maker *last = &out->maker[out->makers_n - 1];
    text_copy(last->provenance, sizeof last->provenance, json);
    if (out->makers_n > 1 && is_same(last - 1, last))
        out->makers_n--;
    r->generation = 0;
}

static enum status read_start(struct reader *r, const cJSON *root)
{
    struct ledger_range_maker start = {.generation = 0};
    const char *data = json_text(root, "data");
    TRY(json_get_i64(root, "after", 0, LEDGER_COUNT_MAX, &start.after));
    TRY(json_get_i64(root, "generation", 1, LEDGER_COUNT_MAX, &start.generation));
    static const char digits[] = "0123456789abcdef";
    for (size_t n = strspn(data, digits); n > 0; n--, data++)
        start.data = start.data << 4 | (uint64_t)(strchr(digits, data[0]) - digits);
    return take_start(r, &start);
}

static enum status read_provenance(struct reader *r, const cJSON *root)
{
    const cJSON *object;
    TRY(json_get_object(root, "provenance", &object));
    char *text = cJSON_PrintUnformatted(object);
    if (!text)
        return FAIL(ST_RETRY, "out of memory: a line of a ledger");
    take_provenance(r, text);
    cJSON_free(text);
    return ST_OK;
}

static enum status read_object(struct reader *r, const cJSON *root)
{
    if (cJSON_HasObjectItem(root, "after"))
        return read_start(r, root);
    const bool is_wanted = r->generation > 0 && cJSON_HasObjectItem(root, "provenance") &&
                           json_number(root, "generation") == (double)r->generation;
    return is_wanted ? read_provenance(r, root) : ST_OK;
}

/* read_line — most lines are of steps and checkpoints, and need no parser. */
static enum status read_line(struct reader *r, const char *line, size_t n)
{
    cJSON *root = NULL;
    if (!memmem(line, n, "\"after\"", 7) && !memmem(line, n, "\"provenance\"", 12))
        return ST_OK;
    TRY(json_parse(line, n, "a line of a ledger", &root));
    enum status st = read_object(r, root);
    cJSON_Delete(root);
    return st;
}

enum status ledger_range_bytes(const char *bytes, size_t n, int64_t from, int64_t to,
                               struct ledger_range *out)
{
    struct reader r = {.out = out, .from = from, .to = to};
    const char *end;
    out->makers_n = 0;
    for (; n > 0 && (end = memchr(bytes, '\n', n)) != NULL; bytes = end + 1) {
        const size_t line_n = (size_t)(end - bytes) + 1;
        TRY(read_line(&r, bytes, line_n));
        n -= line_n;
    }
    return ST_OK;
}

enum status ledger_range(const char *path, int64_t from, int64_t to, struct ledger_range *out)
{
    struct file_map map = {0};
    TRY(file_map_open(path, &map));
    enum status st = ledger_range_bytes((const char *)map.data, map.bytes, from, to, out);
    file_map_close(&map);
    return st;
}
