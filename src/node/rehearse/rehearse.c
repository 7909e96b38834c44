/* rehearse — `convoy rehearse`: trains a job on nodes that are process trees of this machine, first
 * without faults, then with faults, and reports whether the job survives them, before the real run.
 * Nodes are ordinary `convoy train` processes; this file makes their settings and compares the
 * ledgers of the two runs. Must not know training. Read rehearse_main first, at the foot. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "comm/nccl/lib.h"
#include "conf/launcher.h"
#include "format/ledger.h"
#include "node/choose/device.h"
#include "node/command.h"
#include "node/process/print.h"
#include "node/process/process.h"
#include "node/rehearse/net.h"
#include "node/rehearse/report.h"

#define NODES_DEFAULT 2
#define MIX_DEFAULT "kill:2,node:2,hang:2,slow:1,flip:1,disk:1,cut:1,comm:1"
#define CHECKPOINT_EVERY_DEFAULT 50
#define EVERY_MS_MIN 5000
#define FAULTS_DEFAULT 10 /* faults in a rehearsal, unless FAULT_EVERY is set */
#define HEAL_MS 120000    /* milliseconds, in addition to PEER_TIMEOUT and STEP_TIMEOUT */
#define PORT_FIRST 10000  /* below the ports of outgoing connections */
#define PORTS_N 22000
#define PORT_TRIES 1000
#define STEPS_ENDLESS 1000000000
#define REMOVE_TRIES 100 /* a worker that is being killed may still add a file */
#define REMOVE_WAIT_MS 50
/* Largest relative difference of a step's loss. Rounding grows with each step: undisturbed runs of
 * 1 to 4 workers differed by 0.14 after 700 steps of a small model. */
#define LOSSES_APART 0.25
/* comparisons of replicas between two checkpoints, unless SENTINEL_EVERY is set */
#define COMPARISONS 5
#define GPUS_TEXT 4096 /* bytes of rehearse.visible, with names of 64 MIG instances */

/* A folder that is removed when this process and all processes that inherit its descriptor have
 * ended, however they end, kill -9 included. A separate process waits for that and removes the
 * folder. */
struct scratch {
    char path[FILE_PATH_MAX];
    int hold_fd;   /* the folder stays while any process has it open; outlives exec */
    pid_t remover; /* the process that removes it */
};

struct rehearse {
    const struct conf *conf;
    int args_n;
    char **args; /* the user's arguments without the secrets */
    int64_t checkpoint_every;
    bool is_mix_asked; /* the user set FAULT_MIX */
    struct scratch scratch;
    struct rehearse_net net;                  /* networks of the faulty run, if cables are cut */
    char gpus[REHEARSE_NODES_MAX][GPUS_TEXT]; /* the GPUs of each node, for `visible` */
    const char *gpus_of[REHEARSE_NODES_MAX];
    const char *visible; /* CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES */
    struct rehearse_report report;
    struct ledger_audit calm, faulty;
    char word[REHEARSE_WORDS_MAX][FILE_PATH_MAX + 32];
    const char *words[REHEARSE_WORDS_MAX];
    int words_n;
};

static volatile sig_atomic_t signalled;

static void on_signal(int signal_n) { signalled = signal_n; }

/* ---- settings ---- */

static enum status read_mix(const struct conf *conf, struct rehearse_mix *out)
{
    char why[160];
    const char *set = conf_text(conf, CONF_FAULT_MIX), *text = set[0] != 0 ? set : MIX_DEFAULT;
    if (rehearse_plan_mix(text, out) == ST_OK)
        return ST_OK;
    text_copy(why, sizeof why, status_message());
    return FAIL(ST_BAD_SETTING, "FAULT_MIX=%s (%s) %s", text, conf_source(conf, CONF_FAULT_MIX),
                why);
}

static enum status read_nodes(const struct conf *conf, int *out)
{
    int64_t n = conf_i64(conf, CONF_N_NODES);
    bool is_meant = conf_origin(conf, CONF_N_NODES) > CONF_ORIGIN_LAUNCHER;
    *out = n == 1 && !is_meant ? NODES_DEFAULT : (int)n;
    if (*out >= 2 && *out <= REHEARSE_NODES_MAX)
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "N_NODES=%lld (%s): a rehearsal starts 2 to %d nodes on this machine; leave it "
                "out for %d",
                (long long)n, conf_source(conf, CONF_N_NODES), REHEARSE_NODES_MAX, NODES_DEFAULT);
}

static enum status read_every(const struct conf *conf, int64_t duration_ms, int64_t *out)
{
    *out = conf_i64(conf, CONF_FAULT_EVERY);
    if (*out == 0)
        *out = duration_ms / FAULTS_DEFAULT > EVERY_MS_MIN ? duration_ms / FAULTS_DEFAULT
                                                           : EVERY_MS_MIN;
    if (*out <= duration_ms)
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "FAULT_EVERY is longer than DURATION=%s (%s): no fault would come; raise DURATION",
                conf_text(conf, CONF_DURATION), conf_source(conf, CONF_DURATION));
}

/* leave_out — leaves out a kind of fault that cannot be made here; fails if the user requested
 * it. */
static enum status leave_out(struct rehearse *r, enum rehearse_kind kind, const char *why)
{
    if (r->is_mix_asked)
        return FAIL(ST_BAD_SETTING, "FAULT_MIX has %s: %s; or leave it out",
                    rehearse_plan_word(kind), why);
    rehearse_plan_drop(&r->report.mix, kind);
    text_copy(r->report.left_out[kind], sizeof r->report.left_out[kind], why);
    return ST_OK;
}

static bool is_fetched(const struct conf *conf)
{
    static const enum conf_key keys[] = {CONF_DATA, CONF_VAL_DATA, CONF_MODEL, CONF_ADAPTER,
                                         CONF_TOKENIZER};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strstr(conf_text(conf, keys[i]), "://") != NULL)
            return true;
    return false;
}

/* add_gpu — appends the name of GPU i of this process to a node's list: from the environment, or
 * its number. */
static void add_gpu(char *list, const char *visible, int i)
{
    char name[160];
    for (int k = 0; visible != NULL && k < i; k++)
        visible += strcspn(visible, ",") + (strchr(visible, ',') != NULL);
    if (visible == NULL)
        text_format(name, sizeof name, "%d", i);
    else
        text_format(name, sizeof name, "%.*s", (int)strcspn(visible, ","), visible);
    const size_t n = strlen(list);
    text_format(list + n, GPUS_TEXT - n, "%s%s", n > 0 ? "," : "", name);
}

/* divide_gpus — gives each node GPUs of its own, or shares them if there are too few. NCCL and
 * RCCL refuse two ranks on one GPU, so such workers exchange through the host's transports. */
static enum status divide_gpus(struct rehearse *r, char **environment)
{
    struct rehearse_report *report = &r->report;
    const bool is_hip = strcmp(device_kind(r->conf), "hip") == 0;
    const char *visible = is_hip ? launcher_find(environment, "HIP_VISIBLE_DEVICES") : NULL;
    if (visible == NULL) /* HIP reads CUDA's variable if its own is not set */
        visible = launcher_find(environment, "CUDA_VISIBLE_DEVICES");
    r->visible = is_hip ? "HIP_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES";
    nccl_lib_choose(is_hip, NULL); /* for nccl_lib_name */
    const int gpus = device_gpus(r->conf), nodes = report->nodes_n;
    if (gpus == 0)
        return ST_OK;
    int workers = gpus / nodes > 1 ? gpus / nodes : 1;
    if (conf_is_set(r->conf, CONF_N_GPU_EACH_NODE))
        workers = (int)conf_i64(r->conf, CONF_N_GPU_EACH_NODE);
    report->gpus_n = gpus;
    report->gpu_workers_n = workers * nodes;
    if (report->gpu_workers_n > gpus && conf_i64(r->conf, CONF_BACKEND) == CONF_BACKEND_NCCL)
        return FAIL(ST_BAD_SETTING,
                    "BACKEND=nccl (%s): %d nodes of %d workers would share %d GPUs, and %s "
                    "refuses two ranks on one GPU; use BACKEND=auto, or fewer nodes or workers",
                    conf_source(r->conf, CONF_BACKEND), nodes, workers, gpus, nccl_lib_name());
    for (int node = 0; node < nodes; node++) {
        for (int i = 0; i < workers && i < gpus; i++)
            add_gpu(r->gpus[node], visible, (node * workers + i) % gpus);
        r->gpus_of[node] = r->gpus[node];
    }
    return ST_OK;
}

static enum status read_settings(struct rehearse *r)
{
    struct rehearse_report *report = &r->report;
    int64_t every = conf_i64(r->conf, CONF_CHECKPOINT_EVERY);
    report->seed = conf_i64(r->conf, CONF_SEED);
    report->duration_ms = conf_i64(r->conf, CONF_DURATION);
    r->checkpoint_every = every > 0 ? every : CHECKPOINT_EVERY_DEFAULT;
    TRY(read_nodes(r->conf, &report->nodes_n));
    TRY(read_mix(r->conf, &report->mix));
    r->is_mix_asked = conf_text(r->conf, CONF_FAULT_MIX)[0] != 0;
    if (conf_is_set(r->conf, CONF_FAULT))
        return FAIL(ST_BAD_SETTING,
                    "FAULT (%s) is for `convoy train`; a rehearsal makes the "
                    "faults of FAULT_MIX: leave FAULT out",
                    conf_source(r->conf, CONF_FAULT));
    TRY(read_every(r->conf, report->duration_ms, &report->every_ms));
    if (report->mix.weight[REHEARSE_KIND_FLIP] > 0 && conf_i64(r->conf, CONF_SENTINEL_EVERY) == 0) {
        /* A flipped bit is found only by comparisons. */
        const int64_t apart = r->checkpoint_every / COMPARISONS;
        report->sentinel_every = apart > 0 ? apart : 1;
    }
    char why[300];
    if (report->mix.weight[REHEARSE_KIND_CUT] == 0)
        return ST_OK;
    if (is_fetched(r->conf))
        return leave_out(r, REHEARSE_KIND_CUT,
                         "nodes whose cables are cut reach no other machine, but the data are on "
                         "another one: use a file of this machine");
    if (rehearse_net_try() == ST_OK)
        return ST_OK;
    text_format(why, sizeof why,
                "needs network namespaces (%s): run it as root, in a container with "
                "CAP_SYS_ADMIN and CAP_NET_ADMIN",
                status_message());
    return leave_out(r, REHEARSE_KIND_CUT, why);
}

/* ---- settings of a node ---- */

static void add_word(struct rehearse *r, const char *name, const char *value)
{
    char *word = r->word[r->words_n];
    text_format(word, sizeof r->word[0], "%s=%s", name, value);
    r->words[r->words_n++] = word;
}

static void add_number(struct rehearse *r, const char *name, int64_t value)
{
    char text[32];
    text_format(text, sizeof text, "%lld", (long long)value);
    add_word(r, name, text);
}

/* add_path — adds a setting whose value is a file or folder in the scratch folder. */
static void add_path(struct rehearse *r, const char *name, const char *file)
{
    char path[FILE_PATH_MAX + 32];
    text_format(path, sizeof path, "%s/%s", r->scratch.path, file);
    add_word(r, name, path);
}

static bool is_free(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is = fd >= 0 && bind(fd, (const struct sockaddr *)&to, sizeof to) == 0;
    if (fd >= 0)
        close(fd);
    return is;
}

static enum status find_port(int *out)
{
    uint32_t at = 0;
    for (int i = 0; i < PORT_TRIES; i++) {
        if (getrandom(&at, sizeof at, 0) == (ssize_t)sizeof at &&
            is_free(*out = PORT_FIRST + (int)(at % PORTS_N)))
            return ST_OK;
    }
    return FAIL(ST_RETRY, "no free port was found on 127.0.0.1");
}

static const char *folder_of(bool is_calm) { return is_calm ? "calm" : "faulty"; }

static const char *metrics_of(bool is_calm) { return is_calm ? "calm.jsonl" : "faulty.jsonl"; }

static enum status add_words(struct rehearse *r, bool is_calm)
{
    int port = 0;
    r->words_n = 0;
    TRY(find_port(&port));
    add_number(r, "N_NODES", r->report.nodes_n);
    char address[32] = "127.0.0.1";
    if (r->net.nodes_n > 0)
        rehearse_net_address(0, address, sizeof address);
    add_word(r, "MASTER_ADDR", address);
    add_number(r, "MASTER_PORT", port);
    add_path(r, "JOB_TOKEN_FILE", "token");
    add_path(r, "CHECKPOINT_DIR", folder_of(is_calm));
    add_path(r, "METRICS_FILE", metrics_of(is_calm));
    add_number(r, "CHECKPOINT_EVERY", r->checkpoint_every);
    add_number(r, "STATUS_PORT", 0);
    if (conf_i64(r->conf, CONF_LOG_LEVEL) != CONF_LOG_LEVEL_DEBUG)
        add_word(r, "LOG_LEVEL", "error");
    if (r->report.sentinel_every > 0)
        add_number(r, "SENTINEL_EVERY", r->report.sentinel_every);
    if (conf_is_set(r->conf, CONF_TENSORBOARD_DIR))
        add_path(r, "TENSORBOARD_DIR", "tensorboard");
    /* Without these settings the user's job would end immediately, or after few faults. */
    if (!conf_is_set(r->conf, CONF_MAX_RESTARTS))
        add_number(r, "MAX_RESTARTS", 1000);
    if (conf_i64(r->conf, CONF_STEPS) == 0 &&
        strcmp(conf_text(r->conf, CONF_DATA), "synthetic") == 0)
        add_number(r, "STEPS", STEPS_ENDLESS);
    return ST_OK;
}

/* ---- the two runs ---- */

static enum status run_one(struct rehearse *r, bool is_calm, int64_t goal)
{
    TRY(add_words(r, is_calm));
    const struct rehearse_run_config config = {
        .nodes = {.nodes_n = r->report.nodes_n,
                  .args_n = r->args_n,
                  .args = r->args,
                  .words_n = r->words_n,
                  .words = r->words,
                  .gpus = r->report.gpus_n > 0 ? r->gpus_of : NULL,
                  .visible = r->visible,
                  .namespaces = r->net.nodes_n > 0 ? r->net.namespace_fd : NULL},
        .seed = (uint64_t)r->report.seed,
        .mix = is_calm ? (struct rehearse_mix){.total = 0} : r->report.mix,
        .every_ms = r->report.every_ms,
        .duration_ms = r->report.duration_ms,
        .checkpoint_every = r->checkpoint_every,
        .last_step = !is_calm && r->report.calm->is_complete ? r->report.calm->steps : 0,
        .wants_flip = r->is_mix_asked && r->report.mix.weight[REHEARSE_KIND_FLIP] > 0,
        .goal = goal,
        .heal_ms = HEAL_MS + 2 * conf_i64(r->conf, CONF_PEER_TIMEOUT) +
                   2 * conf_i64(r->conf, CONF_STEP_TIMEOUT),
        .signalled = &signalled,
    };
    return rehearse_run(&config, is_calm ? r->report.calm : r->report.faulty);
}

static enum status audit_ledger(struct rehearse *r, bool is_calm)
{
    char path[FILE_PATH_MAX + 64];
    text_format(path, sizeof path, "%s/%s/" LEDGER_NAME, r->scratch.path, folder_of(is_calm));
    return ledger_audit(path, is_calm ? &r->calm : &r->faulty);
}

/* run_calm — runs the job without faults. If the job fails, the command fails with the status of
 * `train`. */
static enum status run_calm(struct rehearse *r, int64_t *goal_out)
{
    struct rehearse_result *calm = r->report.calm;
    LOG_INFO("training without faults on %d nodes of this machine for %s", r->report.nodes_n,
             conf_text(r->conf, CONF_DURATION));
    TRY(run_one(r, true, 0));
    if (calm->problem[0] != 0)
        return FAIL(calm->job == ST_OK ? ST_RETRY : calm->job, "without a fault: %s",
                    calm->problem);
    if (r->report.mix.weight[REHEARSE_KIND_FLIP] > 0 && calm->no_flip[0] != 0)
        TRY(leave_out(r, REHEARSE_KIND_FLIP, calm->no_flip));
    if (r->report.mix.weight[REHEARSE_KIND_FLIP] == 0)
        r->report.sentinel_every = 0;
    TRY(audit_ledger(r, true));
    *goal_out = calm->is_complete ? 0 : calm->steps / r->checkpoint_every * r->checkpoint_every;
    if (!calm->is_complete && *goal_out == 0)
        return FAIL(ST_BAD_SETTING,
                    "%lld steps in %s, and a checkpoint every %lld steps: no checkpoint to "
                    "compare; raise DURATION or lower CHECKPOINT_EVERY",
                    (long long)calm->steps, conf_text(r->conf, CONF_DURATION),
                    (long long)r->checkpoint_every);
    return ST_OK;
}

static enum status run_faulty(struct rehearse *r, int64_t goal)
{
    char path[FILE_PATH_MAX];
    TRY(file_join(path, sizeof path, r->scratch.path, folder_of(true)));
    /* its ledger has been read, and the second run needs the disk space */
    TRY(file_remove_tree(path));
    if (r->report.mix.weight[REHEARSE_KIND_CUT] > 0)
        TRY(rehearse_net_open(r->report.nodes_n, &r->net));
    LOG_INFO("the same training with a fault every %g s", (double)r->report.every_ms / 1000);
    TRY(run_one(r, false, goal));
    if (audit_ledger(r, false) != ST_OK && r->report.faulty->problem[0] == 0)
        text_copy(r->report.problem, sizeof r->report.problem, status_message());
    status_clear();
    return ST_OK;
}

/* ---- the result ---- */

/* is_named — returns true if every changed bit was attributed to the right worker. */
static bool is_named(const struct rehearse_result *r)
{
    for (int i = 0; i < r->outcomes_n; i++)
        if (r->outcome[i].kind == REHEARSE_KIND_FLIP && r->outcome[i].named != REHEARSE_NAMED_RIGHT)
            return false;
    return true;
}

/* repeats_bits — returns true if a step that is done again has the same bits. Without EXACT=layout
 * fewer nodes add in another order. */
static bool repeats_bits(const struct rehearse *r)
{
    cJSON *provenance = NULL;
    if (json_parse(r->calm.provenance, strlen(r->calm.provenance), LEDGER_NAME, &provenance) !=
        ST_OK)
        status_clear();
    const bool is_exact = cJSON_IsTrue(cJSON_GetObjectItem(provenance, "exact")),
               shrinks = conf_i64(r->conf, CONF_ON_LOSS) == CONF_ON_LOSS_SHRINK &&
                         conf_i64(r->conf, CONF_EXACT) != CONF_EXACT_LAYOUT;
    cJSON_Delete(provenance);
    return is_exact && !shrinks;
}

static enum status compare_losses(struct rehearse *r)
{
    char calm[FILE_PATH_MAX], faulty[FILE_PATH_MAX];
    TRY(file_join(calm, sizeof calm, r->scratch.path, metrics_of(true)));
    TRY(file_join(faulty, sizeof faulty, r->scratch.path, metrics_of(false)));
    return rehearse_losses_compare(calm, faulty, &r->report.losses);
}

/* judge_results — returns the first problem of the weights, or of the losses if the job does not
 * repeat its bits; "": none. */
static const char *judge_results(const struct rehearse_report *report)
{
    if (!report->is_exact)
        return report->losses.compared_n == 0 ? "no step is in both runs: raise DURATION"
               : report->losses.worst <= LOSSES_APART
                   ? ""
                   : "the losses differ from the losses of the calm run by more than rounding";
    if (report->compared_n == 0)
        return "no checkpoint is in both runs: raise DURATION or lower CHECKPOINT_EVERY";
    return report->is_equal ? "" : "the weights differ from the weights of the calm run";
}

static void judge_report(struct rehearse_report *report, const struct ledger_audit *faulty)
{
    const char *problem = "";
    report->is_whole = faulty->steps[LEDGER_OUTCOME_APPLIED] > 0 && faulty->problem[0] == 0;
    if (report->problem[0] != 0)
        return;
    if (report->faulty->problem[0] != 0)
        problem = report->faulty->problem;
    else if (!report->is_whole)
        problem = faulty->problem[0] ? faulty->problem : "the run left no step in its ledger";
    else if (judge_results(report)[0] != 0)
        problem = judge_results(report);
    else if (!is_named(report->faulty))
        problem = "a bit changed in a worker, but another worker or none was named";
    else if (report->faulty->outcomes_n == 0)
        problem = "no fault was made: raise DURATION or lower FAULT_EVERY";
    text_copy(report->problem, sizeof report->problem, problem);
}

static enum status run_both(struct rehearse *r)
{
    int64_t goal = 0;
    /* A secret that only the nodes of this rehearsal use. */
    uint8_t bytes[16];
    char hex[40] = "", path[FILE_PATH_MAX];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return FAIL(ST_RETRY, "cannot read random numbers from the system: %s", strerror(errno));
    text_hex(bytes, sizeof bytes, hex);
    TRY(file_join(path, sizeof path, r->scratch.path, "token"));
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return FAIL(ST_STORE, "cannot write %s: %s", path, strerror(errno));
    enum status st = file_write_at(fd, path, hex, strlen(hex), 0);
    close(fd);
    TRY(st);
    TRY(run_calm(r, &goal));
    TRY(run_faulty(r, goal));
    /* Compare the checkpoints of the same steps; both lists are in order. */
    r->report.is_equal = true;
    for (int i = 0, k = 0; i < r->calm.checkpoints_n && k < r->faulty.checkpoints_n;) {
        const struct ledger_checkpoint *a = &r->calm.checkpoint[i], *b = &r->faulty.checkpoint[k];
        i += a->step <= b->step, k += b->step <= a->step;
        if (a->step != b->step)
            continue;
        r->report.compared_n++;
        r->report.compared_step = a->step;
        r->report.calm_weights = a->weights, r->report.faulty_weights = b->weights;
        r->report.is_equal = r->report.is_equal && a->weights == b->weights;
    }
    r->report.is_exact = repeats_bits(r);
    TRY(compare_losses(r));
    judge_report(&r->report, &r->faulty);
    struct text out = {0};
    rehearse_report_write(&r->report, conf_i64(r->conf, CONF_JSON) != 0, &out);
    TRY(print_text(&out));
    return r->report.problem[0] == 0 ? ST_OK : FAIL(ST_UNHEALTHY, "%s", r->report.problem);
}

/* ---- the folder ---- */

/* remove_later — the process that removes the folder when all holders of the pipe have ended. */
static _Noreturn void remove_later(const char *path, int fd)
{
    char byte;
    process_ignore_stops();
    setsid();
    fd = dup2(fd, STDIN_FILENO);
    close_range(STDERR_FILENO + 1, ~0u, 0);
    /* a reader of stdout must not wait for this process */
    dup2(open("/dev/null", O_RDWR), STDERR_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    do {
        errno = 0;
    } while (read(fd, &byte, 1) > 0 || errno == EINTR);
    for (int i = 0; i < REMOVE_TRIES && file_remove_tree(path) != ST_OK; i++)
        clock_sleep_ms(REMOVE_WAIT_MS);
    _exit(0);
}

static enum status start_remover(struct scratch *s)
{
    int ends[2];
    if (pipe(ends) != 0)
        return FAIL(ST_RETRY, "cannot open a pipe: %s; raise the limit (ulimit -n)",
                    strerror(errno));
    s->remover = fork();
    if (s->remover == 0) {
        close(ends[1]);
        remove_later(s->path, ends[0]);
    }
    close(ends[0]);
    s->hold_fd = ends[1];
    if (s->remover > 0)
        return ST_OK;
    close(ends[1]);
    s->remover = 0;
    return FAIL(ST_RETRY, "cannot start a process: %s; raise the limit (ulimit -u)",
                strerror(errno));
}

/* open_scratch — creates PREFIX-XXXXXX, which only this user can access. */
static enum status open_scratch(const char *prefix, struct scratch *out)
{
    *out = (struct scratch){.hold_fd = -1};
    if (!text_format(out->path, sizeof out->path, "%s-XXXXXX", prefix) ||
        mkdtemp(out->path) == NULL)
        return FAIL(ST_STORE,
                    "cannot make the folder %s: %s; set CHECKPOINT_DIR or TMPDIR to a folder that "
                    "can be written",
                    out->path, strerror(errno));
    enum status st = start_remover(out);
    if (st != ST_OK)
        rmdir(out->path);
    return st;
}

/* close_scratch — waits until the other holders have ended and the folder is removed. Accepts a
 * folder that was not opened. */
static void close_scratch(struct scratch *scratch)
{
    if (scratch->remover <= 0)
        return;
    close(scratch->hold_fd);
    while (waitpid(scratch->remover, NULL, 0) < 0 && errno == EINTR)
        ;
    scratch->remover = 0;
}

/* ---- begin and end ---- */

static enum status run_rehearsal(struct rehearse *r, int argc, char **argv, char **environment)
{
    TRY(read_settings(r));
    TRY(divide_gpus(r, environment));
    /* The user's words without the secret: the nodes have a secret of their own. */
    r->args = memory_new((size_t)argc + 1, sizeof *r->args);
    r->report.calm = memory_new(1, sizeof *r->report.calm);
    r->report.faulty = memory_new(1, sizeof *r->report.faulty);
    for (int i = 0; i < argc; i++)
        if (!text_starts(argv[i], "JOB_TOKEN"))
            r->args[r->args_n++] = argv[i];
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = on_signal}, before;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
    /* Next to CHECKPOINT_DIR, on the disk that the job will use, or in TMPDIR. */
    char prefix[FILE_PATH_MAX];
    const char *dir = conf_text(r->conf, CONF_CHECKPOINT_DIR),
               *temporary = launcher_find(environment, "TMPDIR");
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    if (dir[0] != 0)
        text_format(prefix, sizeof prefix, "%.*s.rehearse", (int)n, dir);
    else
        text_format(prefix, sizeof prefix, "%s/convoy-rehearse",
                    temporary != NULL && temporary[0] != 0 ? temporary : "/tmp");
    TRY(open_scratch(prefix, &r->scratch));
    return run_both(r);
}

enum status rehearse_main(const struct conf *conf, int argc, char **argv, char **environment)
{
    struct rehearse *r = memory_new(1, sizeof *r);
    r->conf = conf;
    r->scratch.hold_fd = -1;
    enum status st = run_rehearsal(r, argc, argv, environment);
    rehearse_net_close(&r->net);
    close_scratch(&r->scratch);
    ledger_audit_free(&r->calm);
    ledger_audit_free(&r->faulty);
    free(r->report.calm);
    free(r->report.faulty);
    free(r->args);
    free(r);
    return st;
}
