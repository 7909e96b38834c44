/* ledger — see ledger.h. Read ledger_audit_bytes first, at the foot.
 *
 * The audit keeps the runs that no later line supersedes. A run that continues the one before
 * becomes a part of it, so a calm run of any length is one of them. What is missing, or there
 * twice, is looked for at the end: what was superseded does not matter. */
#include "format/ledger.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

static const char *const outcome_name[LEDGER_OUTCOMES_N] = {"applied", "not finite", "spike"};

/* ---- lines ---- */

/* finish_line — adds the checksum to what is in out. */
static void finish_line(uint64_t *hash, char out[LEDGER_LINE_MAX])
{
    const size_t n = strlen(out);
    *hash = XXH3_64bits_withSeed(out, n, *hash);
    bool fits =
        text_format(out + n, LEDGER_LINE_MAX - n, ",\"xxh3_64\":\"%016" PRIx64 "\"}\n", *hash);
    ASSERTF(fits, "a line of %zu bytes", n);
}

void ledger_write_start(const struct ledger_start *start, uint64_t *hash, char out[LEDGER_LINE_MAX])
{
    text_format(out, LEDGER_LINE_MAX,
                "{\"generation\":%" PRId64 ",\"after\":%" PRId64 ",\"sample\":%" PRId64
                ",\"data\":\"%016" PRIx64 "\"",
                start->generation, start->after, start->sample, start->data);
    finish_line(hash, out);
}

void ledger_write_run(const struct ledger_run *run, uint64_t *hash, char out[LEDGER_LINE_MAX])
{
    text_format(out, LEDGER_LINE_MAX,
                "{\"generation\":%" PRId64 ",\"step\":%" PRId64 ",\"steps\":%" PRId64
                ",\"sample\":%" PRId64 ",\"samples\":%" PRId64 ",\"outcome\":\"%s\"",
                run->generation, run->step, run->steps, run->sample, run->samples,
                outcome_name[run->outcome]);
    finish_line(hash, out);
}

bool ledger_append(struct ledger_run *to, const struct ledger_run *run)
{
    if (to->steps == 0 || to->outcome != run->outcome || to->samples != run->samples ||
        to->step + to->steps != run->step || to->sample + to->steps * to->samples != run->sample)
        return false;
    to->steps += run->steps;
    return true;
}

static enum status get_count(const cJSON *root, const char *key, int64_t min, int64_t *out)
{
    return json_get_i64(root, key, min, LEDGER_COUNT_MAX, out);
}

static enum status get_outcome(const cJSON *root, enum ledger_outcome *out)
{
    const char *name;
    TRY(json_get_string(root, "outcome", &name));
    for (int i = 0; i < LEDGER_OUTCOMES_N; i++)
        if (strcmp(name, outcome_name[i]) == 0) {
            *out = (enum ledger_outcome)i;
            return ST_OK;
        }
    return FAIL(ST_BAD_DATA,
                "JSON key \"outcome\" is \"%.20s\", expected applied, not finite or "
                "spike",
                name);
}

static enum status get_data(const cJSON *root, uint64_t *out)
{
    static const char digits[] = "0123456789abcdef";
    const char *s;
    TRY(json_get_string(root, "data", &s));
    if (strlen(s) != 16 || strspn(s, digits) != 16)
        return FAIL(ST_BAD_DATA, "JSON key \"data\" is \"%.20s\", expected 16 hexadecimal digits",
                    s);
    for (*out = 0; s[0] != 0; s++)
        *out = *out << 4 | (uint64_t)(strchr(digits, s[0]) - digits);
    return ST_OK;
}

static enum status get_start(const cJSON *root, struct ledger_start *out)
{
    TRY(get_count(root, "generation", 1, &out->generation));
    TRY(get_count(root, "after", 0, &out->after));
    TRY(get_count(root, "sample", 0, &out->sample));
    return get_data(root, &out->data);
}

static enum status get_run(const cJSON *root, struct ledger_run *out)
{
    int64_t end;
    TRY(get_count(root, "generation", 1, &out->generation));
    TRY(get_count(root, "step", 1, &out->step));
    TRY(get_count(root, "steps", 1, &out->steps));
    TRY(get_count(root, "sample", 0, &out->sample));
    TRY(get_count(root, "samples", 1, &out->samples));
    TRY(get_outcome(root, &out->outcome));
    if (__builtin_mul_overflow(out->steps, out->samples, &end) || end > LEDGER_COUNT_MAX)
        return FAIL(ST_BAD_DATA,
                    "%" PRId64 " steps of %" PRId64 " samples are more than can be "
                    "counted",
                    out->steps, out->samples);
    return ST_OK;
}

/* ---- the audit ---- */

struct audit {
    struct ledger_audit *out;
    struct ledger_start start; /* the line that the runs that are left begin with */
    int64_t generation;        /* of the last start */
    struct ledger_run *run;
    size_t runs_n, runs_cap;
    bool is_unchecked; /* checksums do not count: else a fuzzer would get no further */
};

static enum status add_run(struct audit *a, const struct ledger_run *run)
{
    if (a->runs_n > 0 && ledger_append(&a->run[a->runs_n - 1], run))
        return ST_OK;
    if (a->runs_n == a->runs_cap) {
        const size_t cap = a->runs_cap > 0 ? 2 * a->runs_cap : 64;
        struct ledger_run *more = realloc(a->run, cap * sizeof *more);
        if (!more)
            return FAIL(ST_RETRY, "out of memory: %zu runs of a ledger", cap);
        a->run = more;
        a->runs_cap = cap;
    }
    a->run[a->runs_n++] = *run;
    return ST_OK;
}

/* supersede — drops what is said of steps behind `after`. */
static void supersede(struct audit *a, int64_t after)
{
    while (a->runs_n > 0) {
        struct ledger_run *last = &a->run[a->runs_n - 1];
        const int64_t kept = after - last->step + 1;
        if (kept >= last->steps)
            return;
        a->out->again += last->steps - (kept > 0 ? kept : 0);
        last->steps = kept;
        if (kept > 0)
            return;
        a->runs_n--;
    }
}

static enum status take_start(struct audit *a, const struct ledger_start *start)
{
    if (start->generation <= a->generation)
        return FAIL(ST_BAD_DATA, "generation %" PRId64 " follows generation %" PRId64,
                    start->generation, a->generation);
    a->out->data_changes += a->generation > 0 && start->data != a->out->data;
    a->out->data = start->data;
    a->generation = start->generation;
    supersede(a, start->after);
    if (a->runs_n == 0)
        a->start = *start;
    return ST_OK;
}

static enum status take_run(struct audit *a, const struct ledger_run *run)
{
    if (run->generation != a->generation)
        return FAIL(ST_BAD_DATA, "a step of generation %" PRId64 " follows generation %" PRId64,
                    run->generation, a->generation);
    return add_run(a, run);
}

/* take_line — and whether it is, byte for byte, what its values are written as. */
static enum status take_line(struct audit *a, const char *line, size_t n)
{
    cJSON *root = NULL;
    struct ledger_start start = {0};
    struct ledger_run run = {0};
    char again[LEDGER_LINE_MAX];
    TRY(json_parse(line, n, "it", &root));
    bool is_start = cJSON_HasObjectItem(root, "after");
    enum status st = is_start ? get_start(root, &start) : get_run(root, &run);
    cJSON_Delete(root);
    TRY(st);
    if (is_start)
        ledger_write_start(&start, &a->out->hash, again);
    else
        ledger_write_run(&run, &a->out->hash, again);
    if (!a->is_unchecked && (strlen(again) != n || memcmp(again, line, n) != 0))
        return FAIL(ST_BAD_DATA,
                    "it, or a line before it, was changed: its checksum should be "
                    "%016" PRIx64,
                    a->out->hash);
    return is_start ? take_start(a, &start) : take_run(a, &run);
}

static enum status take_lines(struct audit *a, const char *bytes, size_t n, const char *what)
{
    int64_t line = 0;
    while (a->out->bytes < n) {
        const char *at = bytes + a->out->bytes;
        const size_t left = n - a->out->bytes,
                     room = left < LEDGER_LINE_MAX ? left : LEDGER_LINE_MAX;
        const char *end = memchr(at, '\n', room);
        line++;
        if (!end && left < LEDGER_LINE_MAX) {
            a->out->is_torn = true;
            return ST_OK;
        }
        enum status st = end ? take_line(a, at, (size_t)(end - at) + 1)
                             : FAIL(ST_BAD_DATA, "it has more than %d bytes", LEDGER_LINE_MAX);
        if (st != ST_OK)
            return FAIL(st, "%s: line %" PRId64 " is not of a ledger: %s", what, line,
                        status_message());
        a->out->bytes += (size_t)(end - at) + 1;
    }
    return ST_OK;
}

/* ---- what is missing ---- */

/* compare_samples — of a run that begins with another sample than the next one. */
static void compare_samples(struct ledger_audit *out, const struct ledger_run *run, int64_t sample)
{
    const bool is_gap = run->sample > sample;
    const int64_t first = is_gap ? sample : run->sample, end = is_gap ? run->sample : sample;
    text_format(out->problem, sizeof out->problem,
                "step %" PRId64 " begins with sample %" PRId64 ", but %" PRId64
                " is the next: samples %" PRId64 " to %" PRId64 " are in %s",
                run->step, run->sample, sample, first, end - 1, is_gap ? "no step" : "two steps");
}

/* compare_step — of a run that begins with another step than the next one. */
static void compare_step(struct ledger_audit *out, const struct ledger_run *run, int64_t step)
{
    const bool is_gap = run->step > step;
    text_format(out->problem, sizeof out->problem, "steps %" PRId64 " to %" PRId64 " are %s",
                is_gap ? step : run->step, (is_gap ? run->step : step) - 1,
                is_gap ? "missing" : "there twice");
}

static void find_problem(const struct audit *a)
{
    struct ledger_audit *out = a->out;
    int64_t step = a->start.after + 1, sample = a->start.sample;
    if (a->start.after > 0)
        text_format(out->problem, sizeof out->problem,
                    "steps 1 to %" PRId64 " are not in it: it was begun after them", step - 1);
    else if (sample != 0)
        text_format(out->problem, sizeof out->problem,
                    "step 1 begins with sample %" PRId64 ", not with sample 0", sample);
    for (size_t i = 0; i < a->runs_n && out->problem[0] == 0; i++) {
        const struct ledger_run *run = &a->run[i];
        if (run->step != step)
            compare_step(out, run, step);
        else if (run->sample != sample)
            compare_samples(out, run, sample);
        step = run->step + run->steps;
        sample = run->sample + run->steps * run->samples;
    }
}

static void count(const struct audit *a)
{
    struct ledger_audit *out = a->out;
    out->generations = a->generation;
    out->first = a->start.after + 1;
    out->last = a->start.after;
    out->sample = out->end = a->start.sample;
    for (size_t i = 0; i < a->runs_n; i++) {
        const struct ledger_run *run = &a->run[i];
        out->last = run->step + run->steps - 1;
        out->end = run->sample + run->steps * run->samples;
        out->steps[run->outcome] += run->steps;
        out->samples[run->outcome] += run->steps * run->samples;
    }
}

static enum status audit(const char *bytes, size_t n, const char *what, bool is_unchecked,
                         struct ledger_audit *out)
{
    struct audit a = {.out = out, .is_unchecked = is_unchecked};
    *out = (struct ledger_audit){.generations = 0};
    enum status st = take_lines(&a, bytes, n, what);
    if (st == ST_OK) {
        find_problem(&a);
        count(&a);
    }
    free(a.run);
    return st;
}

enum status ledger_audit_bytes(const char *bytes, size_t n, const char *what,
                               struct ledger_audit *out)
{
    return audit(bytes, n, what, false, out);
}

enum status ledger_audit(const char *path, struct ledger_audit *out)
{
    struct file_map map = {0};
    TRY(file_map_open(path, &map));
    enum status st =
        (int64_t)map.bytes > LEDGER_BYTES_MAX
            ? FAIL(ST_BAD_DATA,
                   "%s has %zu bytes, and a ledger at most %" PRId64 "; it is none, or was damaged",
                   path, map.bytes, LEDGER_BYTES_MAX)
            : ledger_audit_bytes((const char *)map.data, map.bytes, path, out);
    file_map_close(&map);
    return st;
}

#ifdef FUZZ
/* Whatever is read, the counts of what is whole make sense. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct ledger_audit out;
    if (audit((const char *)bytes, n, "fuzz", true, &out) == ST_OK)
        ASSERT(out.bytes <= n && out.again >= 0 && (out.problem[0] || out.last >= out.first - 1));
    return 0;
}
#endif
