/* main — the table of commands: the only file that includes every module, and the only one that
 * ends the process.
 *
 * It reads the settings once, calls the command's function, prints the one sentence of a failure
 * and turns the status into an exit code. Must not do the work of any command. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/board.h"
#include "base/file.h"
#include "base/log.h"
#include "base/secure.h"
#include "base/program.h"
#include "base/text.h"
#include "base/version.h"
#include "check/report/report.h"
#include "conf/conf.h"
#include "conf/launcher.h"
#include "plan/plan_cluster.h"
#include "serve/metrics.h"
#include "serve/report.h"
#include "serve/status_client.h"
#include "node/bucket/bucket_export.h"
#include "node/bucket/bucket_fetch.h"
#include "node/command.h"
#include "node/process/crash.h"
#include "node/choose/device.h"
#include "node/choose/config_map.h"
#include "node/choose/sources.h"
#include "node/supervisor/linger.h"
#include "node/process/process.h"
#include "node/process/print.h"
#include "node/process/slurm.h"

/* One call of the program: the arguments after the command, and the settings if the command needs
 * them. */
struct call {
    int argc;
    char **argv;
    const char *word; /* the word before the settings; "": none */
    char **words;     /* for view: the words before the settings */
    int words_n;
    struct conf *conf;
};

struct command {
    const char *name;
    const char *words; /* the command with its arguments, for help */
    const char *help;  /* NULL: only Convoy itself uses it */
    bool has_settings; /* reads NAME=VALUE arguments and the environment */
    bool has_word;     /* its arguments may begin with a word that is not a setting */
    bool is_job;       /* uses every setting, as training does */
    enum status (*run)(const struct call *call);
};

static enum status run_train(const struct call *call);
static enum status run_check(const struct call *call);
static enum status run_worker(const struct call *call);
static enum status run_tokenize(const struct call *call);
static enum status run_train_tokenizer(const struct call *call);
static enum status run_generate(const struct call *call);
static enum status run_chat(const struct call *call);
static enum status run_import(const struct call *call);
static enum status run_export(const struct call *call);
static enum status run_eval(const struct call *call);
static enum status run_bench(const struct call *call);
static enum status run_plan(const struct call *call);
static enum status run_rehearse(const struct call *call);
static enum status run_status(const struct call *call);
static enum status run_view(const struct call *call);
static enum status run_verify(const struct call *call);
static enum status run_config(const struct call *call);
static enum status run_version(const struct call *call);
static enum status run_help(const struct call *call);

static const struct command commands[] = {
    {"train", "train [NAME=VALUE ...]",
     "train a model, with checkpoints and a status page; resumes a run", true, false, true,
     run_train},
    {"check", "check [NAME=VALUE ...]",
     "check this node, or N_NODES nodes and the links between them", true, false, true, run_check},
    {"worker", "worker I [NAME=VALUE ...]", NULL, true, true, true, run_worker},
    {"tokenize", "tokenize DATA=... OUT=...",
     "convert a text to a token file (llm.c .bin), for DATA", true, false, false, run_tokenize},
    {"train-tokenizer", "train-tokenizer DATA=... OUT=...",
     "make a tokenizer of VOCAB tokens from a text, for TOKENIZER", true, false, false,
     run_train_tokenizer},
    {"generate", "generate [NAME=VALUE ...]",
     "continue PROMPT with a checkpoint, Hugging Face folder or GGUF file", true, false, false,
     run_generate},
    {"chat", "chat [NAME=VALUE ...]",
     "answer PROMPT, or the lines that you type, with a chat model", true, false, false, run_chat},
    {"import", "import FROM=... TO=...",
     "make a checkpoint from a Hugging Face folder, GGUF or llm.c file", true, false, false,
     run_import},
    {"export", "export FROM=... TO=...", "write a checkpoint as a Hugging Face folder", true, false,
     false, run_export},
    {"eval", "eval VAL_DATA=... [...]",
     "measure loss and perplexity, or exact match and F1 of a QA model", true, false, false,
     run_eval},
    {"bench", "bench [NAME=VALUE ...]",
     "measure and check collectives between N_GPU_EACH_NODE workers", true, false, false,
     run_bench},
    {"plan", "plan CLUSTER=... [...]", "compute memory, time and cost of a training; needs no GPU",
     true, false, true, run_plan},
    {"rehearse", "rehearse [NAME=VALUE ...]",
     "run N_NODES nodes on this machine, let them fail, and report", true, false, true,
     run_rehearse},
    {"status", "status [URL|DIR] [JSON=1]",
     "show the run of this node, at URL or in DIR; exit code 0: healthy", true, true, false,
     run_status},
    {"view", "view DIR [DIR ...]", "show the page of stored runs; several runs are compared", true,
     false, false, run_view},
    {"verify", "verify DIR [JSON=1]",
     "audit the samples and the weights of a run; exit code 0: no fault", true, true, false,
     run_verify},
    {"config", "config [NAME=VALUE ...]",
     "show every setting with its value and source; JSON=1 for programs", true, false, true,
     run_config},
    {"version", "version [gpu]",
     "show release, commit and libraries; gpu: the NVIDIA libraries found", false, false, false,
     run_version},
    {"help", "help [WORD]", "show the help of a topic, a command or a setting", false, false, false,
     run_help},
};
#define COMMANDS_N (sizeof commands / sizeof commands[0])

/* ---- help ---- */

/* is_decorated — returns true if bold and colours may be printed: on a terminal that supports them,
 * unless NO_COLOR is set. */
static bool is_decorated(void)
{
    return isatty(STDOUT_FILENO) && !conf_is_dumb(environ) &&
           launcher_find(environ, "NO_COLOR") == NULL;
}

static const struct command *command_named(const char *name)
{
    for (size_t i = 0; i < COMMANDS_N; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static const char *nearest_command(const char *name)
{
    const char *best = NULL;
    int best_distance = 3;
    for (size_t i = 0; i < COMMANDS_N; i++) {
        int distance =
            commands[i].help == NULL ? best_distance : text_distance(name, commands[i].name);
        if (distance < best_distance && distance < (int)strlen(name)) {
            best_distance = distance;
            best = commands[i].name;
        }
    }
    return best;
}

/* ---- help, version, config ---- */

/* write_usage — writes one screen: the commands, and the words for which help prints more. */
static void write_usage(struct text *out, bool is_bold)
{
    const char *on = is_bold ? "\033[1m" : "", *off = is_bold ? "\033[0m" : "";
    text_add(out,
             "%sUsage%s: convoy [COMMAND] [NAME=VALUE ...]   (default command: train)\n\n"
             "%sCommands%s\n",
             on, off, on, off);
    for (size_t i = 0; i < COMMANDS_N; i++)
        if (commands[i].help != NULL)
            text_add(out, "  %-26s  %s\n", commands[i].words, commands[i].help);
    text_add(out, "\n%sMore%s with `convoy help WORD`\n ", on, off);
    for (int i = 0; conf_row_topic(i) != NULL; i++)
        text_add(out, " %s", conf_row_topic(i));
    text_add(out, ": settings of one kind\n"
                  "  settings: all; exit-codes; man; bash, zsh, fish: completion; a command or "
                  "setting: BATCH_SIZE …\n");
}

static void write_settings(struct text *out, bool is_bold)
{
    const char *on = is_bold ? "\033[1m" : "", *off = is_bold ? "\033[0m" : "";
    text_add(out,
             "%sSettings%s: environment variables, or NAME=VALUE arguments, which override them.\n"
             "Each row: name, default, meaning. `convoy help NAME` shows one setting in full.\n",
             on, off);
    conf_write_help(out, is_bold);
    text_add(out, "\nOMP_NUM_THREADS limits the number of threads.\n");
}

/* write_…_markdown — docs/exit-codes.md, docs/settings.md and docs/status.md; `make docs` writes
 * them. */
static void write_exit_codes_markdown(struct text *out)
{
    text_add(out,
             "# Exit codes\n\n"
             "`make docs` writes this page from `src/base/status.h`; a test compares them. The "
             "codes follow sysexits.h, so that schedulers can react to them. Tests cause each "
             "code.\n\n"
             "| code | name | meaning |\n|---|---|---|\n");
    for (int st = 0; st < STATUS_N; st++)
        text_add(out, "| %d | %s | %s |\n", status_exit_code((enum status)st),
                 status_name((enum status)st), status_text((enum status)st));
}

/* write_settings_markdown — writes docs/settings.md, for `make docs`. */
static void write_settings_markdown(struct text *out)
{
    text_add(out,
             "# Settings\n\n"
             "`make docs` writes this page from `src/conf/conf.def`; a test compares them. A "
             "setting is an environment variable or a `NAME=VALUE` argument; an argument "
             "overrides a variable. If a name is mistyped, the error contains the nearest right "
             "name; if a value is out of bounds, it contains the bounds. `convoy config` shows "
             "every value and its source. Hooks of tests and debuggers are in "
             "[testing.md](testing.md#hooks).\n\n"
             "- Column nodes: *same* marks a setting that needs one value on all nodes of a run.\n"
             "- Column decides: the part of a run that the setting decides: the *model*, the "
             "*data*, the *losses* (checkpoints record the value, and a run that continues with "
             "another value reports this), *rounding* (only the order or precision of sums), or "
             "the *length* of the run.\n"
             "- Column commands: the commands that use the setting. *job* stands for `train`, "
             "`check`, `plan` and `rehearse`, and *all* for every command. The help page of each "
             "other command in the column lists the setting (`convoy help train`).\n");
    conf_write_markdown(out);
    text_add(out,
             "## Settings that exclude each other\n\n"
             "From `src/conf/conf_pairs.def`. A run with such a pair is refused with 78 before "
             "any file is opened. The message contains both settings, their sources, and the "
             "last column.\n\n");
    conf_write_pairs_markdown(out);
}

static void write_status_markdown(struct text *out)
{
    struct text check = {0};
    text_add(out, "# Status and metrics\n\n"
                  "`make docs` writes this page from the code of the answers; tests compare them. "
                  "[observability.md](observability.md#members-and-metrics) explains it.\n\n"
                  "## Members of `/status`\n\n");
    report_write_markdown(out);
    text_add(out, "\n## Metrics of `/metrics`\n\n");
    check_prometheus_example(&check);
    metrics_write_markdown(check.data, out);
    text_free(&check);
}

/* write_generated — the man page or a shell's completion; false: topic is neither. */
static bool write_generated(const char *topic, struct text *out)
{
    struct help_command list[COMMANDS_N];
    for (size_t i = 0; i < COMMANDS_N; i++)
        list[i] = (struct help_command){commands[i].name, commands[i].words, commands[i].help};
    if (strcmp(topic, "man") != 0)
        return help_completion(topic, list, COMMANDS_N, out);
    help_man_page(list, COMMANDS_N, out);
    return true;
}

static enum status run_help(const struct call *call)
{
    struct text out = {0};
    const char *topic = call->argc > 0 ? call->argv[0] : "";
    const struct command *command = command_named(topic);
    if (call->argc > 1)
        return FAIL(ST_USAGE, "help accepts one word, not %d; try `convoy help %.64s`", call->argc,
                    topic);
    if (topic[0] == 0)
        write_usage(&out, is_decorated());
    else if (strcmp(topic, "settings") == 0)
        write_settings(&out, is_decorated());
    else if (strcmp(topic, "exit-codes") == 0) {
        for (int st = 0; st < STATUS_N; st++)
            text_add(&out, "%3d  %-12s  %s\n", status_exit_code((enum status)st),
                     status_name((enum status)st), status_text((enum status)st));
    } else if (strcmp(topic, "settings-markdown") == 0)
        write_settings_markdown(&out);
    else if (strcmp(topic, "status-markdown") == 0)
        write_status_markdown(&out);
    else if (strcmp(topic, "hooks-markdown") == 0)
        conf_write_hooks_markdown(&out);
    else if (strcmp(topic, "exit-codes-markdown") == 0)
        write_exit_codes_markdown(&out);
    else if (command != NULL && command->help != NULL)
        text_add(&out, "convoy %s\n  %s\n", command->words, command->help),
            help_examples(topic, &out);
    else if (!conf_write_topic(topic, &out, is_decorated()) && !write_generated(topic, &out) &&
             !conf_write_setting(topic, &out)) {
        const char *nearest = nearest_command(topic);
        for (int i = 0; nearest == NULL && conf_row_topic(i) != NULL; i++)
            if (text_distance(topic, conf_row_topic(i)) < 3)
                nearest = conf_row_topic(i);
        nearest = nearest != NULL ? nearest : conf_hint_nearest(topic);
        return FAIL(
            ST_USAGE, "no help for %.64s: it is neither a topic, a command nor a setting%s%s%s",
            topic, nearest != NULL ? "; did you mean " : "",
            nearest != NULL ? nearest : "; `convoy help` lists them", nearest != NULL ? "?" : "");
    }
    return print_text(&out);
}

static enum status run_version(const struct call *call)
{
    struct text out = {0};
    bool is_gpu = call->argc == 1 && strcmp(call->argv[0], "gpu") == 0;
    if (call->argc > 0 && !is_gpu)
        return FAIL(ST_USAGE, "version accepts only the word gpu, not %.64s", call->argv[0]);
    library_list_write(is_gpu, &out);
    return print_text(&out);
}

/* settle_workers — sets one worker for each GPU if N_GPU_EACH_NODE is not set. */
static enum status settle_workers(struct conf *conf)
{
    return conf_is_set(conf, CONF_N_GPU_EACH_NODE)
               ? ST_OK
               : conf_set_workers(conf, device_workers(conf), environ);
}

static enum status run_config(const struct call *call)
{
    struct text out = {0};
    TRY(settle_workers(call->conf));
    if (conf_i64(call->conf, CONF_JSON) != 0)
        conf_write_json(call->conf, &out);
    else
        conf_write_table(call->conf, &out);
    return print_text(&out);
}

/* clang-format off */
#define IS_LOG_LEVEL(row, value, word) CONF_CHOICE_IS(CONF_##row##_##value, LOG_LEVEL_##value)
CONF_LOG_LEVEL_LIST(IS_LOG_LEVEL)
/* clang-format on */

/* begin_log — starts the log with its settings. rank: -1 if this process is not a worker, or if it
 * is the only one. */
static void begin_log(const struct conf *conf, int rank)
{
    bool is_alone = conf_i64(conf, CONF_N_NODES) == 1;
    log_init(&(struct log_config){
        .level = (enum log_level)conf_i64(conf, CONF_LOG_LEVEL),
        .json = conf_i64(conf, CONF_LOG_FORMAT) == CONF_LOG_FORMAT_JSON,
        .node_id = is_alone ? -1 : (int)conf_i64(conf, CONF_NODE_ID),
        .rank = rank,
        .run = conf_text(conf, CONF_RUN_NAME),
        .is_dumb = conf_is_dumb(environ),
    });
}

/* ---- commands of other modules ---- */

/* fetch_checkpoints — downloads the checkpoints that a command reads, if its settings are names of
 * a bucket. */
static enum status fetch_checkpoints(struct conf *conf)
{
    TRY(config_map_cache(conf));
    TRY(bucket_fetch_setting(conf, CONF_CHECKPOINT_DIR, false, NULL, NULL));
    return bucket_fetch_setting(conf, CONF_FROM, false, NULL, NULL);
}

/* run_job — runs a command that starts workers. It passes the number of GPUs found here to them as
 * one more argument, so that not every worker must count the GPUs with the driver. */
static enum status run_job(const struct call *call,
                           enum status (*run)(const struct conf *conf, int argc, char **argv))
{
    char word[32];
    int n = call->argc;
    int64_t before = conf_i64(call->conf, CONF_N_GPU_EACH_NODE);
    slurm_warn(environ, conf_i64(call->conf, CONF_DEVICE) != CONF_DEVICE_CPU);
    TRY(settle_workers(call->conf));
    char **words = calloc((size_t)n + 2, sizeof *words);
    if (words == NULL)
        return FAIL(ST_RETRY, "out of memory: %d words", n + 1);
    memcpy(words, call->argv, (size_t)n * sizeof *words);
    text_format(word, sizeof word, "N_GPU_EACH_NODE=%s",
                conf_text(call->conf, CONF_N_GPU_EACH_NODE));
    if (conf_i64(call->conf, CONF_N_GPU_EACH_NODE) != before)
        words[n++] = word;
    enum status st = run(call->conf, n, words);
    free(words);
    return st;
}

static enum status run_train(const struct call *call)
{
    TRY(conf_rules_check_missing(call->conf, true));
    if (conf_i64(call->conf, CONF_MESH) == CONF_MESH_AUTO)
        return FAIL(
            ST_BAD_SETTING,
            "MESH=auto (%s) is for `convoy plan`: leave it out, and set the mesh that it shows",
            conf_source(call->conf, CONF_MESH));
    TRY(config_map_cache(call->conf));
    TRY(bucket_fetch_map(call->conf));
    if (conf_i64(call->conf, CONF_NODE_ID) == 0)
        sources_find_local(call->conf);
    return run_job(call, supervisor_main);
}

static enum status run_rehearse(const struct call *call)
{
    if (conf_text(call->conf, CONF_DATA)[0] == 0)
        return FAIL(ST_BAD_SETTING, "DATA is not set: set it to the training data (`convoy help "
                                    "DATA`); DATA=synthetic trains on random tokens");
    TRY(config_map_cache(call->conf));
    TRY(bucket_fetch_map(call->conf));
    return rehearse_main(call->conf, call->argc, call->argv, environ);
}

static enum status run_check(const struct call *call)
{
    if (conf_is_set(call->conf, CONF_CHECK) && conf_i64(call->conf, CONF_CHECK) == CONF_CHECK_OFF)
        return FAIL(ST_BAD_SETTING,
                    "CHECK=off (%s) is for `convoy train`: leave it out, or set CHECK=quick, "
                    "standard or full",
                    conf_source(call->conf, CONF_CHECK));
    TRY(conf_rules_check_missing(call->conf, false));
    TRY(config_map_cache(call->conf));
    TRY(bucket_fetch_map(call->conf));
    return run_job(call, supervisor_check_main);
}

static enum status run_worker(const struct call *call)
{
    int64_t worker_i = 0;
    if (text_parse_i64(call->word, 0, BOARD_WORKERS_MAX - 1, &worker_i) != TEXT_OK)
        return FAIL(ST_USAGE, "only `convoy train` starts workers");
    if (conf_ranks(call->conf) > 1)
        begin_log(call->conf, (int)(conf_i64(call->conf, CONF_NODE_ID) *
                                        conf_i64(call->conf, CONF_N_GPU_EACH_NODE) +
                                    worker_i));
    TRY(bucket_fetch_map(call->conf));
    return worker_main(call->conf, (int)worker_i);
}

static enum status run_tokenize(const struct call *call)
{
    TRY(config_map_cache(call->conf));
    TRY(fetch_checkpoints(call->conf));
    TRY(sources_find_for_command(call->conf, false));
    return tokenize_main(call->conf);
}

static enum status run_train_tokenizer(const struct call *call)
{
    TRY(config_map_cache(call->conf));
    return train_tokenizer_main(call->conf);
}

static enum status run_chat(const struct call *call)
{
    conf_log_unused(call->conf, "chat");
    TRY(fetch_checkpoints(call->conf));
    TRY(sources_find_for_command(call->conf, true));
    return generate_chat_main(call->conf);
}

static enum status run_generate(const struct call *call)
{
    conf_log_unused(call->conf, "generate");
    TRY(fetch_checkpoints(call->conf));
    TRY(sources_find_for_command(call->conf, true));
    return generate_main(call->conf);
}

static enum status run_import(const struct call *call)
{
    TRY(sources_find_for_command(call->conf, true));
    return import_main(call->conf);
}

static enum status run_export(const struct call *call)
{
    TRY(fetch_checkpoints(call->conf));
    TRY(sources_find_for_command(call->conf, true));
    return bucket_export(call->conf, export_main);
}

static enum status run_eval(const struct call *call)
{
    conf_log_unused(call->conf, "eval");
    TRY(config_map_cache(call->conf));
    TRY(fetch_checkpoints(call->conf));
    TRY(sources_find_for_command(call->conf, true));
    return eval_main(call->conf);
}

static enum status run_bench(const struct call *call) { return bench_main(call->conf); }

static enum status run_plan(const struct call *call)
{
    TRY(sources_find_for_command(call->conf, false));
    return plan_main(call->conf, environ);
}

static enum status run_status(const struct call *call)
{
    if (text_starts(call->word, "s3://"))
        TRY(config_map_cache(call->conf));
    if (text_starts(call->word, "s3://"))
        return checkpoint_status_bucket(call->conf, call->word);
    if (file_is_dir(call->word))
        return checkpoint_status_main(call->word, conf_i64(call->conf, CONF_JSON) != 0);
    if (call->word[0] == '/' || call->word[0] == '.')
        return FAIL(
            ST_UNHEALTHY,
            "%s is not a folder; name a run's CHECKPOINT_DIR, or a URL such as http://host:8080",
            call->word);
    int port = (int)conf_i64(call->conf, CONF_STATUS_PORT);
    if (port == 0 && call->word[0] == 0)
        return FAIL(ST_BAD_SETTING,
                    "STATUS_PORT=0 (%s) means no status server; set a port, or name a URL",
                    conf_source(call->conf, CONF_STATUS_PORT));
    /* A server that listens on one address only is not on 127.0.0.1. */
    char url[320];
    const char *addr = conf_text(call->conf, CONF_STATUS_ADDR);
    bool is_everywhere = strcmp(addr, "0.0.0.0") == 0 || strcmp(addr, "::") == 0,
         is_v6 = strchr(addr, ':') != NULL;
    text_format(url, sizeof url, is_v6 ? "http://[%s]:%d" : "http://%s:%d", addr, port);
    char *token = secure_alloc(CONF_TOKEN_BYTES);
    enum status st = token != NULL
                         ? conf_token_page(call->conf, token)
                         : FAIL(ST_RETRY, "out of memory: the token of STATUS_TOKEN_FILE");
    if (st == ST_OK)
        st = status_client_main(call->word[0] == 0 && !is_everywhere ? url : call->word, port,
                                token, conf_i64(call->conf, CONF_JSON) != 0, is_decorated());
    secure_free(token);
    return st;
}

static enum status run_view(const struct call *call)
{
    if (call->words_n == 0)
        return FAIL(ST_USAGE, "view needs a run's CHECKPOINT_DIR, such as `convoy view run1`, or "
                              "several to compare them");
    return view_runs_main(call->conf, call->words, call->words_n);
}

static enum status run_verify(const struct call *call)
{
    if (call->word[0] == 0)
        return FAIL(ST_USAGE, "verify needs a run's CHECKPOINT_DIR, such as `convoy verify run1`");
    char path[FILE_PATH_MAX];
    const bool is_bucket = text_starts(call->word, "s3://");
    if (is_bucket)
        TRY(config_map_cache(call->conf));
    if (is_bucket)
        TRY(bucket_fetch_run(call->conf, call->word, BUCKET_FETCH_ALL, path));
    return verify_main(is_bucket ? path : call->word, conf_i64(call->conf, CONF_JSON) != 0);
}

/* ---- one call ---- */

static enum status refuse_command(const char *word, const char *next)
{
    char meant[256];
    int name_n = (int)strcspn(word, "="); /* the value may be a secret */
    name_n = name_n < 64 ? name_n : 64;
    static const char *const tuning[] = {"sft", "finetune", "fine-tune", "fine_tune"};
    for (size_t i = 0; i < sizeof tuning / sizeof *tuning; i++)
        if (strcmp(word, tuning[i]) == 0)
            return FAIL(
                ST_USAGE,
                "unknown command %s; to fine-tune a model, train it from its weights: convoy train "
                "MODEL=FOLDER DATA=FILE.jsonl CHECKPOINT_DIR=run1, where FOLDER is a Hugging "
                "Face folder or a checkpoint",
                word);
    const char *nearest = word[0] != '-' ? nearest_command(word) : NULL;
    if (nearest != NULL)
        return FAIL(ST_USAGE, "unknown command %.64s; did you mean %s?", word, nearest);
    if (conf_hint_argument(word, next, meant, sizeof meant))
        return FAIL(ST_USAGE, "unknown %s %.*s; write a setting as %s",
                    word[0] == '-' ? "option" : "command", name_n, word, meant);
    return FAIL(ST_USAGE, "unknown command %.64s; `convoy help` lists them", word);
}

/* choose_command — finds the command in argv. *skip_out: number of arguments of argv up to it. */
static enum status choose_command(int argc, char **argv, const struct command **out, int *skip_out)
{
    static const struct {
        const char *word, *command;
    } options[] = {{"--help", "help"}, {"-h", "help"}, {"--version", "version"}};
    const char *name = "train";
    *skip_out = 1;
    if (argc > 1 && (strchr(argv[1], '=') == NULL || argv[1][0] == '-')) {
        name = argv[1];
        *skip_out = 2;
    }
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (strcmp(name, options[i].word) == 0)
            name = options[i].command;
    *out = command_named(name);
    return *out != NULL ? ST_OK : refuse_command(name, argc > 2 ? argv[2] : NULL);
}

/* has_wish — returns true if an argument, the environment or a launcher sets any setting except
 * NO_COLOR. */
static bool has_wish(const struct conf *conf)
{
    for (int key = 0; key < CONF_N; key++)
        if (key != CONF_NO_COLOR && conf_is_set(conf, (enum conf_key)key))
            return true;
    return false;
}

/* show_beginning — prints the first steps, for a call without arguments. */
static enum status show_beginning(const char *program)
{
    struct text out = {0};
    text_add(&out,
             "Convoy trains language models (GPT-2, Llama, Qwen, GPT-NeoX) on a text:\n\n"
             "  %s train MODEL=gpt2-mini DATA=book.txt CHECKPOINT_DIR=run1   train; watch it at "
             "http://127.0.0.1:8080/\n"
             "  %s generate CHECKPOINT_DIR=run1 PROMPT='Once upon'           write text with the "
             "trained model\n"
             "  %s train MODEL=gpt2-nano DATA=synthetic STEPS=20             try this machine "
             "on random tokens\n"
             "  %s help                                                      every command and "
             "setting\n",
             program, program, program, program);
    print_usage(&out);
    return ST_USAGE;
}

static enum status run_command(int argc, char **argv)
{
    const struct command *command = NULL;
    int skip = 0;
    TRY(choose_command(argc, argv, &command, &skip));
    struct call call = {.argc = argc - skip, .argv = argv + skip, .word = ""};
    if (call.argc > 0 && (strcmp(call.argv[0], "--help") == 0 || strcmp(call.argv[0], "-h") == 0)) {
        char *topic[] = {(char *)command->name};
        return run_help(&(struct call){.argc = 1, .argv = topic});
    }
    const char *word = call.argc > 0 ? call.argv[0] : "=";
    if (command->has_word && (strchr(word, '=') == NULL || text_starts(word, "http://") ||
                              text_starts(word, "https://"))) {
        call.word = *call.argv++;
        call.argc--;
    }
    for (call.words = call.argv; command->run == run_view && call.argc > 0; call.words_n++) {
        const char *next = call.argv[0];
        if (strchr(next, '=') != NULL && next[0] != '/' && next[0] != '.')
            break;
        call.argv++;
        call.argc--;
    }
    if (command->has_settings) {
        TRY(conf_open_for(command->is_job ? NULL : command->name, call.argc, call.argv, environ,
                          &call.conf));
        begin_log(call.conf, -1);
        TRY(process_begin(conf_i64(call.conf, CONF_DEVICE) != CONF_DEVICE_CPU));
        conf_token_forget(environ);
        /* a worker has the settings of its supervisor, which has warned already */
        if (command->help != NULL)
            conf_hint_warn(call.conf, environ);
    }
    enum status st =
        argc <= 1 && !has_wish(call.conf) ? show_beginning(argv[0]) : command->run(&call);
    conf_close(call.conf);
    return st;
}

/* is_job — returns true for the main job of a container; false for `status` (its health check) and
 * workers. */
static bool is_job(int argc, char **argv)
{
    return argc < 2 || strchr(argv[1], '=') != NULL || strcmp(argv[1], "train") == 0 ||
           strcmp(argv[1], "check") == 0;
}

int main(int argc, char **argv)
{
    /* A closed stdin, stdout or stderr must not become the number of one of the program's files or
     * sockets. /dev/null is opened read-only, so that writing to a closed stream still fails. */
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", O_RDONLY);
    program_set(argv[0]);
    /* A refused setting ends the run before begin_log, and log collectors still need JSON. */
    const char *format = launcher_find(environ, "LOG_FORMAT");
    log_init(&(struct log_config){
        .level = LOG_LEVEL_INFO,
        .json = format != NULL && strcmp(format, "json") == 0,
        .node_id = -1,
        .rank = -1,
        .is_dumb = conf_is_dumb(environ),
    });
    crash_install();
    enum status st = run_command(argc, argv);
    if (st != ST_OK && status_message()[0] != 0) {
        log_at(status_group(st) == STATUS_GROUP_STOP ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR, __FILE__,
               "%s", status_message());
        LOG_DEBUG("status %s places %s", status_name(st), status_trace());
        if (is_job(argc, argv))
            linger_write_termination(LINGER_TERMINATION_LOG, status_exit_code(st),
                                     status_message());
    }
    return status_exit_code(st);
}
