/* conf — values: what each kind accepts and refuses, the order of sources, the messages of
 * refusals; the table itself. */
#include "harness.h"

#include "conf/conf.h"
#include "conf/conf_row.h"

#define WORDS_MAX 8

/* One call: up to seven words and variables, and the result. */
struct trial {
    const char *words[WORDS_MAX];
    const char *environment[WORDS_MAX];
    enum status st;
    enum conf_key key; /* when st is ST_OK: this setting … */
    const char *text;  /* … has this text; else the message contains it */
    const char *source;
};

static enum status open_words(const char *const *words, const char *const *environment,
                              struct conf **out)
{
    int argc = 0;
    while (argc < WORDS_MAX && words[argc] != NULL)
        argc++;
    return conf_open(argc, (char **)words, (char **)environment, out);
}

static void run_trials(const struct trial *trials, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct trial *t = &trials[i];
        struct conf *conf = NULL;
        status_clear();
        enum status st = open_words(t->words, t->environment, &conf);
        const char *got = st == ST_OK ? conf_text(conf, t->key) : status_message();
        bool is_right =
            st == t->st &&
            (st == ST_OK ? strcmp(got, t->text) == 0 : strstr(got, t->text) != NULL) &&
            (t->source == NULL || st != ST_OK || strcmp(conf_source(conf, t->key), t->source) == 0);
        if (!is_right)
            print_error("trial %zu (%s %s): %s \"%s\", want %s \"%s\"\n", i,
                        t->words[0] != NULL ? t->words[0] : "-",
                        t->environment[0] != NULL ? t->environment[0] : "-", status_name(st), got,
                        status_name(t->st), t->text);
        if (st != ST_OK) {
            assert_null(conf);
            assert_true(strlen(got) > 0 && strlen(got) < 1023);
        }
        conf_close(conf);
        assert_true(is_right);
    }
}
#define RUN(trials) run_trials(trials, sizeof(trials) / sizeof(trials)[0])
#define GOOD(word, key, text)                               \
    {                                                       \
        {word}, {NULL}, ST_OK, CONF_##key, text, "argument" \
    }
#define BAD(word, text)                               \
    {                                                 \
        {word}, {NULL}, ST_BAD_SETTING, 0, text, NULL \
    }
#define USAGE(word, text)                       \
    {                                           \
        {word}, {NULL}, ST_USAGE, 0, text, NULL \
    }

TEST(values_are_strict)
{
    char longest[4096 + 8], text[4200];
    memset(longest, 'x', sizeof longest);
    memcpy(longest, "DATA=", 5);
    longest[5 + 4095] = 0;
    memset(text, 'x', sizeof text);
    memcpy(text, "DATA=", 5);
    text[5 + 4096] = 0;
    const struct trial trials[] = {
        GOOD("BATCH_SIZE=1", BATCH_SIZE, "1"),
        GOOD("BATCH_SIZE=65536", BATCH_SIZE, "65536"),
        BAD("BATCH_SIZE=0", "BATCH_SIZE=0 (argument) is out of range; allowed: 1 to 65536 samples"),
        BAD("BATCH_SIZE=65537", "out of range"),
        BAD("BATCH_SIZE=-1", "out of range"),
        BAD("BATCH_SIZE=8x", "BATCH_SIZE=8x (argument) is not a whole number; allowed: 1 to 65536"),
        BAD("BATCH_SIZE=", "not a whole number"),
        BAD("BATCH_SIZE= 8", "not a whole number"),
        BAD("BATCH_SIZE=8 ", "not a whole number"),
        BAD("BATCH_SIZE=0x8", "not a whole number"),
        BAD("BATCH_SIZE=8.0", "not a whole number"),
        BAD("BATCH_SIZE=1e3", "not a whole number"),
        BAD("BATCH_SIZE=+8", "not a whole number"),
        BAD("BATCH_SIZE=\xd9\xa8", "not a whole number"),
        BAD("BATCH_SIZE=99999999999999999999999999", "out of range"),
        GOOD("SEED=9007199254740991", SEED, "9007199254740991"),
        BAD("SEED=9007199254740992", "out of range; allowed: 0 to 9007199254740991"),
        GOOD("LR=3e-4", LR, "3e-4"),
        GOOD("LR=0", LR, "0"),
        GOOD("LR=.5", LR, ".5"),
        BAD("LR=-1e-9", "out of range"),
        BAD("LR=nan", "is not a number"),
        BAD("LR=inf", "is not a number"),
        BAD("LR=0x1p3", "is not a number"),
        BAD("LR=1e999", "LR=1e999"),
        BAD("LR=1e4", "out of range; allowed: 0 to 1000"),
        BAD("LR=1,5", "is not a number"),
        BAD("BETA1=1", "out of range; allowed: 0 to 0.9999999"),
        GOOD("BETA2=0.999", BETA2, "0.999"),
        BAD("EPS=0", "out of range"),
        GOOD("EPS=1e-16", EPS, "1e-16"),
        BAD("DROPOUT=1", "allowed: 0 to 0.99"),
        GOOD("GRAD_CLIP=0", GRAD_CLIP, "0"),
        BAD("WEIGHT_DECAY=-0.1", "out of range"),
        GOOD("STEP_TIMEOUT=90s", STEP_TIMEOUT, "90s"),
        GOOD("STEP_TIMEOUT=0", STEP_TIMEOUT, "0"),
        GOOD("STEP_TIMEOUT=250ms", STEP_TIMEOUT, "250ms"),
        GOOD("STEP_TIMEOUT=7d", STEP_TIMEOUT, "7d"),
        BAD("STEP_TIMEOUT=8d", "out of range; allowed: 0 to "),
        BAD("STEP_TIMEOUT=5 m", "is not a time such as 10s"),
        BAD("STEP_TIMEOUT=5y", "is not a time"),
        BAD("STEP_TIMEOUT=-1s", "STEP_TIMEOUT=-1s"),
        GOOD("SHUFFLE=yes", SHUFFLE, "1"),
        GOOD("SHUFFLE=off", SHUFFLE, "0"),
        GOOD("SHUFFLE=false", SHUFFLE, "0"),
        BAD("SHUFFLE=2", "is neither yes nor no; allowed: 1 0 true false yes no on off"),
        BAD("SHUFFLE=", "is neither yes nor no"),
        GOOD("TASK=qa", TASK, "qa"),
        BAD("TASK=lmm", "TASK=lmm (argument) is not known, did you mean lm; allowed: lm, qa"),
        BAD("TASK=QA", "did you mean qa"),
        BAD("TASK=", "is not known; allowed: lm, qa"),
        BAD("TASK=classification", "is not known; allowed: lm, qa"),
        BAD("OPTIMIZER=adam", "did you mean adamw"),
        GOOD("COMPRESS=int4-zstd", COMPRESS, "int4-zstd"),
        BAD("LR_SCHEDULE=cosin", "did you mean cosine; allowed: cosine, constant, linear, wsd"),
        BAD("PRECISION=fp8", "allowed: auto, fp32, tf32, bf16, fp16"),
        GOOD("SHARD=full", SHARD, "full"),
        GOOD("SHARD=hybrid", SHARD, "hybrid"),
        BAD("SHARD=zero", "allowed: none, optimizer, gradients, full, hybrid, auto"),
        GOOD("COMPRESS=int8", COMPRESS, "int8"),
        GOOD("CUDA_GRAPH=off", CUDA_GRAPH, "off"),
        BAD("CUDA_GRAPH=on", "is not known, did you mean off; allowed: auto, off"),
        BAD("COMPRESS=fp8", "is not known; allowed: none, bf16, int8"),
        BAD("RUN_NAME=a/b", "RUN_NAME=a/b (argument) begins with a dot or contains a slash"),
        BAD("TP=0", "TP=0 (argument) is out of range; allowed: 1 to 64 workers"),
        GOOD("TP=2", TP, "2"), /* the number of workers is not known yet */
        BAD("TP=65", "out of range; allowed: 1 to 64 workers"),
        BAD("CP=0", "CP=0 (argument) is out of range; allowed: 1 to 64 workers"),
        GOOD("CP=4", CP, "4"),
        BAD("PP=0", "PP=0 (argument) is out of range; allowed: 1 to 64 stages"),
        GOOD("PP=4", PP, "4"),
        BAD("PP_CHUNKS=2", "set PP, or PP_CHUNKS=1"),
        GOOD("RECOMPUTE=block", RECOMPUTE, "block"),
        GOOD("RECOMPUTE=block:12", RECOMPUTE, "block:12"),
        GOOD("RECOMPUTE=light:1024", RECOMPUTE, "light:1024"),
        BAD("RECOMPUTE=none:1", "allowed: none, light[:N], attention[:N], block[:N], auto; N: 1 "),
        BAD("RECOMPUTE=auto:1", "allows no number after the colon"),
        BAD("RECOMPUTE=none:3", "RECOMPUTE=none:3 (argument) allows no number after the colon"),
        BAD("RECOMPUTE=block:0", "RECOMPUTE=block:0 (argument) has no allowed number after"),
        BAD("RECOMPUTE=block:1025", "has no allowed number"),
        BAD("RECOMPUTE=block:", "has no allowed number"),
        BAD("RECOMPUTE=block:1:2", "has no allowed number"),
        BAD("RECOMPUTE=block[", "is not known"),
        BAD("RECOMPUTE=block[:N]", "has no allowed number"),
        BAD("RECOMPUTE=blok:3", "did you mean block"),
        BAD("SHARD=full:2", "is not known"),
        GOOD("N_NODES=4096", N_NODES, "4096"),
        BAD("N_NODES=4097", "N_NODES=4097 (argument) is out of range; allowed: 1 to 4096 nodes"),
        BAD("N_NODES=0", "allowed: 1"),
        GOOD("N_GPU_EACH_NODE=64", N_GPU_EACH_NODE, "64"),
        BAD("N_GPU_EACH_NODE=65", "allowed: 1 to 64 workers"),
        BAD("BACKEND=gloo", "allowed: auto, self, tcp, ucx, ucc, nccl"),
        GOOD("BACKEND=nccl", BACKEND, "nccl"),
        GOOD("BACKEND=ucc", BACKEND, "ucc"),
        GOOD("JOIN_TIMEOUT=10m", JOIN_TIMEOUT, "10m"),
        BAD("JOIN_TIMEOUT=0", "out of range"),
        BAD("PEER_TIMEOUT=1s", "out of range"),
        GOOD("JOB_TOKEN=none", JOB_TOKEN, "none"),
        BAD("JOB_TOKEN=0123456789abcdef", "JOB_TOKEN=… (argument) would be visible to all users"),
        BAD("LOG_LEVEL=warning", "allowed: error, warn, info, debug, trace"),
        BAD("STATUS_PORT=65536", "allowed: 0 to 65535"),
        BAD("MASTER_PORT=0", "allowed: 1 to 65535"),
        BAD("MASTER_PORT=tcp://10.96.0.1:1234", "enableServiceLinks: false"),
        GOOD("DATA=", DATA, ""),
        GOOD("DATA=a=b=c", DATA, "a=b=c"),
        GOOD("DATA=/tmp/with space/\xc3\xa4*.txt", DATA, "/tmp/with space/\xc3\xa4*.txt"),
        GOOD(longest, DATA, longest + 5),
        BAD(text, "is too long; allowed: 0 to 4095 bytes of text"),
        BAD("DATA=a\nb", "DATA=a?b (argument) holds a control character"),
        BAD("DATA=a\x1b[31mb", "DATA=a?[31mb"),
        BAD("DATA=a\x7f", "control character"),
        BAD("MODEL=", "is empty"),
        GOOD("PROMPT=a\n\tb", PROMPT, "a\n\tb"),
        BAD("PROMPT=a\x01", "control character"),
        BAD("MASTER_ADDR=", "is empty"),
        GOOD("MASTER_ADDR=fe80::1%eth0", MASTER_ADDR, "fe80::1%eth0"),
        GOOD("NO_COLOR=0", NO_COLOR, "0"),
        GOOD("TEMPERATURE=0", TEMPERATURE, "0"),
        BAD("TOKENS=0", "allowed: 1 to 9007199254740991 tokens"),
        BAD("CHECKPOINT_KEEP=0", "allowed: 1 to 1000000 checkpoints"),
        BAD("EPOCHS=0", "allowed: 1 to"),
    };
    RUN(trials);
}

/* Each row of conf_removed.def: the setting, or its value, is refused with the remedy, as an
 * argument and in the environment. */
TEST(removed_settings_are_refused)
{
    static const struct {
        const char *name, *value, *remedy;
    } rows[] = {
#define CONF_REMOVED(name, value, remedy) {#name, value, remedy},
#include "conf/conf_removed.def"
#undef CONF_REMOVED
    };
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        const bool is_argument = i % 2 == 0;
        const char *value = rows[i / 2].value;
        char word[128];
        char *words[] = {word, NULL}, *none[] = {NULL};
        struct conf *conf = NULL;
        text_format(word, sizeof word, "%s=%s", rows[i / 2].name, value[0] == 0 ? "1" : value);
        assert_int_equal(conf_open(is_argument ? 1 : 0, words, is_argument ? none : words, &conf),
                         ST_BAD_SETTING);
        assert_non_null(strstr(status_message(), word));
        assert_non_null(strstr(status_message(), rows[i / 2].remedy));
        assert_non_null(strstr(status_message(), is_argument ? "(argument)" : "(environment)"));
    }
}

TEST(faults_are_parsed)
{
    static const struct {
        const char *word;
        enum conf_FAULT kind;
        int64_t step;
    } good[] = {
        {"FAULT=", CONF_FAULT_NONE, 0},
        {"FAULT=kill@step=40", CONF_FAULT_KILL, 40},
        {"FAULT=stall@step=1:rank=0", CONF_FAULT_STALL, 1},
        {"FAULT=nan@step=1000000000000", CONF_FAULT_NAN, INT64_C(1000000000000)},
        {"FAULT=slow@step=2", CONF_FAULT_SLOW, 2},
        {"FAULT=flip@step=3", CONF_FAULT_FLIP, 3},
        {"FAULT=enospc@step=4", CONF_FAULT_ENOSPC, 4},
        {"FAULT=spike@step=5", CONF_FAULT_SPIKE, 5},
        {"FAULT=gradient@step=6:rank=0", CONF_FAULT_GRADIENT, 6},
        {"FAULT=flip@check", CONF_FAULT_FLIP, 0},
        {"FAULT=flip@check:rank=0", CONF_FAULT_FLIP, 0},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct conf *conf = NULL;
        assert_int_equal(
            open_words((const char *[]){good[i].word, NULL}, (const char *[]){NULL}, &conf), ST_OK);
        assert_int_equal(conf_fault(conf), good[i].kind);
        assert_int_equal(conf_fault_step(conf), good[i].step);
        conf_close(conf);
    }
    const struct trial trials[] = {
        BAD("FAULT=kill",
            "is not of the form KIND@step=N; allowed: kill@step=N, stall@step=N, nan@step=N"),
        BAD("FAULT=kill@", "not of the form"),
        BAD("FAULT=kill@check", "not of the form"),
        BAD("FAULT=flip@check:rank=x", "of a rank"),
        BAD("FAULT=flip@checks", "of a rank"),
        BAD("FAULT=@step=1", "is not a failure"),
        BAD("FAULT=kil@step=1", "is not a failure"),
        BAD("FAULT=kill@step=", "of a step"),
        BAD("FAULT=kill@step=0", "of a step"),
        BAD("FAULT=kill@step=-1", "of a step"),
        BAD("FAULT=kill@step=1x", "of a step"),
        BAD("FAULT=kill@step=99999999999999999999999999999999999999999999", "of a step"),
        BAD("FAULT=kill@step=1:rank=1", "is for a rank that does not exist"),
        BAD("FAULT=kill@step=1:rank=0:x", "of a rank"),
        BAD("FAULT=kill@step=1:rank=-1", "of a rank"),
        BAD("FAULT=kill@step=1:", "of a rank"),
    };
    RUN(trials);
    struct conf *conf = NULL;
    const char *words[] = {"FAULT=slow@step=1:rank=5", "N_GPU_EACH_NODE=3", "N_NODES=2", NULL};
    assert_int_equal(open_words(words, (const char *[]){NULL}, &conf), ST_OK);
    assert_int_equal(conf_fault_rank(conf), 5);
    assert_int_equal(conf_ranks(conf), 6);
    conf_close(conf);
    words[0] = "FAULT=enospc@step=1:rank=1"; /* it would strike nobody */
    assert_int_equal(open_words(words, (const char *[]){NULL}, &conf), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "only rank 0 writes checkpoints"));
    words[0] = "FAULT=enospc@step=1:rank=0";
    assert_int_equal(open_words(words, (const char *[]){NULL}, &conf), ST_OK);
    conf_close(conf);
}

/* host_of — the value that a HOST row keeps of a word; "" if it is refused. */
static const char *host_of(enum conf_key key, const char *word)
{
    static char out[64];
    char *environment[] = {NULL}, copy[64], *words[] = {copy};
    struct conf *conf = NULL;
    snprintf(copy, sizeof copy, "%s", word);
    out[0] = 0;
    if (conf_open(1, words, environment, &conf) == ST_OK)
        snprintf(out, sizeof out, "%s", conf_text(conf, key));
    else
        assert_null(conf);
    conf_close(conf);
    return out;
}

TEST(hosts_are_kept_without_brackets)
{
    static const struct {
        enum conf_key key;
        const char *word, *kept; /* NULL: refused, with the next text */
        const char *why;
    } rows[] = {
        {CONF_MASTER_ADDR, "MASTER_ADDR=[::1]", "::1", ""},
        {CONF_MASTER_ADDR, "MASTER_ADDR=::1", "::1", ""},
        {CONF_MASTER_ADDR, "MASTER_ADDR=[fe80::1%eth0]", "fe80::1%eth0", ""},
        {CONF_MASTER_ADDR, "MASTER_ADDR=node_0.a-b.svc", "node_0.a-b.svc", ""},
        {CONF_STATUS_ADDR, "STATUS_ADDR=[::]", "::", ""},
        {CONF_DATA_ADDR, "DATA_ADDR=[::1]", "::1", ""},
        {CONF_DATA_ADDR, "DATA_ADDR=eth0:1", "eth0:1", ""}, /* an interface's second name */
        {CONF_MASTER_ADDR, "MASTER_ADDR=10.0.0.1:1234", NULL, "belongs in MASTER_PORT"},
        {CONF_MASTER_ADDR, "MASTER_ADDR=head:1234", NULL, "belongs in MASTER_PORT"},
        {CONF_MASTER_ADDR, "MASTER_ADDR=[::1]:1234", NULL, "belongs in MASTER_PORT"},
        {CONF_STATUS_ADDR, "STATUS_ADDR=0.0.0.0:80", NULL, "belongs in STATUS_PORT"},
        {CONF_DATA_ADDR, "DATA_ADDR=10.0.0.1:5", NULL, "has a port, but the system"},
        {CONF_MASTER_ADDR, "MASTER_ADDR=[::1", NULL, "is not an IPv6 address"},
        {CONF_MASTER_ADDR, "MASTER_ADDR=::1]", NULL, "is not an IPv6 address"},
        {CONF_MASTER_ADDR, "MASTER_ADDR=[]", NULL, "is not an IPv6 address"},
        {CONF_MASTER_ADDR, "MASTER_ADDR=[", NULL, "is not an IPv6 address"},
        {CONF_MASTER_ADDR, "MASTER_ADDR=[10.0.0.1]", NULL, "is not an IPv6 address"},
        {CONF_MASTER_ADDR, "MASTER_ADDR=1:2:3", NULL, "is not an IPv6 address"},
        {CONF_MASTER_ADDR, "MASTER_ADDR=http://head", NULL, "is neither a name nor an address"},
        {CONF_MASTER_ADDR, "MASTER_ADDR=a b", NULL, "is neither a name nor an address"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_string_equal(host_of(rows[i].key, rows[i].word), rows[i].kept ? rows[i].kept : "");
        if (rows[i].kept == NULL && strstr(status_message(), rows[i].why) == NULL)
            fail_msg("%s: %s", rows[i].word, status_message());
    }
}

TEST(unknown_arguments_are_refused)
{
    const struct trial trials[] = {
        USAGE("BATCHSIZE=8",
              "argument BATCHSIZE=8: no setting has this name; did you mean BATCH_SIZE?"),
        USAGE("batch_size=8", "did you mean BATCH_SIZE?"),
        USAGE("--batch-size=8", "write a setting as BATCH_SIZE=8"),
        USAGE("N_NODE=2", "did you mean N_NODES?"),
        USAGE("JOB_TOKEM=0123456789abcdef",
              "argument JOB_TOKEM: no setting has this name; did you mean JOB_TOKEN?"),
        USAGE("LEARNING_RATE=1", "did you mean LR?"),
        USAGE("COOLDOWN_STEPS=1", "did you mean DECAY_STEPS?"),
        USAGE("RAMPUP_BATCH_SIZE=1", "did you mean BATCH_START?"),
        USAGE("PACKING=1", "did you mean PACK_DOCUMENTS?"),
        USAGE("learning-rate=1", "did you mean LR?"),
        USAGE("SEQ_LENGTH=1", "did you mean SEQ_LEN?"),
        USAGE("n_layer=1", "did you mean LAYERS?"),
        USAGE("CHEKPOINT_DIR=x", "did you mean CHECKPOINT_DIR?"),
        USAGE("XYZZY=1", "argument XYZZY=1: no setting has this name; `convoy help settings` lists "
                         "them"),
        USAGE("=1", "no setting has this name"),
        USAGE("=", "no setting has this name"),
        USAGE("", "is not of the form NAME=VALUE"),
        USAGE("BATCH_SIZE", "argument BATCH_SIZE: write a setting as BATCH_SIZE=VALUE"),
        USAGE("BATCH_SIZE =8", "did you mean BATCH_SIZE?"),
        USAGE("A\x1b]0;x\x07=1", "A?]0;x?=1"),
    };
    RUN(trials);
}

TEST(order_of_sources)
{
    const struct trial trials[] = {
        {{NULL}, {NULL}, ST_OK, CONF_STEPS, "0", "default"},
        {{NULL}, {"STEPS=5"}, ST_OK, CONF_STEPS, "5", "environment"},
        {{"STEPS=7"}, {"STEPS=5"}, ST_OK, CONF_STEPS, "7", "argument"},
        {{"STEPS=7", "STEPS=8"}, {NULL}, ST_OK, CONF_STEPS, "8", "argument"},
        {{NULL}, {"STEPS=5", "STEPS=6"}, ST_OK, CONF_STEPS, "5", "environment"},
        {{NULL}, {"STEPS="}, ST_OK, CONF_STEPS, "0", "default"},
        {{"DATA="}, {"DATA=x"}, ST_OK, CONF_DATA, "", "argument"},
        /* What an argument overrides is not parsed. */
        {{"STEPS=7"}, {"STEPS=garbage"}, ST_OK, CONF_STEPS, "7", "argument"},
        {{NULL},
         {"STEPS=garbage"},
         ST_BAD_SETTING,
         0,
         "STEPS=garbage (environment) is not a whole number",
         NULL},
        {{"STEPS=x", "STEPS=8"}, {NULL}, ST_BAD_SETTING, 0, "STEPS=x (argument)", NULL},
        {{NULL}, {"STEPSX=5", "STEP", "=", "", "STEPS"}, ST_OK, CONF_STEPS, "0", "default"},
        {{NULL},
         {"SLURM_NODEID=0", "SLURM_STEP_NUM_NODES=1"},
         ST_OK,
         CONF_NODE_ID,
         "0",
         "SLURM_NODEID"},
        {{NULL}, {"SLURM_STEP_NUM_NODES=4"}, ST_OK, CONF_N_NODES, "4", "SLURM_STEP_NUM_NODES"},
        {{"N_NODES=1", "NODE_ID=0"},
         {"SLURM_STEP_NUM_NODES=4", "NNODES=2"},
         ST_OK,
         CONF_N_NODES,
         "1",
         "argument"},
        {{NULL},
         {"PET_MASTER_ADDR=n0.example", "PET_MASTER_PORT=29500"},
         ST_OK,
         CONF_MASTER_PORT,
         "29500",
         "PET_MASTER_PORT"},
        {{NULL},
         {"PET_MASTER_PORT=x"},
         ST_BAD_SETTING,
         0,
         "MASTER_PORT=x (PET_MASTER_PORT) is not a whole number",
         NULL},
        {{NULL},
         {"SLURM_STEP_NODELIST=gpu[007-9,12]"},
         ST_OK,
         CONF_MASTER_ADDR,
         "gpu007",
         "SLURM_STEP_NODELIST"},
        {{"MASTER_ADDR=me"},
         {"SLURM_STEP_NODELIST=gpu["},
         ST_OK,
         CONF_MASTER_ADDR,
         "me",
         "argument"},
        {{NULL}, {"XDG_CACHE_HOME=/c", "HOME=/h"}, ST_OK, CONF_CACHE_DIR, "/c/convoy", "default"},
        {{NULL},
         {"XDG_CACHE_HOME=relative", "HOME=/h"},
         ST_OK,
         CONF_CACHE_DIR,
         "/h/.cache/convoy",
         "default"},
        {{NULL}, {"HOME=/h"}, ST_OK, CONF_CACHE_DIR, "/h/.cache/convoy", "default"},
        {{"CACHE_DIR=/x"}, {"HOME=/h"}, ST_OK, CONF_CACHE_DIR, "/x", "argument"},
        {{"CACHE_DIR="}, {"HOME=/h"}, ST_OK, CONF_CACHE_DIR, "/h/.cache/convoy", "default"},
    };
    RUN(trials);
    char want[64];
    text_format(want, sizeof want, "/tmp/convoy-cache-%u", (unsigned)getuid());
    const struct trial alone[] = {
        {{NULL}, {NULL}, ST_OK, CONF_CACHE_DIR, want, "default"},
        {{NULL}, {"HOME=/"}, ST_OK, CONF_CACHE_DIR, want, "default"},
        {{NULL}, {"HOME="}, ST_OK, CONF_CACHE_DIR, want, "default"},
    };
    RUN(alone);
}

TEST(numbers_and_origins)
{
    struct conf *conf = NULL;
    const char *words[] = {"LR=2.5e-3",    "STEP_TIMEOUT=1.5m", "TASK=qa", "LR_SCHEDULE=wsd",
                           "RESUME=never", "SHUFFLE=no",        NULL};
    assert_int_equal(
        open_words(words, (const char *[]){"LOG_LEVEL=debug", "NODE_RANK=0", "NO_COLOR=yes", NULL},
                   &conf),
        ST_OK);
    assert_true(conf_f64(conf, CONF_LR) == 2.5e-3);
    assert_int_equal(conf_i64(conf, CONF_STEP_TIMEOUT), 90000);
    assert_int_equal(conf_i64(conf, CONF_TASK), CONF_TASK_QA);
    assert_int_equal(conf_i64(conf, CONF_LR_SCHEDULE), CONF_LR_SCHEDULE_WSD);
    assert_int_equal(conf_i64(conf, CONF_RESUME), CONF_RESUME_NEVER);
    assert_int_equal(conf_i64(conf, CONF_SHUFFLE), 0);
    assert_int_equal(conf_i64(conf, CONF_LOG_LEVEL), CONF_LOG_LEVEL_DEBUG);
    assert_int_equal(conf_i64(conf, CONF_NO_COLOR), 1);
    assert_int_equal(conf_i64(conf, CONF_BATCH_SIZE), 8);
    assert_true(conf_f64(conf, CONF_BATCH_SIZE) == 8);
    assert_int_equal(conf_origin(conf, CONF_LR), CONF_ORIGIN_ARGUMENT);
    assert_int_equal(conf_origin(conf, CONF_LOG_LEVEL), CONF_ORIGIN_ENVIRONMENT);
    assert_int_equal(conf_origin(conf, CONF_NODE_ID), CONF_ORIGIN_LAUNCHER);
    assert_true(conf_is_set(conf, CONF_NODE_ID));
    assert_false(conf_is_set(conf, CONF_BATCH_SIZE));
    assert_int_equal(conf_threads(conf), 0);
    conf_close(conf);
    conf_close(NULL);
}

TEST(threads_of_openmp)
{
    static const struct {
        const char *variable;
        int threads; /* -1: refused */
    } trials[] = {
        {"OMP_NUM_THREADS=", 0},
        {"OMP_NUM_THREADS=1", 1},
        {"OMP_NUM_THREADS=64", 64},
        {"OMP_NUM_THREADS=4,2", 4},
        {"OMP_NUM_THREADS=0", -1},
        {"OMP_NUM_THREADS=-2", -1},
        {"OMP_NUM_THREADS=x", -1},
        {"OMP_NUM_THREADS=,2", -1},
        {"OMP_NUM_THREADS=4 ", -1},
        {"OMP_NUM_THREADS=4097", -1},
        {"OMP_NUM_THREADS=99999999999999999999", -1},
    };
    for (size_t i = 0; i < sizeof trials / sizeof trials[0]; i++) {
        struct conf *conf = NULL;
        enum status st =
            open_words((const char *[]){NULL}, (const char *[]){trials[i].variable, NULL}, &conf);
        if ((st == ST_OK) != (trials[i].threads >= 0) ||
            (st == ST_OK && conf_threads(conf) != trials[i].threads))
            fail_msg("%s: %s", trials[i].variable,
                     st == ST_OK ? "taken wrongly" : status_message());
        if (st != ST_OK)
            assert_non_null(
                strstr(status_message(), "is not a number of threads; allowed: 1 to 4096"));
        conf_close(conf);
    }
}

/* Every byte that a value can hold, in every row: accepted, or refused with a message fit for a
 * terminal. */
TEST(every_byte_in_every_row)
{
    char word[64];
    for (int key = 0; key < CONF_N; key++)
        for (int c = 1; c < 256; c++) {
            struct conf *conf = NULL;
            text_format(word, sizeof word, "%s=1%c", conf_rows[key].name, c);
            enum status st = conf_open(1, (char *[]){word}, (char *[]){NULL}, &conf);
            for (const char *p = st != ST_OK ? status_message() : ""; *p != 0; p++)
                assert_true((unsigned char)*p >= 0x20 && *p != 0x7f);
            conf_close(conf);
        }
}

/* are_commands — Returns true if words are commands, as column COMMANDS names them. */
static bool are_commands(const char *words)
{
    static const char known[] =
        " job all train check tokenize train-tokenizer generate chat import "
        "export eval bench plan rehearse status view verify config ";
    char word[32];
    for (size_t n; words[0] != 0; words += n + (words[n] == ' ')) {
        n = strcspn(words, " ");
        text_format(word, sizeof word, " %.*s ", (int)n, words);
        if (n == 0 || strstr(known, word) == NULL)
            return false;
    }
    return true;
}

TEST(rows_are_sound)
{
    struct conf *conf = NULL;
    for (int key = 0; key < CONF_N; key++) {
        const struct conf_row *row = &conf_rows[key];
        assert_true(strlen(row->name) <= 17 && strlen(row->initial) <= 9);
        assert_true(row->min <= row->max);
        assert_true(strlen(row->help) > 10 && row->help[strlen(row->help) - 1] == '.');
        assert_null(strchr(row->help, '|')); /* the README's table */
        assert_true(row->result != CONF_RESULT_LOSSES || row->is_agreed);
        assert_true(are_commands(row->commands));
        if (key < CONF_SETTINGS_N) /* hooks are not proposed */
            assert_string_equal(conf_hint_nearest(row->name), row->name);
        char word[128];
        text_format(word, sizeof word, "%s=%s", row->name, row->initial);
        /* The default, given explicitly, is accepted and changes nothing. */
        if (conf_open(1, (char *[]){word}, (char *[]){NULL}, &conf) != ST_OK)
            fail_msg("%s: %s", word, status_message());
        conf_close(conf);
    }
    assert_null(conf_hint_nearest("QQQQQQ"));
    assert_null(conf_hint_nearest(""));
    assert_null(conf_hint_nearest("-"));
}

/* A path on this machine replaces the text for readers, not for what is printed. */
TEST(test_found)
{
    static const char *const words[WORDS_MAX] = {"MODEL=hf://org/name"}, *const none[1] = {NULL};
    struct conf *conf;
    struct text table = {0};
    assert_int_equal(open_words(words, none, &conf), ST_OK);
    assert_string_equal(conf_revision(conf, CONF_MODEL), "");
    conf_set_found(conf, CONF_MODEL, "/cache/first", "");
    conf_set_found(conf, CONF_MODEL, "/cache/name", "{\"a\":\"b\"}");
    assert_string_equal(conf_text(conf, CONF_MODEL), "/cache/name");
    assert_string_equal(conf_given(conf, CONF_MODEL), "hf://org/name");
    assert_string_equal(conf_revision(conf, CONF_MODEL), "{\"a\":\"b\"}");
    assert_string_equal(conf_given(conf, CONF_TOKENIZER), conf_text(conf, CONF_TOKENIZER));
    conf_write_table(conf, &table);
    conf_write_json(conf, &table);
    conf_write_settings(conf, &table);
    assert_null(strstr(table.data, "/cache"));
    assert_non_null(strstr(table.data, "hf://org/name"));
    text_free(&table);
    conf_close(conf);
}

HARNESS_RUN_ALL()
