/* verify_settings — see verify_settings.h. Read verify_settings_of first. */
#include "node/verify_settings.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/config_diff.h"
#include "base/json.h"
#include "base/text.h"
#include "conf/conf_choice.h"

/* What decides results, and is a setting (config_map_settings). TOKENIZER is an identity there. TP
 * is of older versions, in place of VIRTUAL_TP. */
static const char *const taken[] = {
    "OPTIMIZER",
    "LR_SCHEDULE",
    "GLOBAL_BATCH",
    "SEQ_LEN",
    "SEED",
    "BATCH_SIZE",
    "SHUFFLE",
    "LR",
    "MIN_LR",
    "WARMUP_STEPS",
    "BETA1",
    "BETA2",
    "EPS",
    "MOMENTUM",
    "WEIGHT_DECAY",
    "GRAD_CLIP",
    "DROPOUT",
    "DECAY_STEPS",
    "EXACT",
    "VIRTUAL_SHARDS",
    "VIRTUAL_TP",
    "TP",
    "CP",
    "BATCH_WARMUP",
    "BATCH_START",
    "WINDOW_WARMUP",
    "WINDOW_START",
    "SPIKE",
    "SPIKE_SIGMA",
    "SPIKE_WINDOW",
    "ATTENTION_MASK",
    "PACK_DOCUMENTS",
    "PRECISION",
};
static const char *const passed_over[] = {"moments", "TOKENIZER"};

#define WORD(row, value, word) word,
static const char *const shard_words[] = {CONF_SHARD_LIST(WORD)};
static const char *const compress_words[] = {CONF_COMPRESS_LIST(WORD)};
static const char *const pipe_words[] = {CONF_PP_SCHEDULE_LIST(WORD)};
#define EPOCHS_MAX 1000000000
#define COUNT_OF(list) (sizeof(list) / sizeof *(list))

static bool has_name(const char *const *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], name) == 0)
            return true;
    return false;
}

enum status verify_settings_add(struct verify_settings *s, const char *name, const char *value)
{
    const size_t n = strlen(name) + strlen(value) + 2;
    char *word = s->args_n < VERIFY_SETTINGS_MAX ? malloc(n) : NULL;
    if (!word)
        return FAIL(ST_RETRY, "out of memory: the settings of a run that is repeated");
    text_format(word, n, "%s=%s", name, value);
    s->arg[s->args_n++] = word;
    return ST_OK;
}

static enum status add_number(struct verify_settings *s, const char *name, double value)
{
    return verify_settings_add(s, name, text_f64(value).text);
}

static enum status add_setting(struct verify_settings *s, const cJSON *item)
{
    if (has_name(passed_over, COUNT_OF(passed_over), item->string))
        return ST_OK;
    if (!has_name(taken, COUNT_OF(taken), item->string))
        return FAIL(ST_BAD_SETTING,
                    "a run with %.64s cannot be repeated by this version: audit it without STEPS",
                    item->string);
    return cJSON_IsString(item) ? verify_settings_add(s, item->string, item->valuestring)
                                : add_number(s, item->string, item->valuedouble);
}

static enum status add_settings(const cJSON *root, struct verify_settings *s)
{
    const cJSON *item, *settings;
    TRY(json_get_object(root, "settings", &settings));
    TRY(verify_settings_add(s, "PRECISION", "fp32")); /* where nothing is said of it */
    cJSON_ArrayForEach(item, settings) TRY(add_setting(s, item));
    s->is_layout = strcmp(json_text(settings, "EXACT"), "layout") == 0;
    return ST_OK;
}

/* Adds the planned steps, because the learning rate may follow them. After a change of GLOBAL_BATCH
 * it follows the samples of EPOCHS. */
static enum status add_steps(const cJSON *root, int64_t to, struct verify_settings *s)
{
    int64_t epochs;
    if (cJSON_HasObjectItem(root, "EPOCHS")) {
        TRY(json_get_i64(root, "EPOCHS", 1, EPOCHS_MAX, &epochs));
        return add_number(s, "EPOCHS", (double)epochs);
    }
    const cJSON *settings = cJSON_GetObjectItemCaseSensitive(root, "settings");
    const bool is_constant = strcmp(json_text(settings, "LR_SCHEDULE"), "constant") == 0;
    const double steps = json_number(root, "planned_steps");
    if (is_constant)
        return add_number(s, "STEPS", (double)to);
    if (isfinite(steps))
        return add_number(s, "STEPS", steps);
    return FAIL(ST_BAD_SETTING,
                "the ledger has no planned steps, which the learning rate follows: an older "
                "version wrote it, and its steps cannot be repeated; audit it without STEPS");
}

static enum status add_choice(const cJSON *root, const char *name, const char *const *words,
                              size_t words_n, struct verify_settings *s)
{
    int64_t value;
    if (!cJSON_HasObjectItem(root, name))
        return ST_OK;
    TRY(json_get_i64(root, name, 0, (int64_t)words_n - 1, &value));
    return verify_settings_add(s, name, words[value]);
}

static enum status add_count(const cJSON *root, const char *name, struct verify_settings *s)
{
    const double value = json_number(root, name);
    return isfinite(value) && value > 0 ? add_number(s, name, value) : ST_OK;
}

/* add_layout — of a run whose bits follow it. */
static enum status add_layout(const cJSON *root, struct verify_settings *s)
{
    static const char *const counts[] = {"TP", "CP", "PP", "PP_CHUNKS"};
    for (size_t i = 0; i < COUNT_OF(counts); i++)
        TRY(add_count(root, counts[i], s));
    TRY(add_choice(root, "SHARD", shard_words, COUNT_OF(shard_words), s));
    TRY(add_choice(root, "COMPRESS", compress_words, COUNT_OF(compress_words), s));
    TRY(add_choice(root, "PP_SCHEDULE", pipe_words, COUNT_OF(pipe_words), s));
    return verify_settings_add(s, "REDUCE_PRECISION",
                               json_number(root, "reduce_bytes") == 2 ? "bf16" : "fp32");
}

#define AXIS_MOST 1024 /* the setting's own limit may be lower */

static int axis(const cJSON *root, const char *name)
{
    const cJSON *settings = cJSON_GetObjectItemCaseSensitive(root, "settings");
    const double ranks = json_number(settings, name);
    return ranks > 1 && ranks <= AXIS_MOST ? (int)ranks : 1;
}

/* fewest — workers that repeat a run with EXACT=layout: one group along TP and CP. With VIRTUAL_TP
 * a group has one worker along TP. */
static int fewest(const cJSON *root) { return axis(root, "TP") * axis(root, "CP"); }

/* choose_workers — any number with EXACT=layout, else the run's on one node. */
static enum status choose_workers(const cJSON *root, int workers, struct verify_settings *s)
{
    int64_t ranks, nodes;
    TRY(json_get_i64(root, "ranks", 1, INT32_MAX, &ranks));
    TRY(json_get_i64(root, "nodes", 1, INT32_MAX, &nodes));
    s->workers = workers > 0 ? workers : s->is_layout ? fewest(root) : (int)ranks;
    if (s->is_layout)
        return ST_OK;
    if (nodes > 1)
        return FAIL(ST_BAD_SETTING,
                    "the run had %" PRId64 " nodes, and without EXACT=layout its bits follow its "
                    "layout: one machine cannot repeat them",
                    nodes);
    if (s->workers != ranks)
        return FAIL(ST_BAD_SETTING,
                    "the run had %" PRId64 " workers, and without EXACT=layout its bits follow "
                    "their number: set N_GPU_EACH_NODE=%" PRId64 ", not %d",
                    ranks, ranks, workers);
    return add_layout(root, s);
}

static enum status check_exact(const cJSON *root)
{
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(root, "exact")))
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "the run does not come to the same bits twice (COMPRESS with error feedback, or "
                "NCCL): its steps cannot be compared; audit it without STEPS");
}

static enum status add_all(const cJSON *root, int64_t to, int workers, struct verify_settings *s)
{
    const cJSON *model;
    TRY(check_exact(root));
    TRY(json_get_object(root, "model", &model));
    TRY(add_settings(root, s));
    TRY(add_steps(root, to, s));
    TRY(choose_workers(root, workers, s));
    TRY(verify_settings_add(s, "TASK", strcmp(json_text(model, "task"), "qa") ? "lm" : "qa"));
    return add_number(s, "N_GPU_EACH_NODE", s->workers);
}

static enum status parse(const char *provenance, cJSON **out)
{
    return json_parse(provenance, strlen(provenance), "the ledger's provenance", out);
}

enum status verify_settings_of(const struct ledger_range_maker *maker, int64_t to, int workers,
                               struct verify_settings *out)
{
    cJSON *root;
    *out = (struct verify_settings){.args_n = 0};
    if (maker->provenance[0] == 0)
        return FAIL(ST_BAD_SETTING,
                    "the ledger does not say with which settings step %" PRId64
                    " was made; its steps cannot be repeated",
                    maker->after + 1);
    TRY(parse(maker->provenance, &root));
    enum status st = add_all(root, to, workers, out);
    cJSON_Delete(root);
    return st;
}

void verify_settings_free(struct verify_settings *s)
{
    for (int i = 0; i < s->args_n; i++)
        free(s->arg[i]);
    s->args_n = 0;
}

/* ---- one maker ---- */

/* The first difference of two objects, as words. */
struct difference {
    bool is_layout;
    bool is_inside; /* of "settings" or "model", of which nothing is free */
    char text[512];
};

/* is_free — of a provenance's keys: any value of it gives the same bits. "settings" and "model"
 * are compared by themselves. */
static bool is_free(const char *key, bool is_layout)
{
    static const char *const always[] = {"settings", "model"};
    static const char *const layout[] = {"nodes", "ranks",    "TP",           "PP",
                                         "SHARD", "COMPRESS", "reduce_bytes", "devices"};
    return has_name(always, COUNT_OF(always), key) ||
           (is_layout && has_name(layout, COUNT_OF(layout), key));
}

static void note(void *arg, const char *key, const char *was, const char *is)
{
    struct difference *d = arg;
    if (d->text[0] == 0 && (d->is_inside || !is_free(key, d->is_layout)))
        text_format(d->text, sizeof d->text, "%s was %s, is %s", key, was ? was : "not set",
                    is ? is : "not set");
}

static bool find_difference(const char *a, const char *b, struct difference *d)
{
    return config_diff_each(a, b, note, d) && d->text[0] != 0;
}

/* compare_objects — of two provenances. */
static bool compare_objects(const cJSON *a, const cJSON *b, const char *key, struct difference *d)
{
    char *x = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(a, key)),
         *y = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(b, key));
    d->is_inside = true;
    const bool differs = x && y && find_difference(x, y, d);
    d->is_inside = false;
    cJSON_free(x);
    cJSON_free(y);
    return differs;
}

static enum status compare(const struct ledger_range_maker *was,
                           const struct ledger_range_maker *is, struct difference *d)
{
    cJSON *a = NULL, *b = NULL;
    if (was->data != is->data) {
        text_format(d->text, sizeof d->text, "DATA was %016" PRIx64 ", is %016" PRIx64, was->data,
                    is->data);
        return ST_OK;
    }
    enum status st = parse(was->provenance, &a);
    if (st == ST_OK)
        st = parse(is->provenance, &b);
    if (st == ST_OK && !compare_objects(a, b, "settings", d) && !compare_objects(a, b, "model", d))
        (void)find_difference(was->provenance, is->provenance, d);
    cJSON_Delete(a);
    cJSON_Delete(b);
    return st;
}

enum status verify_settings_agree(const struct ledger_range *range, bool is_layout)
{
    struct difference d = {.is_layout = is_layout};
    for (int i = 1; i < range->makers_n; i++) {
        const struct ledger_range_maker *is = &range->maker[i];
        TRY(compare(&range->maker[0], is, &d));
        if (d.text[0] != 0)
            return FAIL(ST_BAD_SETTING,
                        "the run changed after step %" PRId64 ": %s; repeat the steps up to there "
                        "and those behind by themselves",
                        is->after, d.text);
    }
    return ST_OK;
}

/* ---- devices ---- */

/* class_of — the part of a device's name that decides its results whatever the layout: of a CPU
 * the level, not the threads. */
static const char *class_of(const char *name)
{
    const char *threads = text_starts(name, "cpu ") ? strstr(name, " thread") : NULL;
    const char *level = threads ? strchr(threads + 1, ' ') : NULL;
    return level ? level + 1 : name;
}

static enum status check_device(const char *was, bool is_layout, const char *here)
{
    const bool is_class = strcmp(class_of(was), class_of(here)) == 0;
    if (is_class && (is_layout || strcmp(was, here) == 0))
        return ST_OK;
    if (is_class)
        return FAIL(ST_BAD_SETTING,
                    "the run had workers of \"%.64s\", and here they are \"%s\": without "
                    "EXACT=layout bits may follow the threads; set OMP_NUM_THREADS to all threads "
                    "of the run's node",
                    was, here);
    return FAIL(ST_BAD_SETTING,
                "the run was made on \"%.64s\", and this machine is \"%s\": they round "
                "differently, so a difference would prove nothing; repeat the steps on a machine "
                "like the run's",
                was, here);
}

enum status verify_settings_device(const char *provenance, bool is_layout, const char *here)
{
    cJSON *root;
    const cJSON *device;
    enum status st = ST_OK;
    TRY(parse(provenance, &root));
    cJSON_ArrayForEach(device, cJSON_GetObjectItemCaseSensitive(
                                   root, "devices")) if (st == ST_OK && cJSON_IsString(device)) st =
        check_device(device->valuestring, is_layout, here);
    cJSON_Delete(root);
    return st;
}
