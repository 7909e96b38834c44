/* bench — `convoy bench`: starts the workers of this node, lets them measure their collectives, and
 * writes a table or JSON. Must not know how anything is measured (bench_run.h). */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/board.h"
#include "base/cgroup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "measure/measure_table.h"
#include "node/command/bench_run.h"
#include "node/command.h"
#include "node/choose/device.h"
#include "node/process/print.h"
#include "node/process/process.h"

#define WORKERS_DEFAULT_MAX 8
#define TIMEOUT_MS 60000

/* The requested measurement. */
struct question {
    const struct conf *conf;
    int ranks;
    bool is_gpu; /* each worker has a GPU */
    struct bench_run_question what;
    bool is_over_net; /* each worker acts as a node of its own */
    enum comm_net net;
};

/* The workers' results, in memory shared with the process that started them. */
struct outcome {
    atomic_bool aborted;
    atomic_int packed; /* number of addresses that are written */
    char addresses[BOARD_WORKERS_MAX][COMM_ADDRESS_MAX];
    int64_t address_bytes[BOARD_WORKERS_MAX];
    uint8_t secret[COMM_SECRET_BYTES];
    int rows_n;
    char transport[64], device[64];
    struct bench_run_row rows[BENCH_RUN_ROWS_MAX];
};

static bool is_aborted(void *arg) { return atomic_load(&((struct outcome *)arg)->aborted); }

/* await_addresses — waits until every worker has written its address. */
static enum status await_addresses(struct outcome *outcome, int ranks)
{
    const int64_t end = clock_ms() + TIMEOUT_MS;
    atomic_fetch_add(&outcome->packed, 1);
    while (atomic_load(&outcome->packed) < ranks) {
        if (is_aborted(outcome))
            return FAIL(ST_PEER, "another worker ended before all workers had started");
        if (clock_ms() > end)
            return FAIL(ST_PEER,
                        "only %d of %d workers opened their transport within %d s; is the machine "
                        "short of memory or cores? N_GPU_EACH_NODE is the number of workers",
                        atomic_load(&outcome->packed), ranks, TIMEOUT_MS / 1000);
        clock_sleep_ms(1);
    }
    return ST_OK;
}

/* settle_on_core — pins each worker to a core if there are enough cores, as Open MPI does. */
static void settle_on_core(int rank, int ranks)
{
    cpu_set_t all, one;
    if (ranks > thread_pool_cores() || sched_getaffinity(0, sizeof(all), &all) != 0)
        return;
    for (int cpu = 0, i = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all) || i++ < rank)
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof(one), &one);
        return;
    }
}

/* work_on — runs one rank, from the opening of its transport to its end. dev NULL: buffers are in
 * host memory. */
static enum status work_on(struct outcome *outcome, const struct question *question, int rank,
                           int shm_fd, struct dev *dev)
{
    const int ranks = question->ranks;
    const bool is_ucx = dev == NULL || (question->is_over_net && ranks > 1);
    struct comm_config config = {
        .kind = is_ucx ? COMM_KIND_HOST : device_comm(question->conf, dev, ranks),
        .dev = dev,
        .net = question->net,
        .secret = outcome->secret,
        .place = {.rank = rank, .ranks = ranks, .nodes = 1, .local = rank, .locals = ranks},
        .timeout_ms = TIMEOUT_MS,
        .is_aborted = is_aborted,
        .arg = outcome,
        .is_oversubscribed = ranks > thread_pool_cores(),
        .shm_fd = shm_fd,
    };
    if (question->is_over_net)
        config.place = (struct comm_place){
            .rank = rank, .ranks = ranks, .node = rank, .nodes = ranks, .locals = 1};
    struct comm *comm = NULL;
    struct bench_run_row rows[BENCH_RUN_ROWS_MAX];
    int rows_n = 0;
    TRY(comm_begin_open(&config, &comm, outcome->addresses[rank], &outcome->address_bytes[rank]));
    /* the threads of a GPU's libraries would stay on that core */
    if (dev == NULL)
        settle_on_core(rank, ranks);
    enum status st = await_addresses(outcome, ranks);
    if (st == ST_OK)
        st = comm_end_open(comm, 1, outcome->addresses, outcome->address_bytes);
    if (st == ST_OK)
        st = bench_run(comm, dev, &question->what, rows, &rows_n);
    if (st == ST_OK && rank == 0) {
        memcpy(outcome->rows, rows, sizeof(rows[0]) * (size_t)rows_n);
        outcome->rows_n = rows_n;
        text_copy(outcome->transport, sizeof(outcome->transport), comm_name(comm));
    }
    comm_close(comm);
    return st;
}

static enum status run_rank(struct outcome *outcome, const struct question *question, int rank,
                            int shm_fd)
{
    struct dev *dev = NULL;
    struct dev_info info;
    if (!question->is_gpu)
        return work_on(outcome, question, rank, shm_fd, NULL);
    TRY(device_open(question->conf, rank, 1, &dev));
    dev_info(dev, &info);
    if (rank == 0)
        text_copy(outcome->device, sizeof(outcome->device), info.name);
    enum status st = work_on(outcome, question, rank, shm_fd, dev);
    dev_close(dev);
    return st;
}

/* wait_for_workers — waits for the workers. If a worker fails, the others are aborted. */
static enum status wait_for_workers(struct outcome *outcome, int started)
{
    enum status st = ST_OK;
    for (int i = 0; i < started;) {
        int ended = 0;
        pid_t pid = waitpid(-1, &ended, 0);
        if (pid < 0 && errno == EINTR)
            continue;
        i++;
        if (pid > 0 && ended == 0)
            continue;
        atomic_store(&outcome->aborted, true);
        if (st == ST_OK)
            st = pid > 0 && WIFEXITED(ended)
                     ? FAIL(status_from_exit(WEXITSTATUS(ended)), "a worker ended with code %d",
                            WEXITSTATUS(ended))
                     : FAIL(ST_PEER, "a worker was ended by signal %d",
                            pid > 0 ? WTERMSIG(ended) : 0);
    }
    return st;
}

static enum status run_workers(struct outcome *outcome, const struct question *question)
{
    int shm_fd = memfd_create("convoy-bench", MFD_CLOEXEC), started = 0;
    if (shm_fd < 0)
        return FAIL(ST_RETRY, "cannot make memory for workers to share: %s", strerror(errno));
    enum status st = ST_OK;
    const pid_t parent = getpid();
    while (started < question->ranks && st == ST_OK) {
        pid_t pid = fork();
        if (pid == 0) {
            /* The child process never returns: it logs its failure and exits here. */
            process_bind_to(parent);
            st = run_rank(outcome, question, started, shm_fd);
            if (st != ST_OK && !atomic_exchange(&outcome->aborted, true))
                LOG_ERROR("worker %d: %s", started, status_message());
            _exit(status_exit_code(st));
        }
        if (pid < 0)
            st = FAIL(ST_RETRY, "cannot start worker %d of %d: %s; raise the limit of processes",
                      started, question->ranks, strerror(errno));
        started += pid > 0;
    }
    close(shm_fd);
    if (st != ST_OK)
        atomic_store(&outcome->aborted, true);
    enum status ended = wait_for_workers(outcome, started);
    return st != ST_OK ? st : ended;
}

/* ---- the result ---- */

static void write_table(const struct outcome *outcome, int ranks, struct text *out)
{
    static const struct measure_column columns[] = {
        {"collective", -15, 0}, {"size", 10, 0},     {"runs", 6, 0},       {"median us", 12, 2},
        {"best us", 12, 2},     {"bus GB/s", 10, 3}, {"best GB/s", 10, 3}, {"wrong", 8, 0}};
    enum { COLUMNS = sizeof columns / sizeof columns[0] };
    char human[32];
    if (outcome->device[0] != 0)
        text_add(out, "%d GPUs on one machine (the first: %s)", ranks, outcome->device);
    else
        text_add(out, "%d workers on one machine", ranks);
    text_add(out, ", %s, fp32 in place; times of the slowest worker\n", outcome->transport);
    measure_table_head(out, columns, COLUMNS);
    for (int i = 0; i < outcome->rows_n; i++) {
        const struct bench_run_row *row = &outcome->rows[i];
        const struct measure_cell cells[] = {
            {.text = bus_bandwidth_name(row->collective)},
            {.text = text_format_bytes(human, sizeof(human), (double)row->bytes)},
            {.number = row->runs},
            {.number = row->median_us},
            {.number = row->best_us},
            {.number = bus_bandwidth(row->collective, row->bytes, ranks, row->median_us)},
            {.number = bus_bandwidth(row->collective, row->bytes, ranks, row->best_us)},
            {.number = (double)row->wrong}};
        measure_table_row(out, columns, COLUMNS, cells);
    }
}

static enum status write_json(const struct outcome *outcome, int ranks, struct text *out)
{
    cJSON *all = cJSON_CreateObject(), *rows = cJSON_AddArrayToObject(all, "results");
    json_add_i64(all, "schema", 1);
    json_add_i64(all, "nodes", 1);
    json_add_i64(all, "ranks", ranks);
    cJSON_AddStringToObject(all, "transport", outcome->transport);
    cJSON_AddStringToObject(all, "device", outcome->device[0] != 0 ? outcome->device : "cpu");
    cJSON_AddStringToObject(all, "dtype", "fp32");
    for (int i = 0; i < outcome->rows_n; i++) {
        const struct bench_run_row *row = &outcome->rows[i];
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "collective", bus_bandwidth_name(row->collective));
        json_add_i64(one, "bytes", row->bytes);
        json_add_i64(one, "runs", row->runs);
        json_add_number(one, "median_us", row->median_us);
        json_add_number(one, "best_us", row->best_us);
        json_add_number(one, "bus_gb_per_second",
                        bus_bandwidth(row->collective, row->bytes, ranks, row->median_us));
        json_add_i64(one, "wrong", row->wrong);
        cJSON_AddItemToArray(rows, one);
    }
    char *text = cJSON_Print(all);
    cJSON_Delete(all);
    if (text == NULL)
        return FAIL(ST_RETRY, "out of memory: the answer");
    text_add(out, "%s\n", text);
    cJSON_free(text);
    return ST_OK;
}

/* measures_gpus — returns true if GPUs are measured, which needs several: a single GPU would send
 * data only to itself. Then host memory is measured, unless DEVICE or N_GPU_EACH_NODE requests the
 * GPU. */
static bool measures_gpus(const struct conf *conf)
{
    if (conf_i64(conf, CONF_DEVICE) != CONF_DEVICE_AUTO)
        return conf_i64(conf, CONF_DEVICE) != CONF_DEVICE_CPU;
    return device_is_gpu(conf) &&
           (conf_is_set(conf, CONF_N_GPU_EACH_NODE) || device_workers(conf) > 1);
}

static int count_workers(const struct conf *conf, bool is_gpu)
{
    int asked = (int)conf_i64(conf, CONF_N_GPU_EACH_NODE), cores = thread_pool_cores();
    if (conf_is_set(conf, CONF_N_GPU_EACH_NODE))
        return asked;
    if (is_gpu)
        return device_workers(conf);
    return cores < 2 ? 2 : cores > WORKERS_DEFAULT_MAX ? WORKERS_DEFAULT_MAX : cores;
}

/* add_size — adds a size to measure. Returns false if there are too many sizes. */
static bool add_size(struct bench_run_question *q, int64_t bytes)
{
    if (q->sizes_n == BENCH_RUN_SIZES_MAX)
        return false;
    q->sizes[q->sizes_n++] = bytes;
    q->bytes_max = bytes > q->bytes_max ? bytes : q->bytes_max;
    return true;
}

/* parse_size — reads a size of n characters; it must be a multiple of one element. */
static bool parse_size(const char *text, size_t n, int64_t *out)
{
    char one[32];
    text_format(one, sizeof(one), "%.*s", n < sizeof(one) ? (int)n : 0, text);
    return text_parse_bytes(one, (int64_t)sizeof(float), (int64_t)64 << 30, out) == TEXT_OK &&
           *out % (int64_t)sizeof(float) == 0;
}

/* add_sizes — adds one item of BENCH_SIZES, of n characters: SIZE, or the usual sizes in MIN-MAX.
 * Returns false if it is neither, or contains no size. */
static bool add_sizes(const char *item, size_t n, struct bench_run_question *out)
{
    static const int64_t usual[] = {
        4,         64,        1 << 10,          16 << 10,         64 << 10,
        256 << 10, 1 << 20,   4 << 20,          16 << 20,         64 << 20,
        256 << 20, 512 << 20, (int64_t)2 << 30, (int64_t)8 << 30, (int64_t)32 << 30};
    const char *dash = memchr(item, '-', n);
    const size_t first_n = dash != NULL ? (size_t)(dash - item) : n;
    const int before = out->sizes_n;
    int64_t first, last;
    if (!parse_size(item, first_n, &first))
        return false;
    if (dash == NULL)
        return add_size(out, first);
    if (!parse_size(dash + 1, n - first_n - 1, &last))
        return false;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (usual[i] >= first && usual[i] <= last && !add_size(out, usual[i]))
            return false;
    return out->sizes_n > before;
}

/* sizes_of — reads BENCH_SIZES. */
static enum status sizes_of(const struct conf *conf, struct bench_run_question *out)
{
    for (const char *at = conf_text(conf, CONF_BENCH_SIZES); *at != 0;) {
        const size_t n = strcspn(at, ",");
        if (!add_sizes(at, n, out))
            return FAIL(ST_BAD_SETTING,
                        "BENCH_SIZES (%s) is \"%s\"; set at most %d sizes, each a multiple of "
                        "4 bytes up to 64Gi, such as BENCH_SIZES=8,64Ki,1Mi, or a range of usual "
                        "sizes, such as BENCH_SIZES=4-64Mi",
                        conf_source(conf, CONF_BENCH_SIZES), conf_text(conf, CONF_BENCH_SIZES),
                        BENCH_RUN_SIZES_MAX);
        at += n + (at[n] == ',');
    }
    return ST_OK;
}

enum status bench_main(const struct conf *conf)
{
    if (conf_i64(conf, CONF_N_NODES) > 1)
        return FAIL(ST_BAD_SETTING,
                    "bench measures the workers of one node, but N_NODES is %lld; set N_NODES=1",
                    (long long)conf_i64(conf, CONF_N_NODES));
    struct bench_run_question what = {.sizes_n = 0};
    TRY(sizes_of(conf, &what));
    const int64_t asked = what.bytes_max, over = conf_i64(conf, CONF_BENCH_OVER);
    const bool is_gpu = measures_gpus(conf);
    if (!is_gpu && conf_i64(conf, CONF_BACKEND) == CONF_BACKEND_NCCL)
        return FAIL(
            ST_NO_DEVICE,
            "BACKEND=nccl (%s) needs two GPUs, and DEVICE=%s does not find them here; with "
            "DEVICE=cuda the error contains the reason; BACKEND=auto measures the CPU's memory",
            conf_source(conf, CONF_BACKEND), conf_text(conf, CONF_DEVICE));
    const int ranks = count_workers(conf, is_gpu);
    /* The largest buffer for which the buffers of all workers together need at most half of the
     * free memory. */
    const int64_t pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    int64_t left = pages * page, bytes = asked;
    int64_t group = cgroup_memory_free("/proc/self/cgroup", "/sys/fs/cgroup");
    left = group >= 0 && group < left ? group : left;
    while (bytes > 1 << 20 && bytes * ranks > left / 2)
        bytes /= 2;
    what.bytes_max = bytes;
    const struct question question = {
        .conf = conf,
        .ranks = ranks,
        .is_gpu = is_gpu,
        .what = what,
        .is_over_net = over != CONF_BENCH_OVER_MEMORY,
        .net = over == CONF_BENCH_OVER_TCP ? COMM_NET_TCP : COMM_NET_UCX,
    };
    struct outcome *outcome =
        mmap(NULL, sizeof(*outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (outcome == MAP_FAILED)
        return FAIL(ST_RETRY, "out of memory: the outcome: %s", strerror(errno));
    if (getrandom(outcome->secret, sizeof(outcome->secret), 0) != (ssize_t)sizeof(outcome->secret))
        return FAIL(ST_RETRY, "cannot read random numbers from the system: %s", strerror(errno));
    if (what.bytes_max < asked)
        LOG_WARN("memory is short: the largest size is %lld MiB for %d workers",
                 (long long)(what.bytes_max >> 20), ranks);
    struct text out = {0};
    int64_t wrong = 0;
    enum status st = run_workers(outcome, &question);
    if (st == ST_OK && conf_i64(conf, CONF_JSON) != 0)
        st = write_json(outcome, ranks, &out);
    else if (st == ST_OK)
        write_table(outcome, ranks, &out);
    for (int i = 0; i < outcome->rows_n; i++)
        wrong += outcome->rows[i].wrong;
    munmap(outcome, sizeof(*outcome));
    if (st == ST_OK)
        st = print_text(&out);
    text_free(&out);
    return st == ST_OK && wrong > 0 ? FAIL(ST_BUG, "%lld elements were wrong", (long long)wrong)
                                    : st;
}
