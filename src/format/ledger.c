/* ledger — see ledger.h. Read ledger_audit_bytes first, at the foot.
 *
 * The audit keeps the runs that no later line supersedes. A run that continues the previous one
 * is joined to it, so an undisturbed run of any length is a single one. Missing and repeated
 * steps are searched for at the end: superseded results do not matter. */
#include "format/ledger.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "format/ckpt_dir.h"

static const char *const outcome_name[LEDGER_OUTCOMES_N] = {"applied", "not finite", "spike"};

/* ---- lines ---- */

#define TAIL_FORMAT ",\"xxh3_64\":\"%016" PRIx64 "\"}\n"
#define TAIL_BYTES (sizeof ",\"xxh3_64\":\"0123456789abcdef\"}\n" - 1)
#define WEIGHTS_NAME "model.safetensors"

/* finish_line — adds the checksum to the text in out. */
static void finish_line(uint64_t *hash, char out[LEDGER_LINE_MAX])
{
    const size_t n = strlen(out);
    *hash = XXH3_64bits_withSeed(out, n, *hash);
    bool fits = text_format(out + n, LEDGER_LINE_MAX - n, TAIL_FORMAT, *hash);
    ASSERTF(fits, "a line of %zu bytes", n);
}

void ledger_write_start(const struct ledger_start *start, uint64_t *hash, char out[LEDGER_LINE_MAX])
{
    text_format(out, LEDGER_LINE_MAX,
                "{\"generation\":%" PRId64 ",\"after\":%" PRId64 ",\"sample\":%" PRId64
                ",\"data\":\"%016" PRIx64 "\"",
                start->generation, start->after, start->sample, start->data);
    const size_t n = strlen(out);
    if (start->epoch > 0)
        text_format(out + n, LEDGER_LINE_MAX - n,
                    ",\"epoch\":%" PRId64 ",\"order\":\"%016" PRIx64 "\"", start->epoch,
                    start->order);
    finish_line(hash, out);
}

void ledger_write_run(const struct ledger_run *run, uint64_t *hash, char out[LEDGER_LINE_MAX])
{
    text_format(out, LEDGER_LINE_MAX,
                "{\"generation\":%" PRId64 ",\"step\":%" PRId64 ",\"steps\":%" PRId64
                ",\"sample\":%" PRId64 ",\"samples\":%" PRId64 ",\"outcome\":\"%s\"",
                run->generation, run->step, run->steps, run->sample, run->samples,
                outcome_name[run->outcome]);
    const size_t n = strlen(out);
    if (run->trained > 0)
        text_format(out + n, LEDGER_LINE_MAX - n, ",\"trained\":%" PRId64, run->trained);
    finish_line(hash, out);
}

bool ledger_write_provenance(int64_t generation, const char *json, uint64_t *hash,
                             char out[LEDGER_LINE_MAX])
{
    if (!text_format(out, LEDGER_LINE_MAX - TAIL_BYTES,
                     "{\"generation\":%" PRId64 ",\"provenance\":%s", generation, json))
        return false;
    finish_line(hash, out);
    return true;
}

void ledger_write_checkpoint(const struct ledger_checkpoint *c, uint64_t *hash,
                             char out[LEDGER_LINE_MAX])
{
    text_format(out, LEDGER_LINE_MAX,
                "{\"generation\":%" PRId64 ",\"checkpoint\":%" PRId64 ",\"weights\":\"%016" PRIx64
                "\",\"state\":\"%016" PRIx64 "\"",
                c->generation, c->step, c->weights, c->state);
    finish_line(hash, out);
}

enum status ledger_hash_checkpoint(const char *path, struct ledger_checkpoint *out)
{
    struct manifest *m = memory_new(1, sizeof *m);
    enum status st = ckpt_peek(path, m);
    uint64_t state = 0;
    for (int i = 0; st == ST_OK && i < m->files_n; i++) {
        state = XXH3_64bits_withSeed(&m->file[i].hash, sizeof m->file[i].hash, state);
        if (strcmp(m->file[i].name, WEIGHTS_NAME) == 0)
            out->weights = m->file[i].hash;
    }
    out->step = m->meta.step;
    out->state = state;
    free(m);
    return st;
}

bool ledger_append(struct ledger_run *to, const struct ledger_run *run)
{
    if (to->steps == 0 || to->outcome != run->outcome || to->samples != run->samples ||
        to->trained != run->trained || to->step + to->steps != run->step ||
        to->sample + to->steps * to->samples != run->sample)
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

/* ---- the audit ---- */

struct audit {
    struct ledger_audit *out;
    struct ledger_start start; /* the line with which the remaining runs begin */
    int64_t generation;        /* generation of the last start */
    struct ledger_run *run;
    size_t runs_n, runs_cap;
    uint64_t provenance; /* fingerprint of this generation's provenance and data; 0: not recorded */
    uint64_t *provenance_of; /* provenance of each checkpoint */
    char differs[256];       /* weights with two different results; "": none */
    bool is_unchecked;       /* checksums do not count: else a fuzzer would get no further */
};

/* Drops the results of steps after `after`. */
static void drop_superseded(struct audit *a, int64_t after)
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

static enum status audit_start(struct audit *a, const struct ledger_start *start)
{
    if (start->generation <= a->generation)
        return FAIL(ST_BAD_DATA, "generation %" PRId64 " follows generation %" PRId64,
                    start->generation, a->generation);
    a->out->data_changes += a->generation > 0 && start->data != a->out->data;
    a->out->data = start->data;
    a->generation = start->generation;
    a->provenance = 0;
    drop_superseded(a, start->after);
    /* Compares the order of samples with the order of the remaining runs. */
    int64_t *reordered = &a->out->reordered;
    if (a->runs_n == 0)
        a->start = *start;
    if (*reordered >= start->after)
        *reordered = 0;
    if (*reordered == 0 && a->start.epoch > 0 &&
        (start->epoch != a->start.epoch || start->order != a->start.order))
        *reordered = start->after;
    return ST_OK;
}

static enum status check_generation(const struct audit *a, int64_t generation)
{
    if (generation == a->generation)
        return ST_OK;
    return FAIL(ST_BAD_DATA, "a line of generation %" PRId64 " follows generation %" PRId64,
                generation, a->generation);
}

/* ---- checkpoints ---- */

/* make_room — makes room for one entry at *at; removes the oldest step if there are too many. */
static void make_room(struct audit *a, int *at)
{
    struct ledger_audit *out = a->out;
    const bool is_full = out->checkpoints_n == LEDGER_CHECKPOINTS_MAX;
    const int from = is_full ? 1 : *at, to = is_full ? 0 : *at + 1,
              n = is_full ? *at - 1 : out->checkpoints_n - *at;
    memmove(out->checkpoint + to, out->checkpoint + from, (size_t)n * sizeof *out->checkpoint);
    memmove(a->provenance_of + to, a->provenance_of + from, (size_t)n * sizeof *a->provenance_of);
    *at -= is_full;
    out->checkpoints_n += !is_full;
}

/* ---- the kinds of lines ---- */

static enum status audit_checkpoint(struct audit *a, const cJSON *root)
{
    struct ledger_checkpoint c;
    TRY(get_count(root, "generation", 1, &c.generation));
    TRY(get_count(root, "checkpoint", 0, &c.step));
    TRY(json_get_hex(root, "weights", &c.weights));
    TRY(json_get_hex(root, "state", &c.state));
    TRY(check_generation(a, c.generation));
    struct ledger_audit *out = a->out;
    /* Finds the position of the step. Entries come nearly in order. */
    int at = out->checkpoints_n;
    while (at > 0 && out->checkpoint[at - 1].step >= c.step)
        at--;
    if (!a->out->checkpoint)
        a->out->checkpoint = memory_new(LEDGER_CHECKPOINTS_MAX, sizeof *a->out->checkpoint);
    if (!a->provenance_of)
        a->provenance_of = memory_new(LEDGER_CHECKPOINTS_MAX, sizeof *a->provenance_of);
    if (at < out->checkpoints_n && out->checkpoint[at].step == c.step) {
        /* Compares with the weights that a generation with the same provenance has saved before. */
        const struct ledger_checkpoint *old = &a->out->checkpoint[at];
        if (a->differs[0] == 0 && old->weights != c.weights && a->provenance != 0 &&
            a->provenance_of[at] == a->provenance)
            text_format(
                a->differs, sizeof a->differs,
                "the weights after step %" PRId64 " were %016" PRIx64 " in generation %" PRId64
                ", and are %016" PRIx64 " in generation %" PRId64
                ", with the same settings, data and devices: memory or a processor is suspect",
                c.step, old->weights, old->generation, c.weights, c.generation);
    } else if (at == 0 && out->checkpoints_n == LEDGER_CHECKPOINTS_MAX)
        return ST_OK;
    else
        make_room(a, &at);
    out->checkpoint[at] = c;
    a->provenance_of[at] = a->provenance;
    return ST_OK;
}

/* Records the provenance: two generations with one fingerprint should have the same results. */
static enum status audit_provenance(struct audit *a, const cJSON *root)
{
    const cJSON *object;
    TRY(json_get_object(root, "provenance", &object));
    char *text = cJSON_PrintUnformatted(object);
    if (!text)
        return FAIL(ST_RETRY, "out of memory: a line of a ledger");
    text_copy(a->out->provenance, sizeof a->out->provenance, text);
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(object, "exact")))
        a->provenance = XXH3_64bits_withSeed(text, strlen(text), a->out->data);
    cJSON_free(text);
    return ST_OK;
}

static enum status audit_object(struct audit *a, const cJSON *root)
{
    struct ledger_start start = {0};
    struct ledger_run run = {0};
    if (cJSON_HasObjectItem(root, "after")) {
        TRY(get_count(root, "generation", 1, &start.generation));
        TRY(get_count(root, "after", 0, &start.after));
        TRY(get_count(root, "sample", 0, &start.sample));
        TRY(json_get_hex(root, "data", &start.data));
        if (cJSON_HasObjectItem(root, "epoch")) {
            TRY(get_count(root, "epoch", 1, &start.epoch));
            TRY(json_get_hex(root, "order", &start.order));
        }
        return audit_start(a, &start);
    }
    if (cJSON_HasObjectItem(root, "step")) {
        int64_t end;
        TRY(get_count(root, "generation", 1, &run.generation));
        TRY(get_count(root, "step", 1, &run.step));
        TRY(get_count(root, "steps", 1, &run.steps));
        TRY(get_count(root, "sample", 0, &run.sample));
        TRY(get_count(root, "samples", 1, &run.samples));
        if (cJSON_HasObjectItem(root, "trained"))
            TRY(get_count(root, "trained", 1, &run.trained));
        TRY(get_outcome(root, &run.outcome));
        if (__builtin_mul_overflow(run.steps, run.samples, &end) || end > LEDGER_COUNT_MAX ||
            __builtin_mul_overflow(run.steps, run.trained, &end) || end > LEDGER_COUNT_MAX)
            return FAIL(ST_BAD_DATA,
                        "%" PRId64 " steps of %" PRId64 " samples, %" PRId64 " trained tokens, "
                        "are more than can be counted",
                        run.steps, run.samples, run.trained);
        TRY(check_generation(a, run.generation));
        if (a->runs_n > 0 && ledger_append(&a->run[a->runs_n - 1], &run))
            return ST_OK;
        if (a->runs_n == a->runs_cap) {
            a->runs_cap = a->runs_cap > 0 ? 2 * a->runs_cap : 64;
            a->run = memory_resize(a->run, a->runs_cap, sizeof *a->run);
        }
        a->run[a->runs_n++] = run;
        return ST_OK;
    }
    if (cJSON_HasObjectItem(root, "checkpoint"))
        return audit_checkpoint(a, root);
    return cJSON_HasObjectItem(root, "provenance") ? audit_provenance(a, root) : ST_OK;
}

static enum status audit_line(struct audit *a, const char *line, size_t n)
{
    cJSON *root = NULL;
    /* The expected end of the line, as finish_line writes it. */
    char end[64];
    if (n < TAIL_BYTES)
        return FAIL(ST_BAD_DATA, "it has %zu bytes", n);
    a->out->hash = XXH3_64bits_withSeed(line, n - TAIL_BYTES, a->out->hash);
    text_format(end, sizeof end, TAIL_FORMAT, a->out->hash);
    if (!a->is_unchecked && memcmp(line + n - TAIL_BYTES, end, TAIL_BYTES) != 0)
        return FAIL(ST_BAD_DATA,
                    "it, or a line before it, was changed: its checksum should be %016" PRIx64,
                    a->out->hash);
    TRY(json_parse(line, n, "it", &root));
    enum status st =
        cJSON_IsObject(root) ? audit_object(a, root) : FAIL(ST_BAD_DATA, "it is not a JSON object");
    cJSON_Delete(root);
    return st;
}

static enum status audit_lines(struct audit *a, const char *bytes, size_t n, const char *what)
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
        enum status st = end ? audit_line(a, at, (size_t)(end - at) + 1)
                             : FAIL(ST_BAD_DATA, "it has more than %d bytes", LEDGER_LINE_MAX);
        if (st != ST_OK)
            return FAIL(st, "%s: line %" PRId64 " is not a line of a ledger: %s", what, line,
                        status_message());
        a->out->bytes += (size_t)(end - at) + 1;
    }
    return ST_OK;
}

/* ---- missing and repeated steps ---- */

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
        if (run->step != step) {
            /* A run begins with another step than the next one. */
            const bool is_gap = run->step > step;
            text_format(out->problem, sizeof out->problem,
                        "steps %" PRId64 " to %" PRId64 " are %s", is_gap ? step : run->step,
                        (is_gap ? run->step : step) - 1, is_gap ? "missing" : "there twice");
        } else if (run->sample != sample) {
            /* A run begins with another sample than the next one. */
            const bool is_gap = run->sample > sample;
            const int64_t first = is_gap ? sample : run->sample,
                          end = is_gap ? run->sample : sample;
            text_format(out->problem, sizeof out->problem,
                        "step %" PRId64 " begins with sample %" PRId64 ", but %" PRId64
                        " is the next: samples %" PRId64 " to %" PRId64 " are in %s",
                        run->step, run->sample, sample, first, end - 1,
                        is_gap ? "no step" : "two steps");
        }
        step = run->step + run->steps;
        sample = run->sample + run->steps * run->samples;
    }
    if (out->problem[0] == 0)
        text_copy(out->problem, sizeof out->problem, a->differs);
}

static void count_outcomes(const struct audit *a)
{
    struct ledger_audit *out = a->out;
    out->generations = a->generation;
    out->first = a->start.after + 1;
    out->last = a->start.after;
    out->sample = out->end = a->start.sample;
    out->epoch = out->reordered == 0 ? a->start.epoch : 0;
    for (size_t i = 0; i < a->runs_n; i++) {
        const struct ledger_run *run = &a->run[i];
        out->last = run->step + run->steps - 1;
        out->end = run->sample + run->steps * run->samples;
        out->step_samples = run->samples;
        out->steps[run->outcome] += run->steps;
        out->samples[run->outcome] += run->steps * run->samples;
        out->trained[run->outcome] += run->steps * run->trained;
    }
}

static enum status audit_bytes(const char *bytes, size_t n, const char *what, bool is_unchecked,
                               struct ledger_audit *out)
{
    struct audit a = {.out = out, .is_unchecked = is_unchecked};
    *out = (struct ledger_audit){.generations = 0};
    enum status st = audit_lines(&a, bytes, n, what);
    if (st == ST_OK) {
        find_problem(&a);
        count_outcomes(&a);
    }
    if (st != ST_OK)
        ledger_audit_free(out);
    free(a.run);
    free(a.provenance_of);
    return st;
}

void ledger_audit_free(struct ledger_audit *a)
{
    free(a->checkpoint);
    a->checkpoint = NULL;
    a->checkpoints_n = 0;
}

enum status ledger_audit_bytes(const char *bytes, size_t n, const char *what,
                               struct ledger_audit *out)
{
    return audit_bytes(bytes, n, what, false, out);
}

enum status ledger_audit(const char *path, struct ledger_audit *out)
{
    struct file_map map = {0};
    TRY(file_map_open(path, &map));
    enum status st = (int64_t)map.bytes > LEDGER_BYTES_MAX
                         ? FAIL(ST_BAD_DATA,
                                "%s has %zu bytes, but a ledger has at most %" PRId64
                                "; it is not a ledger, or it is damaged",
                                path, map.bytes, LEDGER_BYTES_MAX)
                         : ledger_audit_bytes((const char *)map.data, map.bytes, path, out);
    file_map_close(&map);
    return st;
}

#ifdef FUZZ
/* For any input that is read, the counts of complete lines are consistent. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct ledger_audit out;
    if (audit_bytes((const char *)bytes, n, "fuzz", true, &out) != ST_OK)
        return 0;
    ASSERT(out.bytes <= n && out.again >= 0 && out.epoch >= 0 && out.reordered >= 0 &&
           (out.problem[0] || out.last >= out.first - 1));
    for (int i = 1; i < out.checkpoints_n; i++)
        ASSERT(out.checkpoint[i - 1].step < out.checkpoint[i].step);
    ledger_audit_free(&out);
    return 0;
}
#endif
