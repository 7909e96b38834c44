/* launcher — derives this node's number, the number of nodes and node 0's address from variables of
 * Slurm, Kubernetes, torchrun and Open MPI.
 *
 * Sources: srun(1) of Slurm 22.05, torch/distributed/run.py (every flag has a PET_ variable), the
 * Kubernetes Indexed Job, LeaderWorkerSet v1, SkyPilot's distributed jobs, Open MPI's orterun(1).
 * It must not know the purpose of settings. The host-list parser is a pure function of its bytes;
 * its fuzz entry is at the foot. */
#include "conf/launcher.h"

#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"

#define NODES_MAX 1048576
#define WORKERS_MAX 64
#define OMPI_LOCAL_SIZE "OMPI_COMM_WORLD_LOCAL_SIZE"

struct source {
    enum launcher_key key;
    const char *name;
    bool is_per_process; /* Open MPI counts processes: divide by the number on one node */
};

/* In order of precedence: the first variable that is set has the value, and the others must agree
 * with it. */
static const struct source sources[] = {
    {LAUNCHER_NODE_ID, "PET_NODE_RANK", false},
    {LAUNCHER_NODE_ID, "NODE_RANK", false},
    {LAUNCHER_NODE_ID, "GROUP_RANK", false},
    {LAUNCHER_NODE_ID, "JOB_COMPLETION_INDEX", false},
    {LAUNCHER_NODE_ID, "LWS_WORKER_INDEX", false},
    {LAUNCHER_NODE_ID, "SKYPILOT_NODE_RANK", false},
    {LAUNCHER_NODE_ID, "SLURM_NODEID", false},
    {LAUNCHER_NODE_ID, "OMPI_COMM_WORLD_RANK", true},
    {LAUNCHER_N_NODES, "PET_NNODES", false},
    {LAUNCHER_N_NODES, "NNODES", false},
    {LAUNCHER_N_NODES, "GROUP_WORLD_SIZE", false},
    {LAUNCHER_N_NODES, "LWS_GROUP_SIZE", false},
    {LAUNCHER_N_NODES, "SKYPILOT_NUM_NODES", false},
    {LAUNCHER_N_NODES, "SLURM_STEP_NUM_NODES", false},
    {LAUNCHER_N_NODES, "OMPI_COMM_WORLD_SIZE", true},
};
#define SOURCES_N (sizeof sources / sizeof sources[0])

const char *launcher_find(char **environment, const char *name)
{
    size_t n = strlen(name);
    for (; *environment != NULL; environment++)
        if (strncmp(*environment, name, n) == 0 && (*environment)[n] == '=')
            return (*environment)[n + 1] != 0 ? *environment + n + 1 : NULL;
    return NULL;
}

static enum status refuse_value(const char *name, const char *text, const char *want)
{
    char shown[64];
    size_t n = strnlen(text, sizeof shown - 1);
    for (size_t i = 0; i < n; i++)
        shown[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i];
    shown[n] = 0;
    return FAIL(ST_BAD_SETTING,
                "%s=%s (set by the launcher) is not %s; set NODE_ID, N_NODES and MASTER_ADDR to "
                "override it",
                name, shown, want);
}

/* read_count — reads a number of nodes. torchrun's MIN:MAX is accepted if both are equal, because
 * the number of nodes is fixed here. */
static enum status read_count(const char *name, const char *text, int64_t *out)
{
    char low[16];
    size_t n = strcspn(text, ":");
    bool is_range = text[n] == ':' && n < sizeof low &&
                    text_format(low, sizeof low, "%.*s", (int)n, text) &&
                    strcmp(low, text + n + 1) == 0;
    if (text_parse_i64(is_range ? low : text, 1, NODES_MAX, out) != TEXT_OK)
        return refuse_value(name, text, "one number of nodes from 1 to 1048576");
    return ST_OK;
}

/* read_source — reads one variable that is set. */
static enum status read_source(char **environment, const struct source *source, const char *text,
                               int64_t *out)
{
    if (source->key == LAUNCHER_N_NODES)
        TRY(read_count(source->name, text, out));
    else if (text_parse_i64(text, 0, NODES_MAX - 1, out) != TEXT_OK)
        return refuse_value(source->name, text, "a node's number from 0 to 1048575");
    const char *local = source->is_per_process ? launcher_find(environment, OMPI_LOCAL_SIZE) : NULL;
    if (local == NULL)
        return ST_OK;
    int64_t local_n = 0;
    if (text_parse_i64(local, 1, NODES_MAX, &local_n) != TEXT_OK)
        return refuse_value(OMPI_LOCAL_SIZE, local, "a number of processes from 1 to 1048576");
    if (source->key == LAUNCHER_N_NODES && *out % local_n != 0)
        return FAIL(ST_BAD_SETTING,
                    "%s=%s is not a multiple of %s=%s; start one convoy per node, or set N_NODES "
                    "and NODE_ID",
                    source->name, text, OMPI_LOCAL_SIZE, local);
    *out /= local_n;
    return ST_OK;
}

static enum status read_number(char **environment, enum launcher_key key,
                               struct launcher_value *said)
{
    int64_t first = 0, value = 0;
    for (size_t i = 0; i < SOURCES_N; i++) {
        const char *text =
            sources[i].key == key ? launcher_find(environment, sources[i].name) : NULL;
        if (text == NULL)
            continue;
        TRY(read_source(environment, &sources[i], text, &value));
        if (said->name == NULL) {
            first = value;
            said->name = sources[i].name;
            text_format(said->text, sizeof said->text, "%lld", (long long)value);
        } else if (value != first) {
            const char *setting = key == LAUNCHER_NODE_ID ? "NODE_ID" : "N_NODES";
            return FAIL(ST_BAD_SETTING,
                        "two launchers contradict each other: %s means %s=%lld, but %s means %lld; "
                        "set %s to decide",
                        said->name, setting, (long long)first, sources[i].name, (long long)value,
                        setting);
        }
    }
    return ST_OK;
}

static bool copy_whole(const char *text, char *out, size_t cap)
{
    return text_copy(out, cap, text);
}

static bool copy_first_host(const char *text, char *out, size_t cap)
{
    return launcher_host(text, 0, out, cap);
}

/* read_master — reads node 0's address. Addresses of two launchers are not compared, because one
 * host has many names. */
static enum status read_master(char **environment, struct launcher_value *said)
{
    static const struct {
        const char *name;
        bool (*copy)(const char *text, char *out, size_t cap);
        const char *want;
    } addresses[] = {
        {"PET_MASTER_ADDR", copy_whole, "at most 255 bytes long"},
        {"LWS_LEADER_ADDRESS", copy_whole, "at most 255 bytes long"},
        {"SLURM_STEP_NODELIST", copy_first_host, "a host list such as gpu[001-003,7],b4"},
        {"SKYPILOT_NODE_IPS", launcher_line, "a list of addresses, one a line"},
    };
    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0] && said->name == NULL; i++) {
        const char *text = launcher_find(environment, addresses[i].name);
        if (text == NULL)
            continue;
        said->name = addresses[i].name;
        if (!addresses[i].copy(text, said->text, sizeof said->text))
            return refuse_value(said->name, text, addresses[i].want);
    }
    return ST_OK;
}

/* read_workers — reads SkyPilot's number of GPUs. 0 means a node of CPUs, and leaves the number of
 * workers open. */
static enum status read_workers(char **environment, struct launcher_value *said)
{
    static const char name[] = "SKYPILOT_NUM_GPUS_PER_NODE";
    const char *text = launcher_find(environment, name);
    int64_t n = 0;
    if (text == NULL)
        return ST_OK;
    if (text_parse_i64(text, 0, WORKERS_MAX, &n) != TEXT_OK)
        return FAIL(ST_BAD_SETTING,
                    "%s=%.32s (set by the launcher) is not a number of GPUs from 0 to 64; set "
                    "N_GPU_EACH_NODE to override it",
                    name, text);
    if (n == 0)
        return ST_OK;
    said->name = name;
    text_format(said->text, sizeof said->text, "%lld", (long long)n);
    return ST_OK;
}

enum status launcher_read(char **environment, const bool is_wanted[LAUNCHER_N],
                          struct launcher_value said[LAUNCHER_N])
{
    memset(said, 0, LAUNCHER_N * sizeof said[0]);
    if (is_wanted[LAUNCHER_NODE_ID]) {
        /* One convoy runs all workers of a node; a second copy would write to the same files. */
        static const char *const names[] = {"LOCAL_RANK", "SLURM_LOCALID",
                                            "OMPI_COMM_WORLD_LOCAL_RANK"};
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            const char *text = launcher_find(environment, names[i]);
            int64_t rank = 0;
            if (text != NULL && text_parse_i64(text, 0, NODES_MAX, &rank) == TEXT_OK && rank > 0)
                return FAIL(
                    ST_BAD_SETTING,
                    "%s=%s: the launcher started several copies on this node, but convoy runs "
                    "once per node; start one task per node (srun --ntasks-per-node=1, "
                    "torchrun --nproc-per-node=1, mpirun --map-by ppr:1:node) or set NODE_ID",
                    names[i], text);
        }
    }
    for (int key = LAUNCHER_NODE_ID; key <= LAUNCHER_N_NODES; key++)
        if (is_wanted[key])
            TRY(read_number(environment, (enum launcher_key)key, &said[key]));
    if (is_wanted[LAUNCHER_MASTER_ADDR])
        TRY(read_master(environment, &said[LAUNCHER_MASTER_ADDR]));
    if (is_wanted[LAUNCHER_WORKERS])
        TRY(read_workers(environment, &said[LAUNCHER_WORKERS]));
    const char *port =
        is_wanted[LAUNCHER_MASTER_PORT] ? launcher_find(environment, "PET_MASTER_PORT") : NULL;
    if (port == NULL)
        return ST_OK;
    said[LAUNCHER_MASTER_PORT].name = "PET_MASTER_PORT";
    if (!text_copy(said[LAUNCHER_MASTER_PORT].text, sizeof said[LAUNCHER_MASTER_PORT].text, port))
        return refuse_value("PET_MASTER_PORT", port, "a port");
    return ST_OK;
}

bool launcher_is_known(const char *name)
{
    static const char *const prefixes[] = {
        "SLURM_",  "SLURMD_", "SBATCH_",     "SRUN_",   "PET_",      "OMPI_",   "PMI_",
        "PMIX_",   "PRTE_",   "KUBERNETES_", "JOB_",    "NCCL_",     "UCX_",    "CUDA_",
        "CUBLAS_", "NVIDIA_", "OMP_",        "MKL_",    "OPENBLAS_", "LC_",     "XDG_",
        "TORCH",   "LWS_",    "SKYPILOT_",   "GITHUB_", "CI_",       "DOCKER_",
    };
    /* The last ones are names of other programs and of pods' downward API that resemble
     * settings. */
    static const char *const names[] = {
        "NODE_RANK",        "NNODES",    "GROUP_RANK", "WORLD_SIZE", "RANK",         "LOCAL_RANK",
        "LOCAL_WORLD_SIZE", "NODE_NAME", "NODE_IP",    "NODE_ENV",   "NODE_OPTIONS", "TOKEN",
        "LOGNAME",          "MASTER_IP",
    };
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (text_starts(name, prefixes[i]))
            return true;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return text_ends(name, "_SERVICE_HOST") || text_ends(name, "_SERVICE_PORT");
}

/* ---- Slurm's host lists ---- */

#define HOSTS_MAX 1048576
#define GROUPS_MAX 8 /* brackets in one name; Slurm itself supports fewer dimensions */
#define DIGITS_MAX 9

static const char *read_digits(const char *p, int64_t *value, int *width)
{
    *value = 0;
    *width = 0;
    while (*p >= '0' && *p <= '9') {
        if (++*width > DIGITS_MAX)
            return NULL;
        *value = *value * 10 + (*p++ - '0');
    }
    return *width > 0 ? p : NULL;
}

/* read_group — parses "001-003,7]" after its '[' and counts its numbers. Writes number `pick` (-1:
 * none) to out (32 bytes), with its zeros. Returns the position after ']'; NULL: malformed. */
static const char *read_group(const char *p, int64_t pick, char *out, int64_t *count)
{
    *count = 0;
    for (;;) {
        int64_t low = 0, high = 0;
        int width = 0, high_width = 0;
        p = read_digits(p, &low, &width);
        if (p == NULL)
            return NULL;
        high = low;
        if (*p == '-') {
            p = read_digits(p + 1, &high, &high_width);
            if (p == NULL || high < low || high - low >= HOSTS_MAX)
                return NULL;
        }
        if (pick >= *count && pick - *count <= high - low)
            text_format(out, 32, "%0*lld", width, (long long)(low + pick - *count));
        *count += high - low + 1;
        if (*count > HOSTS_MAX)
            return NULL;
        if (*p == ']')
            return p + 1;
        if (*p++ != ',')
            return NULL;
    }
}

static bool is_host_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_';
}

/* count_name — counts the hosts of the name at p, in total and by bracket. Returns the position
 * after the name; NULL: malformed. */
static const char *count_name(const char *p, int64_t *count, int64_t groups[GROUPS_MAX],
                              int *groups_n)
{
    const char *start = p;
    *count = 1;
    *groups_n = 0;
    while (*p != 0 && *p != ',') {
        if (is_host_char(*p)) {
            p++;
            continue;
        }
        if (*p != '[' || p == start || *groups_n == GROUPS_MAX)
            return NULL;
        p = read_group(p + 1, -1, NULL, &groups[*groups_n]);
        if (p == NULL || *count * groups[*groups_n] > HOSTS_MAX)
            return NULL;
        *count *= groups[(*groups_n)++];
    }
    return p > start ? p : NULL;
}

/* write_name — writes host `index` of the name at p, which count_name has accepted. */
static bool write_name(const char *p, int64_t index, int64_t count,
                       const int64_t groups[GROUPS_MAX], char *out, size_t cap)
{
    size_t used = 0;
    int64_t ignored = 0;
    for (int group = 0; *p != 0 && *p != ',';) {
        char chosen[32] = {*p, 0};
        if (*p == '[') {
            count /= groups[group++];
            p = read_group(p + 1, index / count, chosen, &ignored);
            index %= count;
        } else {
            p++;
        }
        if (!text_copy(out + used, cap - used, chosen))
            return false;
        used += strlen(chosen);
    }
    return true;
}

/* walk_hosts — counts the hosts of a list, and writes host `index` to out if out is not NULL. -1:
 * malformed. */
static int64_t walk_hosts(const char *list, int64_t index, char *out, size_t cap, bool *is_written)
{
    int64_t total = 0, count = 0, groups[GROUPS_MAX];
    int groups_n = 0;
    for (;;) {
        const char *end = count_name(list, &count, groups, &groups_n);
        if (end == NULL || total + count > HOSTS_MAX)
            return -1;
        if (out != NULL && index >= total && index < total + count)
            *is_written = write_name(list, index - total, count, groups, out, cap);
        total += count;
        if (*end == 0)
            return total;
        list = end + 1;
    }
}

bool launcher_host(const char *list, int64_t index, char *out, size_t cap)
{
    bool is_written = false;
    out[0] = 0;
    return walk_hosts(list, index, out, cap, &is_written) >= 0 && is_written;
}

int64_t launcher_hosts(const char *list) { return walk_hosts(list, -1, NULL, 0, NULL); }

bool launcher_line(const char *list, char *out, size_t cap)
{
    size_t n = strcspn(list, "\n");
    if (n == 0 || n >= cap)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!is_host_char(list[i]) && list[i] != ':')
            return false;
    return text_format(out, cap, "%.*s", (int)n, list);
}

/* ---- the environment that started this process ---- */

struct launcher_context launcher_context_here(char **environment)
{
    return (struct launcher_context){.environment = environment,
                                     .root = "",
                                     .pid = (int)getpid(),
                                     .parent = (int)getppid(),
                                     .is_terminal = isatty(STDOUT_FILENO) || isatty(STDERR_FILENO)};
}

static bool has_file(const struct launcher_context *context, const char *path)
{
    char full[512];
    return text_format(full, sizeof full, "%s%s", context->root, path) && file_exists(full);
}

bool launcher_context_is_container(const struct launcher_context *context)
{
    return context->pid == 1 ||
           launcher_find(context->environment, "KUBERNETES_SERVICE_HOST") != NULL ||
           /* Podman and systemd-nspawn set it. */
           launcher_find(context->environment, "container") != NULL ||
           has_file(context, "/.dockerenv") || has_file(context, "/run/.containerenv");
}

const char *launcher_context_name(const struct launcher_context *context)
{
    if (context->is_terminal)
        return NULL;
    if (launcher_find(context->environment, "KUBERNETES_SERVICE_HOST") != NULL)
        return "Kubernetes";
    if (launcher_find(context->environment, "SLURM_JOB_ID") != NULL)
        return "Slurm";
    /* A shell in a container starts this process some levels below process number 1. Then the
     * container does not end with it. */
    return context->parent <= 1 && launcher_context_is_container(context) ? "container" : NULL;
}

#ifdef FUZZ
#include <stdlib.h>

/* Fuzz entry: writes the first, middle and last host of a host list, and reads a list of lines. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char host[64];
    char *list = malloc(bytes + 1);
    if (list == NULL)
        return 0;
    memcpy(list, data, bytes);
    list[bytes] = 0;
    int64_t n = launcher_hosts(list);
    if (n > 0) {
        (void)launcher_host(list, 0, host, sizeof host);
        (void)launcher_host(list, n / 2, host, sizeof host);
        (void)launcher_host(list, n - 1, host, sizeof host);
    }
    (void)launcher_line(list, host, sizeof host);
    free(list);
    return 0;
}
#endif
