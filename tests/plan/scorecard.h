/* scorecard — published measurements beside what the planner says of the same settings. The lines
 * of scorecard.tsv are read here; settings, operations, times and memory are the program's own:
 * conf, config_map, plan_ops, plan_time, memory_plan.
 *
 * What is fitted belongs to a cluster or a machine, never to a row. Failures end the program. */
#ifndef CONVOY_TESTS_PLAN_SCORECARD_H
#define CONVOY_TESTS_PLAN_SCORECARD_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "conf/conf.h"
#include "node/choose/config_map.h"
#include "node/choose/device.h"
#include "plan/plan_cluster.h"
#include "plan/plan_ops.h"
#include "plan/plan_time.h"

#define SCORE_FILE "tests/plan/scorecard.tsv"
#define SCORE_COLUMNS 9
#define SCORE_LINES_MAX 1024
#define SCORE_WORDS_MAX 64
#define SCORE_STAGES_MAX 64
#define SCORE_GIB 1073741824.0

/* A line by its columns; what is missing is "". */
struct score_line {
    const char *at[SCORE_COLUMNS];
};
/* The columns of time and memory. */
enum { SCORE_PART = 1, SCORE_MACHINE, SCORE_MODEL, SCORE_SETTINGS, SCORE_UNIT, SCORE_PUBLISHED };
enum { SCORE_SOURCE = 7, SCORE_REMARK };

struct score_row {
    const struct score_line *line;
    bool is_memory, is_fit, is_fp8;
    bool is_too_large; /* Convoy would refuse it: more memory than a GPU of the machine has */
    double published, predicted; /* in the unit of the line */
    double tokens, samples;      /* of a step */
    double need_bytes;           /* of a GPU's memory, by memory_plan */
    int gpus, stages;
    struct plan_ops ops[SCORE_STAGES_MAX]; /* of each stage */
    struct plan_time time;
};
struct scorecard {
    char *bytes;
    struct score_line line[SCORE_LINES_MAX];
    int lines_n;
    struct score_row *row;
    int rows_n;
};

static inline void score_die(const char *where, const char *what)
{
    fprintf(stderr, "scorecard: %s: %s\n", where, what);
    exit(1);
}

/* ---- reading ---- */

static inline void score_split(char *at, struct score_line *out)
{
    for (int i = 0; i < SCORE_COLUMNS; i++) {
        char *end = strchr(at, '\t');
        out->at[i] = at;
        if (end)
            *end++ = 0;
        at = end ? end : at + strlen(at);
    }
}

static inline bool score_is(const struct score_line *line, const char *kind)
{
    return strcmp(line->at[0], kind) == 0;
}

/* score_find — the line of this kind and name. */
static inline const struct score_line *score_find(const struct scorecard *card, const char *kind,
                                                  const char *name)
{
    for (int i = 0; i < card->lines_n; i++)
        if (score_is(&card->line[i], kind) && strcmp(card->line[i].at[1], name) == 0)
            return &card->line[i];
    score_die(name, "no line of this name");
    return NULL;
}

static inline double score_number(const char *word)
{
    double value = 0;
    if (text_parse_f64(word, 0, 1e30, &value) != TEXT_OK)
        score_die(word, "no number");
    return value;
}

static inline void score_add_row(struct scorecard *card, const struct score_line *line)
{
    struct score_row *row = &card->row[card->rows_n++];
    *row = (struct score_row){.line = line,
                              .is_memory = score_is(line, "memory"),
                              .is_fit = strcmp(line->at[SCORE_PART], "fit") == 0,
                              .published = score_number(line->at[SCORE_PUBLISHED])};
}

static inline void score_read(struct scorecard *card)
{
    size_t n;
    memset(card, 0, sizeof *card);
    if (file_read(SCORE_FILE, (size_t)1 << 20, &card->bytes, &n) != ST_OK)
        score_die(SCORE_FILE, status_message());
    card->row = calloc(SCORE_LINES_MAX, sizeof *card->row);
    if (!card->row)
        score_die(SCORE_FILE, "out of memory");
    for (char *at = card->bytes, *end; *at && card->lines_n < SCORE_LINES_MAX; at = end) {
        end = at + strcspn(at, "\n");
        end += *end ? (*end = 0, 1) : 0;
        if (*at == 0 || *at == '#')
            continue;
        struct score_line *line = &card->line[card->lines_n++];
        score_split(at, line);
        if (score_is(line, "time") || score_is(line, "memory"))
            score_add_row(card, line);
    }
}

/* ---- machines ---- */

static inline void score_scale(struct plan_share *share, double scale)
{
    for (int i = 0; i < share->n; i++)
        share->point[i].share = fmin(1, share->point[i].share * scale);
}

/* score_scale_all — compute_scale=: of products and attention; attention_scale=: of it alone.
 * false: another key. */
static inline bool score_scale_all(const char *word, struct plan_cluster *c)
{
    bool is_all = text_starts(word, "compute_scale=");
    if (!is_all && !text_starts(word, "attention_scale="))
        return false;
    double scale = score_number(strchr(word, '=') + 1);
    for (int i = 0; is_all && i < PLAN_PRECISION_N; i++)
        score_scale(&c->product[i], scale);
    score_scale(&c->attention, scale);
    return true;
}

/* score_change — one word of a machine: KEY=VALUE. */
static inline void score_change(const char *word, struct plan_cluster *c)
{
    const struct {
        const char *key;
        double *value;
    } keys[] = {
        {"across=", &c->across.bytes_per_second},
        {"across_us=", &c->across.latency_us},
        {"inside=", &c->inside.bytes_per_second},
        {"memory_bytes=", &c->memory_bytes},
        {"memory_bytes_per_second=", &c->memory_bytes_per_second},
        {"overlap_cost=", &c->overlap_cost},
        {"memory_share=", &c->memory_share},
        {"operation_us=", &c->operation_us},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (!text_starts(word, keys[i].key))
            continue;
        *keys[i].value = score_number(word + strlen(keys[i].key));
        return;
    }
    if (!score_scale_all(word, c))
        score_die(word, "no such key of a machine");
}

/* score_words — the words of a text, in a copy that the caller frees. Returns how many. */
static inline int score_words(char *copy, char *words[SCORE_WORDS_MAX])
{
    int n = 0;
    for (char *at = strtok(copy, " "); at && n < SCORE_WORDS_MAX; at = strtok(NULL, " "))
        words[n++] = at;
    return n;
}

static inline char *score_copy(const char *text)
{
    char *copy = strdup(text);
    if (!copy)
        score_die(text, "out of memory");
    return copy;
}

static inline void score_machine(const struct scorecard *card, const char *name,
                                 struct plan_cluster *out)
{
    const struct score_line *line = score_find(card, "machine", name);
    char *copy = score_copy(line->at[3]), *words[SCORE_WORDS_MAX];
    if (plan_cluster_open(line->at[2], out) != ST_OK)
        score_die(name, status_message());
    int n = score_words(copy, words);
    for (int i = 0; i < n; i++)
        score_change(words[i], out);
    free(copy);
}

/* ---- settings ---- */

/* score_conf — the settings of a row. PRECISION=fp8 is none of Convoy's: what is published with it
 * is planned as bf16 with products at the peak of FP8. */
static inline struct conf *score_conf(const struct scorecard *card, struct score_row *row)
{
    struct text all = {.limit = 4096};
    char *words[SCORE_WORDS_MAX], *nothing[] = {NULL};
    struct conf *conf;
    text_add(&all, "%s %s MASTER_ADDR=127.0.0.1",
             score_find(card, "model", row->line->at[SCORE_MODEL])->at[2],
             row->line->at[SCORE_SETTINGS]);
    if (!strstr(all.data, "PRECISION=fp") && !strstr(all.data, " PRECISION=bf"))
        text_add(&all, " PRECISION=bf16");
    int n = score_words(all.data, words);
    for (int i = 0; i < n; i++) {
        row->is_fp8 |= strcmp(words[i], "PRECISION=fp8") == 0;
        words[i] = strcmp(words[i], "PRECISION=fp8") == 0 ? "PRECISION=bf16" : words[i];
    }
    if (conf_open(n, words, nothing, &conf) != ST_OK)
        score_die(row->line->at[SCORE_SETTINGS], status_message());
    text_free(&all);
    return conf;
}

static inline void score_config(const struct conf *conf, struct trainer_config *out)
{
    struct model_dims dims;
    bool has_weights;
    if (config_map_dims(conf, &dims, &has_weights) != ST_OK ||
        config_map_trainer(conf, &dims, has_weights, out) != ST_OK)
        score_die("settings", status_message());
    out->step.store.dtype = device_dtype(conf, true);
    out->peer_copies = PEER_COPY_MODE_OFF; /* the programs that were measured keep no copies */
}

/* score_place — the first rank of a stage. */
static inline struct memory_plan_place score_place(const struct conf *conf, int stage)
{
    struct mesh mesh;
    if (config_map_mesh(conf, &mesh) != ST_OK)
        score_die("settings", status_message());
    const struct mesh_coord coord = {.at = {[MESH_AXIS_PIPELINE] = stage}};
    int rank = mesh_rank_of(&mesh, &coord);
    struct comm_place at = config_map_place(conf, rank % (int)conf_i64(conf, CONF_N_GPU_EACH_NODE));
    at.rank = rank;
    at.node = rank / at.locals;
    return (struct memory_plan_place){.at = at, .is_discrete = true, .stays_on_device = true};
}

/* ---- predictions ---- */

/* score_memory — state: of a stage in the middle, which has neither embedding nor head, as in the
 * published figures. activations: of the first stage, which keeps most. */
static inline void score_memory(const struct conf *conf, const struct trainer_config *config,
                                struct score_row *row)
{
    struct memory_plan plan;
    bool is_state = strcmp(row->line->at[SCORE_UNIT], "state") == 0;
    struct memory_plan_place place = score_place(conf, is_state ? row->stages / 2 : 0);
    if (memory_plan_train(config, &place, &plan) != ST_OK)
        score_die(row->line->at[SCORE_SETTINGS], status_message());
    const int64_t *bytes = plan.device;
    int64_t state = bytes[MEMORY_PLAN_PARAMETERS] + bytes[MEMORY_PLAN_GRADIENTS] +
                    bytes[MEMORY_PLAN_MOMENTS] + bytes[MEMORY_PLAN_UNSHARDED];
    row->predicted = (double)(is_state ? state : bytes[MEMORY_PLAN_ACTIVATIONS]) / SCORE_GIB;
}

/* score_need — of the first or the last stage, whichever takes more. */
static inline void score_need(const struct conf *conf, const struct trainer_config *config,
                              struct score_row *row)
{
    for (int stage = 0; stage<row->stages; stage += row->stages> 1 ? row->stages - 1 : 1) {
        struct memory_plan plan;
        struct memory_plan_place place = score_place(conf, stage);
        if (memory_plan_train(config, &place, &plan) != ST_OK)
            score_die(row->line->at[SCORE_SETTINGS], status_message());
        row->need_bytes = fmax(row->need_bytes, (double)memory_plan_sum(plan.device));
    }
}

static inline void score_ops(const struct conf *conf, const struct trainer_config *config,
                             struct score_row *row)
{
    for (int stage = 0; stage < row->stages; stage++) {
        struct memory_plan_place place = score_place(conf, stage);
        if (plan_ops_make(config, &place, &row->ops[stage]) != ST_OK)
            score_die(row->line->at[SCORE_SETTINGS], status_message());
    }
}

/* score_prepare — all of a row that follows from its settings alone. */
static inline void score_prepare(const struct scorecard *card, struct score_row *row)
{
    struct trainer_config config;
    struct conf *conf = score_conf(card, row);
    score_config(conf, &config);
    row->gpus = conf_ranks(conf);
    row->stages = (int)conf_i64(conf, CONF_PP);
    row->samples = (double)config.step.global_samples;
    row->tokens = row->samples * (double)config.step.seq_tokens;
    score_need(conf, &config, row);
    if (row->is_memory)
        score_memory(conf, &config, row);
    else
        score_ops(conf, &config, row);
    conf_close(conf);
}

/* score_unit — a time of a step in the unit of the row. */
static inline double score_unit(const struct score_row *row, double ms)
{
    const char *unit = row->line->at[SCORE_UNIT];
    double s = ms / 1e3;
    if (strcmp(unit, "s/step") == 0)
        return s;
    if (strcmp(unit, "samples/s") == 0)
        return row->samples / s;
    if (strcmp(unit, "tokens/s") == 0)
        return row->tokens / s;
    if (strcmp(unit, "tokens/s/GPU") == 0)
        return row->tokens / s / row->gpus;
    score_die(unit, "no such unit");
    return 0;
}

/* score_time — with FP8, attention stays in bf16: its share is of that peak. */
static inline void score_time(const struct plan_cluster *machine, struct score_row *row)
{
    struct plan_cluster c = *machine;
    if (row->is_fp8)
        score_scale(&c.attention, c.peak[PLAN_PRECISION_BF16] / c.peak[PLAN_PRECISION_FP8]);
    plan_time_make(row->ops, row->stages, row->is_fp8 ? PLAN_PRECISION_FP8 : PLAN_PRECISION_BF16,
                   &c, 0, &row->time);
    row->predicted = score_unit(row, row->time.step_ms);
}

static inline double score_error(const struct score_row *row)
{
    return row->predicted / row->published - 1;
}

/* score_run — all of it, with the machines as the files say. */
static inline void score_run(struct scorecard *card)
{
    score_read(card);
    for (int i = 0; i < card->rows_n; i++) {
        struct score_row *row = &card->row[i];
        struct plan_cluster machine;
        score_prepare(card, row);
        score_machine(card, row->line->at[SCORE_MACHINE], &machine);
        row->is_too_large = row->need_bytes > machine.memory_bytes;
        if (!row->is_memory)
            score_time(&machine, row);
    }
}

static inline void score_free(struct scorecard *card)
{
    for (int i = 0; i < card->rows_n; i++)
        for (int stage = 0; stage < card->row[i].stages; stage++)
            plan_ops_free(&card->row[i].ops[stage]);
    free(card->row);
    free(card->bytes);
}

/* ---- what a fit may find ---- */

struct score_limits {
    const char *name;
    double min, max;
};

/* score_limits — of a cluster's figure in make plan-scorecard-fit. */
static inline const struct score_limits *score_limits(const char *name)
{
    static const struct score_limits all[] = {{"memory_share", 0.05, 0.92},
                                              {"overlap_cost", 0, 0.5},
                                              {"inside", 0.2, 0.9},
                                              {"across", 0.2, 0.9}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, name) == 0)
            return &all[i];
    score_die(name, "has no limits");
    return NULL;
}

/* ---- errors of many rows ---- */

struct score_errors {
    int n;
    double median, worst; /* without sign */
    const struct score_row *worst_row;
};

static inline int score_order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Rows of runs that Convoy refuses because they do not fit, and of those that it would run. */
#define SCORE_REFUSED "refused"
#define SCORE_RUN "run"

/* score_is_source — of this source; "!KEY": of any other; NULL: of all; SCORE_REFUSED, SCORE_RUN.
 */
static inline bool score_is_source(const struct score_row *row, const char *source)
{
    if (source && (strcmp(source, SCORE_REFUSED) == 0 || strcmp(source, SCORE_RUN) == 0))
        return row->is_too_large == (strcmp(source, SCORE_REFUSED) == 0);
    bool is_other = source && source[0] == '!';
    return !source || (strcmp(row->line->at[SCORE_SOURCE], source + is_other) == 0) != is_other;
}

/* score_errors — of rows of one kind, part and source. */
static inline struct score_errors score_errors(const struct scorecard *card, bool is_memory,
                                               const char *part, const char *source)
{
    struct score_errors out = {.n = 0};
    double *all = calloc((size_t)card->rows_n, sizeof *all);
    for (int i = 0; all && i < card->rows_n; i++) {
        const struct score_row *row = &card->row[i];
        if (row->is_memory != is_memory || strcmp(row->line->at[SCORE_PART], part) != 0 ||
            !score_is_source(row, source))
            continue;
        all[out.n++] = fabs(score_error(row));
        if (!out.worst_row || all[out.n - 1] > out.worst) {
            out.worst = all[out.n - 1];
            out.worst_row = row;
        }
    }
    if (out.n > 0) {
        qsort(all, (size_t)out.n, sizeof *all, score_order);
        out.median = (all[(out.n - 1) / 2] + all[out.n / 2]) / 2;
    }
    free(all);
    return out;
}

#endif
