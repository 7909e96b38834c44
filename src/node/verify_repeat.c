/* verify_repeat — see verify_repeat.h. Read repeat first, at the foot. */
#include "node/verify_repeat.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/config_diff.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "base/version.h"
#include "format/ckpt.h"
#include "format/ckpt_compare.h"
#include "format/ckpt_dir.h"
#include "format/ledger_range.h"
#include "node/config_map.h"
#include "node/device.h"
#include "node/print.h"
#include "node/tokenizer_source.h"
#include "node/verify_child.h"
#include "node/verify_scratch.h"
#include "node/verify_settings.h"

#define STEPS_NAME "STEPS="
#define STEPS_MAX INT64_C(1000000000000)

/* A checkpoint of the run, to compare with. */
struct point {
    int64_t step;
    bool is_kept;                          /* its files are there */
    const struct ledger_checkpoint *entry; /* NULL: the ledger has none */
};

struct repeat {
    const struct verify_repeat_wish *wish;
    int64_t from, to;
    char ledger[FILE_PATH_MAX], scratch[FILE_PATH_MAX], device[64];
    struct ledger_audit audit;
    struct ledger_range range;
    struct point *point; /* in order */
    int points_n, tensors_n;
    struct ckpt *first; /* of step `from` */
    struct verify_settings settings;
    char **environment;
    sigset_t before;
    struct text lines, json;
    char problem[1024]; /* "": equal so far */
};

/* ---- arguments ---- */

/* What may be said beside STEPS: how this machine computes, and where its files are. */
static const enum conf_key own[] = {
    CONF_DATA,       CONF_TOKENIZER,      CONF_CACHE_DIR,       CONF_ALLOW_LOCAL_URLS,
    CONF_DOC_STRIDE, CONF_DEVICE,         CONF_N_GPU_EACH_NODE, CONF_STEP_TIMEOUT,
    CONF_RECOMPUTE,  CONF_CONVOY_LIB_DIR, CONF_CONVOY_BLAS,     CONF_ATTENTION,
};
static const enum conf_key shown[] = {CONF_JSON, CONF_LOG_FORMAT, CONF_LOG_LEVEL, CONF_NO_COLOR};
#define COUNT_OF(list) (sizeof(list) / sizeof *(list))

static bool is_of(const enum conf_key *list, size_t n, const char *word)
{
    for (size_t i = 0; i < n; i++) {
        const char *name = conf_row_name(list[i]);
        if (text_starts(word, name) && word[strlen(name)] == '=')
            return true;
    }
    return false;
}

static enum status check_word(const char *word)
{
    if (!strchr(word, '=') || is_of(own, COUNT_OF(own), word) ||
        is_of(shown, COUNT_OF(shown), word))
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "%.*s: steps are repeated with the settings of their run; leave it out",
                (int)strcspn(word, "="), word);
}

enum status verify_repeat_take(int *argc, char **argv, const char **steps_out)
{
    int n = 0;
    *steps_out = NULL;
    for (int i = 0; i < *argc; i++)
        if (text_starts(argv[i], STEPS_NAME))
            *steps_out = argv[i] + strlen(STEPS_NAME);
        else
            argv[n++] = argv[i];
    *argc = n;
    for (int i = 0; i < n && *steps_out; i++)
        TRY(check_word(argv[i]));
    return ST_OK;
}

enum status verify_repeat_parse(const char *steps, int64_t *from_out, int64_t *to_out)
{
    char from[32];
    const char *dots = strstr(steps, "..");
    const bool is_range = dots &&
                          text_format(from, sizeof from, "%.*s", (int)(dots - steps), steps) &&
                          text_parse_i64(from, 0, STEPS_MAX, from_out) == TEXT_OK &&
                          text_parse_i64(dots + 2, 1, STEPS_MAX, to_out) == TEXT_OK;
    if (!is_range)
        return FAIL(ST_BAD_SETTING,
                    "STEPS=%.40s: expected two steps such as STEPS=100..200; the first has a "
                    "checkpoint, and those behind it are repeated",
                    steps);
    if (*from_out >= *to_out)
        return FAIL(ST_BAD_SETTING, "STEPS=%.40s: the second step must be above the first", steps);
    return ST_OK;
}

/* ---- what the run has ---- */

static enum status read_ledger(struct repeat *r)
{
    const char *dir = r->wish->dir;
    if (!file_is_dir(dir))
        return FAIL(ST_NO_INPUT, "%s is not a folder; give a run's CHECKPOINT_DIR", dir);
    TRY(file_join(r->ledger, sizeof r->ledger, dir, LEDGER_NAME));
    if (!file_exists(r->ledger))
        return FAIL(ST_NO_INPUT, "%s has no " LEDGER_NAME ", so its settings are not known", dir);
    return ledger_audit(r->ledger, &r->audit);
}

/* list_steps — as text, for a message. */
static void list_steps(const struct ckpt_dir_steps *steps, char *out, size_t cap)
{
    size_t at = 0;
    text_copy(out, cap, steps->steps_n > 0 ? "" : "none");
    for (int i = steps->steps_n - 1; i >= 0 && at < cap; i--) {
        text_format(out + at, cap - at, "%s%" PRId64, at > 0 ? ", " : "", steps->step[i]);
        at += strlen(out + at);
    }
}

static bool has_step(const struct ckpt_dir_steps *steps, int64_t step)
{
    for (int i = 0; i < steps->steps_n; i++)
        if (steps->step[i] == step)
            return true;
    return false;
}

static enum status check_first(const struct repeat *r, const struct ckpt_dir_steps *kept)
{
    char list[256];
    if (has_step(kept, r->from))
        return ST_OK;
    list_steps(kept, list, sizeof list);
    return FAIL(ST_NO_INPUT,
                "%s has no checkpoint of step %" PRId64 " to begin with; those that are kept: %s",
                r->wish->dir, r->from, list);
}

static int compare_points(const void *a, const void *b)
{
    const struct point *x = a, *y = b;
    return x->step < y->step ? -1 : x->step > y->step;
}

static bool is_wanted(const struct repeat *r, int64_t step)
{
    return step > r->from && step <= r->to;
}

static void add_points(struct repeat *r, const struct ckpt_dir_steps *kept)
{
    for (int i = 0; i < r->audit.checkpoints_n; i++) {
        const struct ledger_checkpoint *c = &r->audit.checkpoint[i];
        if (is_wanted(r, c->step))
            r->point[r->points_n++] = (struct point){c->step, has_step(kept, c->step), c};
    }
    const int listed_n = r->points_n;
    for (int i = 0; i < kept->steps_n; i++) {
        bool is_new = is_wanted(r, kept->step[i]);
        for (int j = 0; j < listed_n; j++)
            is_new = is_new && r->point[j].step != kept->step[i];
        if (is_new)
            r->point[r->points_n++] = (struct point){kept->step[i], true, NULL};
    }
    qsort(r->point, (size_t)r->points_n, sizeof *r->point, compare_points);
}

static enum status find_points(struct repeat *r, const struct ckpt_dir_steps *kept)
{
    TRY(check_first(r, kept));
    r->point = calloc((size_t)(r->audit.checkpoints_n + kept->steps_n), sizeof *r->point);
    if (!r->point)
        return FAIL(ST_RETRY, "out of memory: the checkpoints of %s", r->wish->dir);
    add_points(r, kept);
    if (r->points_n > 0)
        return ST_OK;
    return FAIL(ST_NO_INPUT,
                "%s has no checkpoint after step %" PRId64 " up to step %" PRId64
                " to compare with, and %s no checksum of one",
                r->wish->dir, r->from, r->to, LEDGER_NAME);
}

static enum status read_points(struct repeat *r)
{
    struct ckpt_dir_steps kept = {.steps_n = 0};
    TRY(ckpt_dir_list(r->wish->dir, &kept));
    enum status st = find_points(r, &kept);
    free(kept.step);
    return st;
}

/* ---- settings ---- */

static enum status add(struct repeat *r, enum conf_key key, const char *value)
{
    return verify_settings_add(&r->settings, conf_row_name(key), value);
}

/* add_own — what the user has set, but for the workers, which are chosen already. */
static enum status add_own(struct repeat *r)
{
    const struct conf *conf = r->wish->conf;
    for (size_t i = 0; i < COUNT_OF(own); i++)
        if (own[i] != CONF_N_GPU_EACH_NODE && conf_is_set(conf, own[i]))
            TRY(add(r, own[i], conf_text(conf, own[i])));
    return ST_OK;
}

/* add_tokenizer — the one that the run has kept beside its checkpoints. */
static enum status add_tokenizer(struct repeat *r)
{
    char path[FILE_PATH_MAX];
    struct tokenizer *tokenizer;
    if (conf_is_set(r->wish->conf, CONF_TOKENIZER))
        return ST_OK;
    TRY(tokenizer_source_open_kept(r->wish->dir, path, &tokenizer));
    const bool is_kept = tokenizer != NULL;
    tokenizer_close(tokenizer);
    return is_kept ? add(r, CONF_TOKENIZER, path) : ST_OK;
}

/* add_fixed — of a process that leaves nothing but a checkpoint, and answers no requests. */
static enum status add_fixed(struct repeat *r)
{
    static const struct {
        enum conf_key key;
        const char *value;
    } fixed[] = {{CONF_RESUME, "required"}, {CONF_CHECKPOINT_KEEP, "1"}, {CONF_STATUS_PORT, "0"},
                 {CONF_LINGER, "0"},        {CONF_N_NODES, "1"},         {CONF_NODE_ID, "0"},
                 {CONF_MAX_RESTARTS, "0"},  {CONF_LOG_LEVEL, "error"}};
    for (size_t i = 0; i < COUNT_OF(fixed); i++)
        TRY(add(r, fixed[i].key, fixed[i].value));
    TRY(add(r, CONF_MODEL, r->scratch)); /* the dimensions */
    return add(r, CONF_CHECKPOINT_DIR, r->scratch);
}

static enum status read_settings(struct repeat *r)
{
    const struct conf *conf = r->wish->conf;
    const bool is_set = conf_is_set(conf, CONF_N_GPU_EACH_NODE);
    TRY(ledger_range(r->ledger, r->from, r->to, &r->range));
    if (r->range.makers_n == 0)
        return FAIL(ST_BAD_SETTING,
                    "%s does not say what made step %" PRId64 "; its steps cannot be repeated",
                    r->ledger, r->from + 1);
    TRY(verify_settings_of(&r->range.maker[0], r->to,
                           is_set ? (int)conf_i64(conf, CONF_N_GPU_EACH_NODE) : 0, &r->settings));
    TRY(verify_settings_agree(&r->range, r->settings.is_layout));
    return add_own(r);
}

/* ---- this machine ---- */

static enum status check_device(struct repeat *r, const struct conf *conf)
{
    struct dev *dev;
    struct dev_info info;
    TRY(device_open(conf, 0, device_threads(conf), &dev));
    dev_info(dev, &info);
    text_copy(r->device, sizeof r->device, info.name);
    dev_close(dev);
    return verify_settings_device(r->range.maker[0].provenance, r->settings.is_layout, r->device);
}

static enum status check_fingerprint(const struct repeat *r, const struct conf *conf,
                                     const struct feed *feed)
{
    const uint64_t was = r->range.maker[0].data, is = feed_fingerprint(feed);
    if (was == is)
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "DATA=%s is not what the run was trained on: its fingerprint is %016" PRIx64
                ", and the run's is %016" PRIx64 "; give the same files in the same order",
                conf_text(conf, CONF_DATA), is, was);
}

static enum status check_feed(const struct repeat *r, const struct conf *conf,
                              const struct trainer_config *trainer,
                              const struct tokenizer *tokenizer)
{
    struct feed_config config;
    struct feed *feed = NULL;
    config_map_feed(conf, trainer, false, &config);
    config.tokenizer = tokenizer;
    TRY(config_map_name_setting(feed_open(&config, &feed), false));
    enum status st = check_fingerprint(r, conf, feed);
    feed_close(feed);
    return st;
}

static enum status check_data(const struct repeat *r, const struct conf *conf)
{
    struct model_dims dims;
    struct trainer_config trainer;
    struct tokenizer *tokenizer = NULL;
    bool has_weights;
    TRY(config_map_cache(conf));
    TRY(config_map_dims(conf, &dims, &has_weights));
    TRY(config_map_trainer(conf, &dims, has_weights, &trainer));
    TRY(tokenizer_source_open(conf, &dims, &tokenizer));
    enum status st = check_feed(r, conf, &trainer, tokenizer);
    tokenizer_close(tokenizer);
    return st;
}

/* check_machine — before anything is copied. MODEL: the run's own checkpoint. */
static enum status check_machine(struct repeat *r)
{
    struct conf *conf = NULL;
    TRY(add(r, CONF_MODEL, ckpt_path(r->first)));
    TRY(add_tokenizer(r));
    TRY(conf_open(r->settings.args_n, r->settings.arg, r->environment, &conf));
    enum status st = check_device(r, conf);
    if (st == ST_OK)
        st = check_data(r, conf);
    conf_close(conf);
    return st;
}

/* ---- comparing ---- */

static void note_setting(void *arg, const char *key, const char *was, const char *is)
{
    char *out = arg;
    if (out[0] == 0)
        text_format(out, 256, "%s was %s, is %s", key, was ? was : "not set", is ? is : "not set");
}

/* check_settings — a setting that decides results and that this version does not take from the
 * ledger would make a false difference. */
static enum status check_settings(const struct repeat *r, const struct ckpt *made)
{
    cJSON *root;
    char differs[256] = "";
    const char *json = r->range.maker[0].provenance;
    TRY(json_parse(json, strlen(json), "the ledger's provenance", &root));
    char *was = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(root, "settings"));
    if (was)
        config_diff_each(was, ckpt_meta(made)->settings_json, note_setting, differs);
    cJSON_free(was);
    cJSON_Delete(root);
    return differs[0] == 0
               ? ST_OK
               : FAIL(ST_BAD_SETTING,
                      "the steps were not repeated with the settings of the run: %s", differs);
}

static void add_result(struct repeat *r, const struct point *p, const char *compared)
{
    const bool is_equal = r->problem[0] == 0;
    text_add(&r->lines, "step %-10" PRId64 " %s: %s\n", p->step, is_equal ? "equal" : "different",
             compared);
    text_add(&r->json, "%s{\"step\":%" PRId64 ",\"compared\":\"%s\",\"equal\":%s}",
             r->json.len > 0 ? "," : "", p->step, p->is_kept ? "tensors" : "checksum",
             is_equal ? "true" : "false");
}

static void describe(const struct ckpt_compare_result *c, int64_t step, char *out, size_t cap)
{
    if (c->elem >= 0)
        text_format(out, cap,
                    "step %" PRId64 ": tensor %s of %s.safetensors differs: element %" PRId64
                    " is %.9g in the run's checkpoint, and %.9g where it was repeated (%" PRId64
                    " of %" PRId64 " elements differ)",
                    step, c->tensor, c->part, c->elem, (double)c->left, (double)c->right,
                    c->differ_n, c->elems);
    else
        text_format(out, cap,
                    "step %" PRId64 ": %s%s%s.safetensors has another shape, or is "
                    "missing in one of the checkpoints",
                    step, c->tensor, c->tensor[0] ? " of " : "", c->part);
}

static enum status compare_tensors(struct repeat *r, const struct point *p, const struct ckpt *made)
{
    char path[FILE_PATH_MAX], compared[64];
    struct ckpt *kept = NULL;
    struct ckpt_compare_result c;
    TRY(ckpt_dir_step_path(path, sizeof path, r->wish->dir, p->step));
    TRY(ckpt_open(path, NULL, &kept));
    ckpt_compare(kept, made, &c);
    ckpt_close(kept);
    r->tensors_n += c.tensors_n;
    if (c.part[0])
        describe(&c, p->step, r->problem, sizeof r->problem);
    text_format(compared, sizeof compared, "%d tensors, bit by bit", c.tensors_n);
    add_result(r, p, compared);
    return ST_OK;
}

static enum status compare_sums(struct repeat *r, const struct point *p, const struct ckpt *made)
{
    struct ledger_checkpoint is = {.step = 0};
    TRY(ledger_hash_checkpoint(ckpt_path(made), &is));
    const bool has_weights = is.weights == p->entry->weights;
    if (!has_weights || is.state != p->entry->state)
        text_format(r->problem, sizeof r->problem,
                    "step %" PRId64 ": the %s differ: checksum %016" PRIx64
                    " was written, and repeated they have %016" PRIx64
                    "; the run no longer keeps this checkpoint, so the tensor is not known",
                    p->step, has_weights ? "optimiser's moments" : "weights",
                    has_weights ? p->entry->state : p->entry->weights,
                    has_weights ? is.state : is.weights);
    add_result(r, p, "the checksums of its files, which are no longer kept");
    return ST_OK;
}

static enum status compare(struct repeat *r, const struct point *p)
{
    char path[FILE_PATH_MAX];
    struct ckpt *made = NULL;
    TRY(ckpt_dir_step_path(path, sizeof path, r->scratch, p->step));
    TRY(ckpt_open(path, NULL, &made));
    enum status st = check_settings(r, made);
    if (st == ST_OK)
        st = p->is_kept ? compare_tensors(r, p, made) : compare_sums(r, p, made);
    ckpt_close(made);
    return st;
}

/* ---- repeating ---- */

static enum status train_to(struct repeat *r, int64_t step)
{
    char value[32];
    text_format(value, sizeof value, "%" PRId64, step);
    TRY(add(r, CONF_STOP_AFTER, value));
    enum status st =
        verify_child_run(r->settings.arg, r->settings.args_n, r->environment, &r->before);
    free(r->settings.arg[--r->settings.args_n]);
    return st;
}

static enum status train_and_compare(struct repeat *r)
{
    int64_t done = r->from;
    for (int i = 0; i < r->points_n && r->problem[0] == 0; i++) {
        LOG_INFO("repeating steps %" PRId64 " to %" PRId64, done + 1, r->point[i].step);
        TRY(train_to(r, r->point[i].step));
        TRY(compare(r, &r->point[i]));
        TRY(verify_child_check());
        done = r->point[i].step;
    }
    return ST_OK;
}

static enum status in_scratch(struct repeat *r)
{
    const char *tmp = r->wish->tmp ? r->wish->tmp : "/tmp";
    verify_child_hold(&r->before);
    enum status st = verify_scratch_make(tmp, r->scratch);
    if (st == ST_OK)
        st = verify_scratch_copy(r->scratch, r->first);
    if (st == ST_OK)
        st = add_fixed(r);
    if (st == ST_OK)
        st = train_and_compare(r);
    verify_scratch_remove(r->scratch);
    verify_child_release(&r->before);
    return st;
}

/* ---- showing ---- */

static void show(const struct repeat *r, struct text *out)
{
    text_add(out, "repeated    steps %" PRId64 " to %" PRId64 ", from %s\n", r->from + 1,
             r->point[r->points_n - 1].step, ckpt_path(r->first));
    text_add(out, "here        %d worker%s: %s\n", r->settings.workers,
             r->settings.workers == 1 ? "" : "s", r->device);
    text_add(out, "%s", r->lines.data);
    if (r->problem[0] == 0)
        text_add(out, "equal       every bit that the run has kept of these steps\n");
}

static void show_json(const struct repeat *r, struct text *out)
{
    char quoted[6 * sizeof r->problem + 3];
    json_quote(quoted, sizeof quoted, r->problem);
    text_add(out,
             "{\"first_step\":%" PRId64 ",\"last_step\":%" PRId64
             ",\"workers\":%d,\"checkpoints\":[%s],\"equal\":%s,\"problem\":%s}\n",
             r->from + 1, r->point[r->points_n - 1].step, r->settings.workers, r->json.data,
             r->problem[0] ? "false" : "true", r->problem[0] ? quoted : "null");
}

/* fail_different — another version may round differently, which is no fault of a machine. */
static enum status fail_different(const struct repeat *r)
{
    char version[80] = "";
    cJSON *root = NULL;
    const char *json = r->range.maker[0].provenance;
    if (json_parse(json, strlen(json), "provenance", &root) == ST_OK)
        text_format(version, sizeof version, "%.64s", json_text(root, "version"));
    cJSON_Delete(root);
    if (strcmp(version, version_text()) == 0)
        return FAIL(ST_UNHEALTHY, "%s: one of the machines computed or kept a wrong number",
                    r->problem);
    return FAIL(ST_UNHEALTHY,
                "%s; convoy %s made the run, and this is %s, which may round differently",
                r->problem, version, version_text());
}

static enum status report(const struct repeat *r)
{
    struct text out = {0};
    const bool as_json = conf_i64(r->wish->conf, CONF_JSON) != 0;
    (as_json ? show_json : show)(r, &out);
    TRY(print_text(&out));
    return r->problem[0] == 0 ? ST_OK : fail_different(r);
}

/* ---- all of it ---- */

static enum status open_first(struct repeat *r)
{
    char path[FILE_PATH_MAX];
    TRY(ckpt_dir_step_path(path, sizeof path, r->wish->dir, r->from));
    return ckpt_open(path, NULL, &r->first);
}

static enum status repeat(struct repeat *r)
{
    TRY(verify_repeat_parse(r->wish->steps, &r->from, &r->to));
    TRY(read_ledger(r));
    TRY(read_points(r));
    if (conf_text(r->wish->conf, CONF_DATA)[0] == 0)
        return FAIL(ST_BAD_SETTING, "STEPS needs DATA: what the run was trained on");
    TRY(read_settings(r));
    TRY(open_first(r));
    TRY(verify_child_environment(r->wish->environment, &r->environment));
    TRY(check_machine(r));
    TRY(in_scratch(r));
    return report(r);
}

static void release(struct repeat *r)
{
    ledger_audit_free(&r->audit);
    verify_settings_free(&r->settings);
    ckpt_close(r->first);
    text_free(&r->lines);
    text_free(&r->json);
    free(r->point);
    free(r->environment);
    free(r);
}

enum status verify_repeat_main(const struct verify_repeat_wish *wish)
{
    struct repeat *r = calloc(1, sizeof *r);
    if (!r)
        return FAIL(ST_RETRY, "out of memory: the steps of %s", wish->dir);
    r->wish = wish;
    enum status st = repeat(r);
    release(r);
    return st;
}
