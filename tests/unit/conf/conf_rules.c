/* conf_rules — relations between settings: both names, values and sources are in the message;
 * the bounds themselves are allowed. */
#include "harness.h"

#include "conf/conf_row.h"

#define WORDS_MAX 8

struct trial {
    const char *words[WORDS_MAX];
    enum status st;
    const char *sentence;
};

TEST(relations)
{
    static const struct trial trials[] = {
        {{NULL}, ST_OK, ""},
        {{"HEADS=4", "EMBED=128"}, ST_OK, ""},
        {{"HEADS=5", "EMBED=128"},
         ST_BAD_SETTING,
         "HEADS=5 (argument) does not divide EMBED=128 (argument)"},
        {{"HEADS=129", "EMBED=128"}, ST_BAD_SETTING, "does not divide"},
        {{"HEADS=5", "EMBED=128", "HEAD_DIM=32"}, ST_OK, ""},
        {{"HEADS=5"}, ST_OK, ""}, /* the model's width decides, where it is known */
        {{"EMBED=129"}, ST_OK, ""},
        {{"SEQ_LEN=64", "CONTEXT=64"}, ST_OK, ""},
        {{"SEQ_LEN=65", "CONTEXT=64"},
         ST_BAD_SETTING,
         "SEQ_LEN=65 (argument) is over CONTEXT=64 (argument); the model has no more positions"},
        {{"SEQ_LEN=2048"}, ST_OK, ""},
        {{"CONTEXT=16"}, ST_OK, ""},
        {{"BATCH_SIZE=4", "GLOBAL_BATCH=12"}, ST_OK, ""},
        {{"BATCH_SIZE=4", "GLOBAL_BATCH=4"}, ST_OK, ""},
        {{"BATCH_SIZE=4", "GLOBAL_BATCH=0"}, ST_OK, ""},
        {{"BATCH_SIZE=4", "GLOBAL_BATCH=10"},
         ST_BAD_SETTING,
         "GLOBAL_BATCH=10 (argument) is not a multiple of BATCH_SIZE=4 (argument)"},
        {{"GLOBAL_BATCH=4"},
         ST_BAD_SETTING,
         "GLOBAL_BATCH=4 (argument) is not a multiple of BATCH_SIZE=8 (default)"},
        {{"WARMUP_STEPS=10", "STEPS=10"}, ST_OK, ""},
        {{"WARMUP_STEPS=11", "STEPS=10"},
         ST_BAD_SETTING,
         "WARMUP_STEPS=11 (argument) is over STEPS=10 (argument)"},
        {{"WARMUP_STEPS=11"}, ST_OK, ""},
        {{"DECAY_STEPS=10", "STEPS=10", "LR_SCHEDULE=wsd"}, ST_OK, ""},
        {{"DECAY_STEPS=11", "STEPS=10", "LR_SCHEDULE=wsd"},
         ST_BAD_SETTING,
         "DECAY_STEPS=11 (argument) is over STEPS=10 (argument)"},
        {{"SPIKE=skip", "COMPRESS=int8"},
         ST_BAD_SETTING,
         "SPIKE=skip (argument) does not go with COMPRESS=int8 (argument)"},
        {{"SPIKE=skip", "COMPRESS=bf16"}, ST_OK, ""},
        {{"SPIKE=stop", "COMPRESS=int4"}, ST_OK, ""},
        {{"SPIKE=skip", "COMPRESS=int8", "LOCAL_STEPS=4", "SHARD=none"}, ST_OK, ""},
        {{"REPORT=a.json,b/c.json,d.prom"}, ST_OK, ""},
        {{"REPORT=a.json,b/c.xml"},
         ST_BAD_SETTING,
         "REPORT=b/c.xml (argument): a report is .json or .prom (Prometheus); there are no JUnit"},
        {{"REPORT=a.json,b.txt"}, ST_BAD_SETTING, "REPORT=b.txt (argument): a report is .json"},
        {{"REPORT=.json"}, ST_BAD_SETTING, "REPORT=.json"},
        {{"REPORT=a.json,"}, ST_OK, ""},
        {{"REPORT=a.json,,b.prom"}, ST_BAD_SETTING, "REPORT= (argument)"},
        {{"MIN_LR=3e-4"}, ST_OK, ""},
        {{"MIN_LR=4e-4"}, ST_BAD_SETTING, "MIN_LR=4e-4 (argument) is over LR=3e-4 (default)"},
        {{"LR=0", "MIN_LR=0"}, ST_OK, ""},
        {{"RESUME=required", "CHECKPOINT_DIR=x"}, ST_OK, ""},
        {{"RESUME=required"},
         ST_BAD_SETTING,
         "RESUME=required (argument) needs CHECKPOINT_DIR, which is not set"},
        {{"RESUME=required", "CHECKPOINT_DIR="}, ST_BAD_SETTING, "needs CHECKPOINT_DIR"},
        {{"CHECKPOINT_EVERY=5", "CHECKPOINT_DIR=x"}, ST_OK, ""},
        {{"CHECKPOINT_EVERY=5"},
         ST_BAD_SETTING,
         "CHECKPOINT_EVERY=5 (argument) needs CHECKPOINT_DIR"},
        {{"EVAL_EVERY=5", "VAL_DATA=x"}, ST_OK, ""},
        {{"EVAL_EVERY=5"},
         ST_BAD_SETTING,
         "EVAL_EVERY=5 (argument) needs VAL_DATA, which is not set; set it to data to evaluate on"},
        {{"VAL_DATA=x"}, ST_OK, ""},
        {{"SAMPLE_EVERY=5"}, ST_OK, ""},
        {{"SHARD=hybrid", "COMPRESS=bf16"}, ST_OK, ""},
        {{"SAMPLE_EVERY=5", "TASK=qa"},
         ST_BAD_SETTING,
         "SAMPLE_EVERY=5 (argument) does not go with TASK=qa (argument); only a language model "
         "writes text"},
        {{"SHARD=hybrid"}, ST_OK, ""},
        {{"SHARD=full", "COMPRESS=int8"}, ST_OK, ""},
        {{"SHARD=hybrid", "COMPRESS=bf16"}, ST_OK, ""},
        {{"NODE_ID=1"},
         ST_BAD_SETTING,
         "NODE_ID=1 (argument) must be below N_NODES=1 (default); nodes are counted from 0; set "
         "NODE_ID=0 N_NODES=1"},
        {{"NODE_ID=0", "N_NODES=1"}, ST_OK, ""},
        {{"DEVICE=cuda"}, ST_OK, ""},
        {{"PRECISION=fp16"}, ST_OK, ""},
        {{"PRECISION=fp32", "DEVICE=cpu"}, ST_OK, ""},
        {{"PRECISION=bf16", "DEVICE=cpu"}, ST_OK, ""},
        {{"DEVICE=cpu"}, ST_OK, ""},
        {{"DEVICE=auto", "BACKEND=self"}, ST_OK, ""},
        {{"BACKEND=ucx"}, ST_OK, ""},
        {{"BACKEND=nccl", "DEVICE=cuda", "N_GPU_EACH_NODE=2"}, ST_OK, ""},
        {{"N_NODES=65", "N_GPU_EACH_NODE=64"},
         ST_BAD_SETTING,
         "N_NODES=65 (argument) times N_GPU_EACH_NODE=64 (argument) is over the limit of 4096 "
         "workers"},
        {{"BACKEND=self", "N_GPU_EACH_NODE=2"},
         ST_BAD_SETTING,
         "BACKEND=self (argument) is for one worker, not N_GPU_EACH_NODE=2 (argument); use "
         "BACKEND=auto or tcp"},
        {{"BACKEND=self", "N_NODES=2"},
         ST_BAD_SETTING,
         "is for one worker, not N_NODES=2 (argument)"},
        {{"BATCH_SIZE=4", "GLOBAL_BATCH=24", "N_GPU_EACH_NODE=3", "N_NODES=2"}, ST_OK, ""},
        {{"BATCH_SIZE=4", "GLOBAL_BATCH=12", "N_GPU_EACH_NODE=2"},
         ST_BAD_SETTING,
         "GLOBAL_BATCH=12 (argument) is not a multiple of 2 workers x BATCH_SIZE=4 (argument); a "
         "step has whole micro-batches: set a multiple of 8"},
        {{"FAULT=kill@step=1:rank=1", "N_GPU_EACH_NODE=2"}, ST_OK, ""},
        {{"FAULT=kill@step=1:rank=2", "N_GPU_EACH_NODE=2"},
         ST_BAD_SETTING,
         "this run has ranks 0 to 1"},
        {{"OPTIMIZER=sgd", "MOMENTUM=0.9"}, ST_OK, ""},
        {{"OPTIMIZER=muon"}, ST_OK, ""},
        {{"DETERMINISTIC=0"}, ST_OK, ""},
        {{"LOCAL_STEPS=5", "N_NODES=16", "GLOBAL_BATCH=64", "BATCH_SIZE=4"}, ST_OK, ""},
        {{"LOCAL_STEPS=5", "SHARD=none", "PRECISION=bf16", "OPTIMIZER=sgd"}, ST_OK, ""},
        {{"LOCAL_STEPS=5", "COMPRESS=int8-zstd"}, ST_OK, ""},
        {{"LINK=auto", "N_NODES=4", "COMPRESS=int8"}, ST_OK, ""},
        {{"TP=2", "N_GPU_EACH_NODE=2"}, ST_OK, ""},
        {{"TP=2", "N_GPU_EACH_NODE=4", "N_NODES=2", "SHARD=full"}, ST_OK, ""},
        {{"TP=3", "N_GPU_EACH_NODE=4"},
         ST_BAD_SETTING,
         "TP=3 (argument) does not divide the job's 4 workers (N_NODES=1 x N_GPU_EACH_NODE=4); "
         "change one of them"},
        {{"TP=2", "N_NODES=2", "N_GPU_EACH_NODE=1"},
         ST_BAD_SETTING,
         "TP=2 (argument) does not divide N_GPU_EACH_NODE=1 (argument); a group would exchange "
         "activations over the network; set a TP that divides it, or TP_ACROSS_NODES=1"},
        {{"TP=2", "N_NODES=2", "TP_ACROSS_NODES=1"}, ST_OK, ""},
        {{"TP=2", "N_NODES=2", "N_GPU_EACH_NODE=3"}, ST_BAD_SETTING, "or TP_ACROSS_NODES=1"},
        {{"TP=2", "N_GPU_EACH_NODE=2", "TASK=qa"}, ST_OK, ""},
        {{"TP=2"}, ST_OK, ""}, /* until the GPUs are counted */
        {{"TP=2", "N_GPU_EACH_NODE=1"},
         ST_BAD_SETTING,
         "TP=2 (argument) does not divide the job's 1 worker (N_NODES=1 x N_GPU_EACH_NODE=1); set "
         "N_GPU_EACH_NODE=2"},
        {{"PP=2", "TP=2", "N_GPU_EACH_NODE=2"},
         ST_BAD_SETTING,
         "PP=2 (argument) x TP=2 do not divide the job's 2 workers (N_NODES=1 x N_GPU_EACH_NODE=2);"
         " set N_GPU_EACH_NODE=4"},
        {{"PP=2", "N_GPU_EACH_NODE=2", "FAULT=kill@step=1:rank=2"},
         ST_BAD_SETTING,
         "this run has ranks 0 to 1"},
        {{"CP=2", "N_GPU_EACH_NODE=2", "TASK=qa"}, ST_OK, ""},
        {{"CP=2", "N_NODES=2", "SHARD=full"}, ST_OK, ""},
        {{"CP=2", "TP=2", "PP=2", "N_GPU_EACH_NODE=8"}, ST_OK, ""},
        {{"CP=2", "TP=2", "N_GPU_EACH_NODE=6"},
         ST_BAD_SETTING,
         "CP=2 (argument) x TP=2 do not divide the job's 6 workers (N_NODES=1 x "
         "N_GPU_EACH_NODE=6); change one of them"},
        {{"CP=2", "PP=2", "N_GPU_EACH_NODE=2"},
         ST_BAD_SETTING,
         "PP=2 (argument) x CP=2 do not divide the job's 2 workers"},
        {{"CP=2", "N_GPU_EACH_NODE=2", "COMPRESS=bf16"}, ST_OK, ""},
        {{"CP=2"}, ST_OK, ""},
        {{"CP=2", "N_GPU_EACH_NODE=1"},
         ST_BAD_SETTING,
         "CP=2 (argument) does not divide the job's 1 worker (N_NODES=1 x "
         "N_GPU_EACH_NODE=1); set N_GPU_EACH_NODE=2"},
        {{"CP=2", "N_GPU_EACH_NODE=4", "BATCH_SIZE=4", "GLOBAL_BATCH=12"},
         ST_BAD_SETTING,
         "GLOBAL_BATCH=12 (argument) is not a multiple of 2 groups of workers x BATCH_SIZE=4 "
         "(argument); a step has whole micro-batches: set a multiple of 8"},
        {{"TP=2", "N_GPU_EACH_NODE=4", "BATCH_SIZE=4", "GLOBAL_BATCH=8"}, ST_OK, ""},
        {{"TP=2", "N_GPU_EACH_NODE=4", "BATCH_SIZE=4", "GLOBAL_BATCH=12"},
         ST_BAD_SETTING,
         "GLOBAL_BATCH=12 (argument) is not a multiple of 2 groups of workers x BATCH_SIZE=4 "
         "(argument); a step has whole micro-batches: set a multiple of 8"},
    };
    for (size_t i = 0; i < sizeof trials / sizeof trials[0]; i++) {
        struct conf *conf = NULL;
        int argc = 0;
        while (argc < WORDS_MAX && trials[i].words[argc] != NULL)
            argc++;
        status_clear();
        enum status st = conf_open(argc, (char **)trials[i].words, (char *[]){NULL}, &conf);
        if (st != trials[i].st || strstr(status_message(), trials[i].sentence) == NULL)
            fail_msg("trial %zu (%s): %s \"%s\", want %s \"%s\"", i,
                     argc > 0 ? trials[i].words[0] : "-", status_name(st), status_message(),
                     status_name(trials[i].st), trials[i].sentence);
        conf_close(conf);
    }
}

/* Messages name the sources of both settings. */
TEST(sources_are_named)
{
    struct conf *conf = NULL;
    char *launcher[] = {"JOB_COMPLETION_INDEX=3", NULL};
    assert_int_equal(conf_open(0, NULL, launcher, &conf), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(),
                           "NODE_ID=3 (JOB_COMPLETION_INDEX) must be below N_NODES=1 (default)"));
    assert_non_null(strstr(status_message(), "set NODE_ID=0 N_NODES=1 to use only this node"));
    char *mixed[] = {"EMBED=100", NULL};
    assert_int_equal(conf_open(1, (char *[]){"HEADS=3"}, mixed, &conf), ST_BAD_SETTING);
    assert_non_null(
        strstr(status_message(), "HEADS=3 (argument) does not divide EMBED=100 (environment)"));
}

/* A number of workers that was found, not set, is named so, and must satisfy the relations like any
 * other. */
TEST(workers_found_are_called_that)
{
    struct conf *conf = NULL;
    char *none[] = {NULL}, *words[] = {"BATCH_SIZE=4", "GLOBAL_BATCH=24"},
         *id[] = {"NCCL_COMM_ID=10.0.0.1:5000", NULL};
    assert_int_equal(conf_open(2, words, none, &conf), ST_OK);
    assert_int_equal(conf_set_workers(conf, 3, none), ST_OK);
    assert_int_equal(conf_i64(conf, CONF_N_GPU_EACH_NODE), 3);
    assert_int_equal(conf_ranks(conf), 3);
    assert_string_equal(conf_source(conf, CONF_N_GPU_EACH_NODE), "GPUs found");
    assert_false(conf_is_set(conf, CONF_N_GPU_EACH_NODE));
    assert_int_equal(conf_set_workers(conf, 4, none), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "set a multiple of 16"));
    assert_int_equal(conf_set_workers(conf, 2, id), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "NCCL_COMM_ID"));
    conf_close(conf);
}

/* add_word — Writes NAME=VALUE so that a condition of a pair holds; nothing if it holds unset. */
static const char *add_word(const struct conf_condition *c, char *out, size_t cap)
{
    const struct conf_row *row = &conf_rows[c->key];
    char word[32] = "";
    switch (c->kind) {
    case CONF_CONDITION_IS:
        text_format(word, sizeof word, "%lld", (long long)c->value);
        if (row->kind == CONF_KIND_CHOICE)
            assert_true(conf_word(row, (int)c->value, word, sizeof word));
        break;
    case CONF_CONDITION_NOT:
        assert_true(conf_word(row, c->value == 0, word, sizeof word));
        break;
    case CONF_CONDITION_OVER:
        text_format(word, sizeof word, "%lld", (long long)c->value + 1);
        if (row->kind == CONF_KIND_CHOICE)
            assert_true(conf_word(row, (int)c->value + 1, word, sizeof word));
        break;
    default:
        return NULL;
    }
    text_format(out, cap, "%s=%s", row->name, word);
    return out;
}

/* Each pair of conf_pairs.def is refused with both settings and the remedy. */
TEST(pairs_are_refused)
{
    char *none[] = {NULL}, first[64], second[64], both[160];
    for (int i = 0; i < conf_rules_pairs_n; i++)
        for (const struct conf_condition *b = conf_rules_pairs[i].b; b->kind != CONF_CONDITION_NONE;
             b++) {
            struct conf *conf = NULL;
            char *words[] = {(char *)add_word(&conf_rules_pairs[i].a, first, sizeof first),
                             (char *)add_word(b, second, sizeof second)};
            const bool is_unset = b->kind == CONF_CONDITION_UNSET;
            assert_int_equal(conf_open(is_unset ? 1 : 2, words, none, &conf), ST_BAD_SETTING);
            if (is_unset)
                text_format(both, sizeof both, "%s (argument) needs %s, which is not set; %s",
                            first, conf_rows[b->key].name, conf_rules_pairs[i].remedy);
            else
                text_format(both, sizeof both, "%s (argument) does not go with %s (argument); ",
                            first, second);
            if (strstr(status_message(), both) == NULL ||
                strstr(status_message(), conf_rules_pairs[i].remedy) == NULL)
                fail_msg("%s: %s", both, status_message());
        }
}

/* If only the second setting of a pair is set, it is named first. */
TEST(the_setting_that_is_set_is_named_first)
{
    struct conf *conf = NULL;
    char *words[] = {"VIRTUAL_SHARDS=4"}, *none[] = {NULL};
    assert_int_equal(conf_open(1, words, none, &conf), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(),
                           "VIRTUAL_SHARDS=4 (argument) does not go with EXACT=off (default); "));
}

/* EXACT=layout also runs on GPUs. */
TEST(exact_accepts_gpus)
{
    static const char *const fine[] = {"DEVICE=cuda", "BACKEND=nccl", "BACKEND=tcp", "COMM_SMS=8"};
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
        struct conf *conf = NULL;
        char *none[] = {NULL}, *words[] = {"EXACT=layout", "GLOBAL_BATCH=8", (char *)fine[i]};
        if (conf_open(3, words, none, &conf) != ST_OK)
            fail_msg("%s: %s", fine[i], status_message());
        conf_close(conf);
    }
}

/* What goes with every axis of a divided model. */
TEST(divided_models_accept)
{
    static const char *const axes[] = {"TP=2", "CP=2", "PP=2"};
    static const char *const fine[] = {
        "SHARD=none",    "SHARD=optimizer", "SHARD=gradients", "SHARD=full",     "SHARD=auto",
        "COMPRESS=bf16", "DROPOUT=0.1",     "RECOMPUTE=block", "PRECISION=bf16", "TASK=qa",
        "COMM_SMS=16",   "BACKEND=tcp",     "BACKEND=nccl"};
    for (size_t a = 0; a < sizeof axes / sizeof *axes; a++)
        for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
            struct conf *conf = NULL;
            char *none[] = {NULL},
                 *words[] = {"N_GPU_EACH_NODE=4", (char *)axes[a], (char *)fine[i]};
            if (conf_open(3, words, none, &conf) != ST_OK)
                fail_msg("%s with %s: %s", axes[a], fine[i], status_message());
            conf_close(conf);
        }
}

/* TP without N_GPU_EACH_NODE: the GPUs decide, and then all relations hold. */
TEST(workers_found_are_divided)
{
    struct conf *conf = NULL;
    char *none[] = {NULL},
         *words[] = {"TP=2", "PP=2", "BATCH_SIZE=2", "GLOBAL_BATCH=12", "FAULT=nan@step=1:rank=7"};
    assert_int_equal(conf_open(5, words, none, &conf), ST_OK);
    assert_int_equal(conf_set_workers(conf, 1, none), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "job's 1 worker"));
    assert_string_equal(conf_source(conf, CONF_N_GPU_EACH_NODE), "default");
    assert_int_equal(conf_set_workers(conf, 4, none), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "this run has ranks 0 to 3"));
    assert_int_equal(conf_set_workers(conf, 8, none), ST_OK);
    assert_int_equal(conf_data_ranks(conf), 2);
    assert_int_equal(conf_set_workers(conf, 16, none), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "4 groups of workers x BATCH_SIZE=2"));
    conf_close(conf);
}

/* A job's settings in the environment of a command that runs in one process. */
TEST(a_mesh_is_for_jobs)
{
    struct conf *conf = NULL;
    char *job[] = {"TP=2",           "PP=2",      "N_GPU_EACH_NODE=8",
                   "GLOBAL_BATCH=6", "NODE_ID=3", "FAULT=kill@step=1:rank=7",
                   "BACKEND=nccl",   NULL};
    char *slurm[] = {"SLURM_NODEID=3", "SLURM_STEP_NUM_NODES=4", NULL}, *bad[] = {"TP=two", NULL};
    char *device[] = {"DEVICE=cpu"};
    assert_int_equal(conf_open_for("eval", 1, device, job, &conf), ST_OK);
    assert_int_equal(conf_ranks(conf), 1);
    assert_int_equal(conf_data_ranks(conf), 1);
    assert_int_equal(conf_fault(conf), CONF_FAULT_NONE);
    assert_string_equal(conf_source(conf, CONF_TP), "default");
    conf_close(conf);
    assert_int_equal(conf_open_for("eval", 0, NULL, slurm, &conf), ST_OK);
    assert_int_equal(conf_i64(conf, CONF_NODE_ID), 0);
    conf_close(conf);
    assert_int_equal(conf_open_for("eval", 0, NULL, bad, &conf), ST_BAD_SETTING);
    char *local[] = {"LOCAL_STEPS=5",  "OUTER_LR=0.1",   "OUTER_MOMENTUM=0",
                     "OPTIMIZER=muon", "PRECISION=fp16", NULL};
    assert_int_equal(conf_open_for("eval", 0, NULL, local, &conf), ST_OK);
    assert_int_equal(conf_i64(conf, CONF_LOCAL_STEPS), 0);
    assert_string_equal(conf_source(conf, CONF_OUTER_LR), "default");
    assert_string_equal(conf_source(conf, CONF_OUTER_MOMENTUM), "default");
    conf_close(conf);
    assert_int_equal(conf_open(0, NULL, local, &conf), ST_BAD_SETTING);
    char *workers[] = {"TP=3", "N_GPU_EACH_NODE=2", NULL};
    assert_int_equal(conf_open_for("bench", 0, NULL, workers, &conf), ST_OK);
    assert_int_equal(conf_ranks(conf), 2);
    conf_close(conf);
    assert_int_equal(conf_open(0, NULL, workers, &conf), ST_BAD_SETTING);
}

HARNESS_RUN_ALL()
