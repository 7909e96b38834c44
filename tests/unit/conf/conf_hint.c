/* conf_hint — names near a setting in the environment are warned about, others are not;
 * hostile environments. */
#define HARNESS_LOUD /* the test reads what is logged */
#include "harness.h"

#include "conf/conf.h"

/* warned — what conf_hint_warn writes to stderr about words (up to a NULL) and an environment. */
static void warned_of(const char *const *words, const char *const *environment, char *out,
                      size_t cap)
{
    char path[600];
    struct conf *conf = NULL;
    int argc = 0;
    while (words[argc] != NULL)
        argc++;
    assert_int_equal(conf_open(argc, (char **)words, (char *[]){NULL}, &conf), ST_OK);
    text_format(path, sizeof path, "%s/stderr", harness_tmpdir());
    int keep = dup(STDERR_FILENO), file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(keep >= 0 && file >= 0);
    assert_true(dup2(file, STDERR_FILENO) >= 0);
    conf_hint_warn(conf, (char **)environment);
    assert_true(dup2(keep, STDERR_FILENO) >= 0);
    ssize_t n = pread(file, out, cap - 1, 0);
    assert_true(n >= 0);
    out[n] = 0;
    close(file);
    close(keep);
    conf_close(conf);
}

static void warned(const char *const *environment, char *out, size_t cap)
{
    warned_of((const char *[]){NULL}, environment, out, cap);
}

TEST(near_names_are_told)
{
    static const struct {
        const char *variable, *meant;
    } trials[] = {
        {"N_NODE=2", "N_NODES"},
        {"BATCHSIZE=8", "BATCH_SIZE"},
        {"BATCH_SIZ=8", "BATCH_SIZE"},
        {"batch_size=8", "BATCH_SIZE"},
        {"GLOBALBATCH=8", "GLOBAL_BATCH"},
        {"CHECKPOINTS_DIR=x", "CHECKPOINT_DIR"},
        {"CHEKPIONT_DIR=x", "CHECKPOINT_DIR"},
        {"WEIGTH_DECAY=0", "WEIGHT_DECAY"},
        {"OPTIMISER=sgd", "OPTIMIZER"},
        {"EPOCH=3", "EPOCHS"},
        {"LOGLEVEL=debug", "LOG_LEVEL"},
        {"STATUS_PROT=1", "STATUS_PORT"},
        {"WARMUP_STEP=1", "WARMUP_STEPS"},
        {"SEQLEN=1", "SEQ_LEN"},
        {"MASTER_ADR=x", "MASTER_ADDR"},
        {"NODEID=1", "NODE_ID"},
        {"LRSCHEDULE=wsd", "LR_SCHEDULE"},
        {"VALDATA=x", "VAL_DATA"},
    };
    char out[4096], want[128];
    for (size_t i = 0; i < sizeof trials / sizeof trials[0]; i++) {
        warned((const char *[]){trials[i].variable, NULL}, out, sizeof out);
        text_format(want, sizeof want, "did you mean %s?", trials[i].meant);
        if (strstr(out, want) == NULL)
            fail_msg("%s: \"%s\", want %s", trials[i].variable, out, want);
    }
}

TEST(common_environments_are_quiet)
{
    static const char *const quiet[] = {
        /* a Debian login, a desktop */
        "PATH=/usr/bin",
        "HOME=/root",
        "SHELL=/bin/bash",
        "LANG=C.UTF-8",
        "LANGUAGE=en",
        "LC_ALL=C",
        "USER=root",
        "LOGNAME=root",
        "TERM=xterm",
        "PWD=/",
        "OLDPWD=/",
        "SHLVL=1",
        "MAIL=/var/mail/root",
        "EDITOR=vi",
        "VISUAL=vi",
        "PAGER=less",
        "LESS=-R",
        "LS_COLORS=x",
        "HOSTNAME=h",
        "HOSTTYPE=x",
        "HOST=h",
        "DISPLAY=:0",
        "TZ=UTC",
        "TMPDIR=/tmp",
        "TEMP=/tmp",
        "TMP=/tmp",
        "SSH_CLIENT=x",
        "SSH_TTY=x",
        "SSH_CONNECTION=x",
        "XDG_SESSION_ID=1",
        "XDG_RUNTIME_DIR=/run",
        "DBUS_SESSION_BUS_ADDRESS=x",
        "COLORTERM=truecolor",
        "CLICOLOR=1",
        "FORCE_COLOR=1",
        "DEBIAN_FRONTEND=x",
        "PS1=$",
        "_=/usr/bin/env",
        "COLUMNS=80",
        "LINES=24",
        "DESKTOP_SESSION=gnome",
        "SESSION_MANAGER=x",
        "GDMSESSION=x",
        "WINDOWID=1",
        "USERNAME=x",
        "MANPATH=/",
        "MAKEFLAGS=s",
        "MAKELEVEL=1",
        "CFLAGS=-O2",
        "LDFLAGS=x",
        "CC=gcc",
        "PROMPT_COMMAND=x",
        "HISTSIZE=1",
        "LD_LIBRARY_PATH=/x",
        "LD_PRELOAD=x",
        /* containers, continuous integration, languages */
        "container=docker",
        "CI=true",
        "CI_JOB_ID=1",
        "GITHUB_TOKEN=x",
        "GITHUB_REF=x",
        "RUNNER_OS=Linux",
        "TOKEN=x",
        "BUILD_ID=1",
        "NODE_ENV=production",
        "NODE_VERSION=20",
        "NODE_OPTIONS=x",
        "NODE_PATH=/x",
        "PYTHONPATH=/x",
        "PYTHON_VERSION=3",
        "PIP_NO_CACHE_DIR=1",
        "VIRTUAL_ENV=/x",
        "CONDA_PREFIX=/x",
        "GOPATH=/x",
        "JAVA_HOME=/x",
        "GPG_KEY=x",
        "http_proxy=x",
        "https_proxy=x",
        "no_proxy=x",
        "AWS_REGION=x",
        "AWS_SECRET_ACCESS_KEY=x",
        "WANDB_API_KEY=x",
        "HF_HOME=/x",
        "HF_TOKEN=x",
        "TOKENIZERS_PARALLELISM=false",
        "DATABASE_URL=x",
        "DB_HOST=x",
        "REDIS_URL=x",
        "PORT=80",
        "HTTP_PORT=80",
        "LOG_DIR=/x",
        "CCACHE_DIR=/x",
        "SCCACHE_DIR=/x",
        "LOG_FILE=x",
        "DEBUG=1",
        "VERBOSE=1",
        "MODEL_DIR=/x",
        "DATA_DIR=/x",
        "OUTPUT_DIR=/x",
        "CACHE_SIZE=1",
        "APP_ENV=x",
        "STAGE=x",
        "VERSION=1",
        "SERVICE_NAME=x",
        /* Kubernetes: service links and the downward API */
        "KUBERNETES_SERVICE_HOST=10.0.0.1",
        "KUBERNETES_PORT=tcp://10.0.0.1:443",
        "KUBERNETES_PORT_443_TCP_ADDR=10.0.0.1",
        "MASTERS_PORT=tcp://10.0.0.2:1",
        "STATUS_SERVICE_HOST=10.0.0.3",
        "STATS_PORT=tcp://10.0.0.4:80",
        "STATUS_PORT_80_TCP_PROTO=tcp",
        "NODE_NAME=n",
        "NODE_IP=10.0.0.5",
        "POD_NAME=p",
        "POD_IP=10.0.0.6",
        "POD_NAMESPACE=d",
        "JOB_COMPLETION_INDEX=0",
        "JOB_NAME=x",
        /* launchers and libraries */
        "SLURM_NODEID=0",
        "SLURM_NNODES=4",
        "SLURM_JOB_NODELIST=a[1-4]",
        "SLURM_NTASKS=4",
        "SLURM_LOCALID=0",
        "SLURM_PROCID=0",
        "SLURM_STEP_NODELIST=a1",
        "SLURM_CPUS_ON_NODE=8",
        "PET_NNODES=1",
        "PET_NPROC_PER_NODE=1",
        "NNODES=1",
        "NODE_RANK=0",
        "RANK=0",
        "LOCAL_RANK=0",
        "WORLD_SIZE=1",
        "GROUP_RANK=0",
        "LOCAL_WORLD_SIZE=1",
        "ROLE_RANK=0",
        "OMPI_COMM_WORLD_SIZE=1",
        "PMIX_RANK=0",
        "NCCL_DEBUG=INFO",
        "UCX_TLS=tcp",
        "CUDA_VISIBLE_DEVICES=0",
        "CUDA_DEVICE_ORDER=x",
        "NVIDIA_VISIBLE_DEVICES=all",
        "OMP_NUM_THREADS=2",
        "OMP_PROC_BIND=true",
        "OPENBLAS_NUM_THREADS=1",
        "MKL_NUM_THREADS=1",
        "TORCHELASTIC_RUN_ID=x",
        NULL,
    };
    char out[4096];
    warned(quiet, out, sizeof out);
    assert_string_equal(out, "");
}

TEST(idle_settings_are_told)
{
    static const struct {
        const char *words[4], *sentence; /* "": nothing is said */
    } trials[] = {
        {{"MOMENTUM=0.9"}, "MOMENTUM=0.9 (argument) has no effect with OPTIMIZER=adamw"},
        {{"MOMENTUM=0.9", "OPTIMIZER=sgd"}, ""},
        {{"MOMENTUM=0"}, ""},
        {{"BETA1=0.8", "OPTIMIZER=sgd"}, "BETA1=0.8 (argument) has no effect with OPTIMIZER=sgd"},
        {{"BETA1=0.8"}, ""},
        {{"EPS=1e-6", "OPTIMIZER=sgd"}, "EPS=1e-6"},
        {{"OPTIMIZER=sgd"}, ""},
        {{"MIN_LR=1e-5", "LR_SCHEDULE=constant"},
         "MIN_LR=1e-5 (argument) has no effect with LR_SCHEDULE=constant"},
        {{"MIN_LR=1e-5", "LR_SCHEDULE=linear"}, ""},
    };
    char out[4096];
    for (size_t i = 0; i < sizeof trials / sizeof trials[0]; i++) {
        warned_of(trials[i].words, (const char *[]){NULL}, out, sizeof out);
        if (trials[i].sentence[0] == 0 ? out[0] != 0 : strstr(out, trials[i].sentence) == NULL)
            fail_msg("%s: \"%s\", want \"%s\"", trials[i].words[0], out, trials[i].sentence);
    }
}

TEST(hostile_environments)
{
    enum { MANY = 100000, HUGE_BYTES = 1 << 20 };
    char **environment = calloc(MANY + 4, sizeof *environment);
    char *names = malloc((size_t)MANY * 24), *huge = malloc(HUGE_BYTES + 16), out[8192];
    assert_true(environment != NULL && names != NULL && huge != NULL);
    for (int i = 0; i < MANY; i++) {
        environment[i] = names + (size_t)i * 24;
        /* names that pass the cheap filters, entries without '=', empty names, typos */
        static const char *const forms[] = {"BATCH_SIZ%c=1", "SOME_NAME_%d=x", "NOEQUALS%d", "=%d",
                                            "CKECHPOINT_DRI%d=1"};
        if (i % 5 == 0)
            text_format(environment[i], 24, "BATCH_SIZ%c%c=1", 'A' + i % 26, 'A' + i / 26 % 26);
        else
            text_format(environment[i], 24, "%.10s%d%s", forms[i % 5], i, i % 5 == 2 ? "" : "=x");
    }
    struct conf *conf = NULL;
    assert_int_equal(conf_open(0, NULL, environment, &conf), ST_OK);
    conf_close(conf);
    warned((const char *const *)environment, out, sizeof out);
    int lines = 0;
    for (const char *p = out; (p = strchr(p, '\n')) != NULL; p++)
        lines++;
    assert_true(lines <= 8);

    memset(huge, 'A', HUGE_BYTES);
    huge[HUGE_BYTES] = 0;
    /* one name of 1 MiB */
    assert_int_equal(conf_open(0, NULL, (char *[]){huge, NULL}, &conf), ST_OK);
    conf_close(conf);
    static const char *const starts[] = {"DATA=",         "BATCH_SIZE=",
                                         "TASK=",         "FAULT=kill@step=",
                                         "LR=0.",         "STEP_TIMEOUT=",
                                         "PROMPT=",       "OMP_NUM_THREADS=",
                                         "SLURM_NODEID=", "SLURM_STEP_NODELIST=n[",
                                         "NNODES=",       "PET_MASTER_ADDR="};
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        memset(huge, i % 2 == 0 ? 'A' : '1', HUGE_BYTES);
        memcpy(huge, starts[i], strlen(starts[i]));
        status_clear();
        if (conf_open(0, NULL, (char *[]){huge, NULL}, &conf) != ST_BAD_SETTING)
            fail_msg("%s and a megabyte was taken", starts[i]);
        assert_true(strlen(status_message()) < 500);
    }
    memset(huge, 'A', HUGE_BYTES);
    assert_int_equal(conf_open(1, (char *[]){huge}, (char *[]){NULL}, &conf), ST_USAGE);
    huge[HUGE_BYTES - 2] = '=';
    assert_int_equal(conf_open(1, (char *[]){huge}, (char *[]){NULL}, &conf), ST_USAGE);
    memcpy(huge, "HOME=/", 6);
    huge[HUGE_BYTES - 2] = 'A';
    assert_int_equal(conf_open(0, NULL, (char *[]){huge, NULL}, &conf), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "set CACHE_DIR"));
    free(huge);
    free(names);
    free(environment);
}

HARNESS_RUN_ALL()
