/* conf_rules — relations between settings that can be checked before any file is opened: pairs that
 * exclude each other (conf_pairs.def), and relations of their values.
 *
 * Relations with MODEL's dimensions are checked again when the dimensions are available
 * (model_check, the worker). Each refusal names both settings, their values and their sources. It
 * must not know how values are parsed. */
#include "conf/conf_row.h"

#include <string.h>

#define SHOWN_MAX 64

/* clang-format off */
#define IS(setting, value) {CONF_##setting, CONF_CONDITION_IS, CONF_##setting##_##value}
#define NOT(setting, value) {CONF_##setting, CONF_CONDITION_NOT, CONF_##setting##_##value}
#define OVER(setting, number) {CONF_##setting, CONF_CONDITION_OVER, number}
#define AFTER(setting, value) {CONF_##setting, CONF_CONDITION_OVER, CONF_##setting##_##value}
#define EQUALS(setting, number) {CONF_##setting, CONF_CONDITION_IS, number}
#define UNSET(setting) {CONF_##setting, CONF_CONDITION_UNSET, 0}
#define CONF_PAIR(a, remedy, ...) {a, remedy, {__VA_ARGS__}},
/* clang-format on */
const struct conf_pair conf_rules_pairs[] = {
#include "conf/conf_pairs.def"
};
const int conf_rules_pairs_n = sizeof conf_rules_pairs / sizeof *conf_rules_pairs;

/* fail_pair — fails with "A=1 (argument) <relation> B=2 (default); <what to do>". */
static enum status fail_pair(const struct conf *conf, enum conf_key a, const char *relation,
                             enum conf_key b, const char *remedy)
{
    char text_a[SHOWN_MAX], text_b[SHOWN_MAX];
    return FAIL(ST_BAD_SETTING, "%s=%s (%s) %s %s=%s (%s); %s", conf_rows[a].name,
                conf_clean(conf_text(conf, a), text_a, sizeof text_a), conf_source(conf, a),
                relation, conf_rows[b].name, conf_clean(conf_text(conf, b), text_b, sizeof text_b),
                conf_source(conf, b), remedy);
}

/* ---- pairs that exclude each other ---- */

static bool is_met(const struct conf *conf, const struct conf_condition *c)
{
    const int64_t value = conf_i64(conf, c->key);
    switch (c->kind) {
    case CONF_CONDITION_IS:
        return value == c->value;
    case CONF_CONDITION_NOT:
        return value != c->value;
    case CONF_CONDITION_OVER:
        return value > c->value;
    case CONF_CONDITION_UNSET:
        return conf_text(conf, c->key)[0] == 0;
    case CONF_CONDITION_NONE:
        break;
    }
    return false;
}

static enum status check_pairs(const struct conf *conf)
{
    for (const struct conf_pair *pair = conf_rules_pairs;
         pair < conf_rules_pairs + conf_rules_pairs_n; pair++)
        for (const struct conf_condition *b = pair->b; b->kind != CONF_CONDITION_NONE; b++)
            if (is_met(conf, &pair->a) && is_met(conf, b)) {
                /* If only one of both settings is set, the message names it first. */
                enum conf_key a = pair->a.key;
                char shown[SHOWN_MAX];
                if (b->kind == CONF_CONDITION_UNSET)
                    return FAIL(ST_BAD_SETTING, "%s=%s (%s) needs %s, which is not set; %s",
                                conf_rows[a].name,
                                conf_clean(conf_text(conf, a), shown, sizeof shown),
                                conf_source(conf, a), conf_rows[b->key].name, pair->remedy);
                const bool is_second = !conf_is_set(conf, a) && conf_is_set(conf, b->key);
                return fail_pair(conf, is_second ? b->key : a, "does not go with",
                                 is_second ? a : b->key, pair->remedy);
            }
    return ST_OK;
}

/* ---- relations of values ---- */

static enum status check_nodes(const struct conf *conf)
{
    int64_t nodes = conf_i64(conf, CONF_N_NODES), backend = conf_i64(conf, CONF_BACKEND);
    if (conf_i64(conf, CONF_NODE_ID) >= nodes)
        return fail_pair(conf, CONF_NODE_ID, "must be below", CONF_N_NODES,
                         "nodes are counted from 0; set NODE_ID=0 N_NODES=1 to use only this node");
    if (nodes * conf_i64(conf, CONF_N_GPU_EACH_NODE) > CONF_RANKS_MAX)
        return FAIL(ST_BAD_SETTING,
                    "N_NODES=%lld (%s) times N_GPU_EACH_NODE=%lld (%s) is over the limit of %d "
                    "workers; lower one of them",
                    (long long)nodes, conf_source(conf, CONF_N_NODES),
                    (long long)conf_i64(conf, CONF_N_GPU_EACH_NODE),
                    conf_source(conf, CONF_N_GPU_EACH_NODE), CONF_RANKS_MAX);
    if (backend == CONF_BACKEND_SELF && conf_ranks(conf) > 1)
        return fail_pair(conf, CONF_BACKEND, "is for one worker, not",
                         nodes > 1 ? CONF_N_NODES : CONF_N_GPU_EACH_NODE,
                         "use BACKEND=auto or tcp");
    if (conf_fault(conf) == CONF_FAULT_ENOSPC && conf->fault_rank > 0)
        return FAIL(ST_BAD_SETTING,
                    "FAULT=%s (%s): only rank 0 writes checkpoints, so the disk cannot be full for "
                    "another rank; remove :rank=%d",
                    conf_text(conf, CONF_FAULT), conf_source(conf, CONF_FAULT), conf->fault_rank);
    return ST_OK;
}

/* check_batch — checks that the batch can be divided. Not with MESH=auto, which finds another
 * BATCH_SIZE and mesh. */
static enum status check_batch(const struct conf *conf)
{
    int64_t global = conf_i64(conf, CONF_GLOBAL_BATCH);
    int64_t ranks = conf_data_ranks(conf), pass = conf_i64(conf, CONF_BATCH_SIZE) * ranks;
    char relation[64] = "is not a multiple of", remedy[96];
    text_format(remedy, sizeof remedy, "a step has whole micro-batches: set a multiple of %lld",
                (long long)pass);
    if (ranks > 1)
        text_format(relation, sizeof relation, "is not a multiple of %lld %s x", (long long)ranks,
                    ranks < conf_ranks(conf) ? "groups of workers" : "workers");
    bool is_open = conf_i64(conf, CONF_MESH) == CONF_MESH_AUTO ||
                   conf_i64(conf, CONF_EXACT) == CONF_EXACT_LAYOUT; /* as step/mesh.c */
    return global % pass == 0 || is_open
               ? ST_OK
               : fail_pair(conf, CONF_GLOBAL_BATCH, relation, CONF_BATCH_SIZE, remedy);
}

/* mesh_size — returns the number of workers that share a sample. */
static int64_t mesh_size(const struct conf *conf)
{
    return conf_i64(conf, CONF_TP) * conf_i64(conf, CONF_CP) * conf_i64(conf, CONF_PP);
}

/* check_workers — checks the relations with the number of workers. */
static enum status check_workers(const struct conf *conf)
{
    int64_t tensor = conf_i64(conf, CONF_TP);
    if (conf_ranks(conf) % mesh_size(conf) != 0) {
        /* The sizes of the mesh do not divide the job's workers. */
        struct text sizes = {.limit = 256};
        char remedy[64] = "change one of them";
        /* "PP=2 (argument) x CP=2 do not", or "CP=2 (argument) does not": axes of size 1 are left
         * out. */
        static const enum conf_key axes[] = {CONF_PP, CONF_CP, CONF_TP};
        int n = 0;
        for (int i = 0; i < 3; i++) {
            long long size = (long long)conf_i64(conf, axes[i]);
            if (size == 1)
                continue;
            text_add(&sizes, n++ > 0 ? " x %s=%lld" : "%s=%lld", conf_rows[axes[i]].name, size);
            if (n == 1)
                text_add(&sizes, " (%s)", conf_source(conf, axes[i]));
        }
        text_add(&sizes, n == 1 ? " does not" : " do not");
        if (conf_ranks(conf) < mesh_size(conf) && conf_i64(conf, CONF_N_NODES) == 1)
            text_format(remedy, sizeof remedy, "set N_GPU_EACH_NODE=%lld",
                        (long long)mesh_size(conf));
        enum status st =
            FAIL(ST_BAD_SETTING,
                 "%s divide the job's %d worker%s (N_NODES=%lld x N_GPU_EACH_NODE=%lld); %s",
                 sizes.data, conf_ranks(conf), conf_ranks(conf) == 1 ? "" : "s",
                 (long long)conf_i64(conf, CONF_N_NODES),
                 (long long)conf_i64(conf, CONF_N_GPU_EACH_NODE), remedy);
        text_free(&sizes);
        return st;
    }
    if (conf_i64(conf, CONF_N_GPU_EACH_NODE) % tensor != 0 &&
        conf_i64(conf, CONF_TP_ACROSS_NODES) == 0)
        return fail_pair(conf, CONF_TP, "does not divide", CONF_N_GPU_EACH_NODE,
                         "a group would exchange activations over the network; set a TP that "
                         "divides it, or TP_ACROSS_NODES=1 to allow this");
    if (conf->fault_rank >= conf_ranks(conf))
        return FAIL(ST_BAD_SETTING,
                    "FAULT=%s (%s) is for a rank that does not exist; this run has ranks 0 to %d",
                    conf_text(conf, CONF_FAULT), conf_source(conf, CONF_FAULT),
                    conf_ranks(conf) - 1);
    return ST_OK;
}

/* counts_workers — returns true if the number of workers of a node is final: it is set, or one
 * worker may be the whole job. Otherwise its default of 1 is replaced by the number of GPUs
 * later. */
static bool counts_workers(const struct conf *conf)
{
    return conf_is_set(conf, CONF_N_GPU_EACH_NODE) || conf->has_workers || mesh_size(conf) == 1;
}

/* has_ending — returns true if a name of n bytes has this ending. */
static bool has_ending(const char *name, size_t n, const char *ending)
{
    size_t m = strlen(ending);
    return n > m && strncmp(name + n - m, ending, m) == 0;
}

enum status conf_rules_check(const struct conf *conf)
{
    TRY(check_pairs(conf));
    /* The ending of each file determines its format. */
    const char *at = conf_text(conf, CONF_REPORT);
    while (at[0] != 0) {
        size_t n = strcspn(at, ",");
        if (!has_ending(at, n, ".json") && !has_ending(at, n, ".prom"))
            return FAIL(
                ST_BAD_SETTING, "REPORT=%.*s (%s): a report is .json or .prom (Prometheus); %s",
                (int)n, at, conf_source(conf, CONF_REPORT),
                has_ending(at, n, ".xml") ? conf_removed_remedy("REPORT", strlen("REPORT"), ".xml")
                                          : "choose one of these endings");
        at += n + (at[n] != 0);
    }
    /* Check a job that goes on with fewer nodes. */
    if (conf_i64(conf, CONF_ON_LOSS) != CONF_ON_LOSS_WAIT) {
        if (conf_i64(conf, CONF_MIN_NODES) > conf_i64(conf, CONF_N_NODES))
            return fail_pair(conf, CONF_MIN_NODES, "is over", CONF_N_NODES,
                             "a job has at most N_NODES nodes");
        if (conf_i64(conf, CONF_N_GPU_EACH_NODE) % mesh_size(conf) != 0)
            return fail_pair(
                conf, CONF_ON_LOSS, "needs whole groups of workers on each node, not",
                CONF_N_GPU_EACH_NODE,
                "a lost node would leave parts of groups: set a multiple of TP x CP x PP");
    }
    /* A step must not be skipped if its compressed gradient passes an error to the next step. With
     * LOCAL_STEPS outer gradients are compressed, and no outer step is skipped. */
    if (conf_i64(conf, CONF_SPIKE) == CONF_SPIKE_SKIP &&
        conf_i64(conf, CONF_COMPRESS) > CONF_COMPRESS_BF16 &&
        conf_i64(conf, CONF_LOCAL_STEPS) <= 0) {
        return fail_pair(
            conf, CONF_SPIKE, "does not go with", CONF_COMPRESS,
            "error feedback would lose the gradients that a skipped step has sent: set SPIKE=stop, "
            "or COMPRESS=bf16");
    }
    TRY(check_nodes(conf));
    if (counts_workers(conf))
        TRY(check_workers(conf));
    int64_t heads = conf_i64(conf, CONF_HEADS), embed = conf_i64(conf, CONF_EMBED);
    int64_t context = conf_i64(conf, CONF_CONTEXT);
    bool fills = conf_i64(conf, CONF_HEAD_DIM) == 0; /* heads fill the width */
    if (fills && heads > 0 && embed > 0 && embed % heads != 0)
        return fail_pair(conf, CONF_HEADS, "does not divide", CONF_EMBED,
                         "all heads have the same width");
    if (context > 0 && conf_i64(conf, CONF_SEQ_LEN) > context)
        return fail_pair(conf, CONF_SEQ_LEN, "is over", CONF_CONTEXT,
                         "the model has no more positions; lower SEQ_LEN or raise CONTEXT");
    if (counts_workers(conf))
        TRY(check_batch(conf));
    int64_t steps = conf_i64(conf, CONF_STEPS);
    if (steps > 0 && conf_i64(conf, CONF_WARMUP_STEPS) > steps)
        return fail_pair(conf, CONF_WARMUP_STEPS, "is over", CONF_STEPS,
                         "the run would end before the learning rate is reached");
    if (steps > 0 && conf_i64(conf, CONF_DECAY_STEPS) > steps)
        return fail_pair(conf, CONF_DECAY_STEPS, "is over", CONF_STEPS,
                         "the learning rate would begin to fall before the run");
    if (conf_f64(conf, CONF_MIN_LR) > conf_f64(conf, CONF_LR))
        return fail_pair(conf, CONF_MIN_LR, "is over", CONF_LR,
                         "the schedule falls from LR to MIN_LR");
    /* TensorBoard's name of a run is the name of a folder. */
    const char *name = conf_text(conf, CONF_RUN_NAME);
    if (name[0] != '.' && strchr(name, '/') == NULL)
        return ST_OK;
    return FAIL(
        ST_BAD_SETTING,
        "RUN_NAME=%s (%s) begins with a dot or contains a slash; set a name that a folder can have",
        name, conf_source(conf, CONF_RUN_NAME));
}

enum status conf_rules_check_missing(const struct conf *conf, bool needs_data)
{
    const bool is_split = conf_i64(conf, CONF_N_NODES) > 1;
    const bool has_token = conf_text(conf, CONF_JOB_TOKEN)[0] != 0 ||
                           conf_text(conf, CONF_JOB_TOKEN_FILE)[0] != 0,
               has_data = conf_text(conf, CONF_DATA)[0] != 0 || conf_i64(conf, CONF_NODE_ID) > 0;
    const struct {
        /* the default may be intended, so it is reported only together with others */
        bool is_missing, has_default;
        const char *name, *what;
    } rows[] = {
        {is_split && !conf_is_set(conf, CONF_MASTER_ADDR), false, "MASTER_ADDR",
         "the address of node 0, the same on every node"},
        {is_split && !has_token, false, "JOB_TOKEN or JOB_TOKEN_FILE",
         "a secret of at least 16 bytes, the same on every node (openssl rand -hex 32 makes one); "
         "JOB_TOKEN=none lets every machine join that reaches MASTER_PORT"},
        {needs_data && !has_data, false, "DATA",
         "set it to the training data, such as DATA=book.txt (text, .jsonl, token files, a folder, "
         "a URL; `convoy help DATA`); DATA=synthetic trains on random tokens, to try a machine"},
        {is_split && !conf_is_set(conf, CONF_NODE_ID), true, "NODE_ID",
         "the number of this node, 0 if it is not set"},
    };
    struct text list = {.limit = 900};
    int n = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].is_missing || (rows[i].has_default && n == 0))
            continue;
        text_add(&list, "%s%s is not set: %s", n > 0 ? "; " : "", rows[i].name, rows[i].what);
        n++;
    }
    enum status st = n == 0 ? ST_OK
                     : is_split
                         ? FAIL(ST_BAD_SETTING, "N_NODES=%s (%s) needs more settings. %s",
                                conf_text(conf, CONF_N_NODES), conf_source(conf, CONF_N_NODES),
                                list.data != NULL ? list.data : "")
                         : FAIL(ST_BAD_SETTING, "%s", list.data != NULL ? list.data : "");
    text_free(&list);
    return st;
}
