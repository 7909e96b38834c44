/* check_node_core — measures every core by itself: its clock, and whether it computes the same as
 * the others.
 *
 * The clock: a chain of additions, each of which needs the previous one, needs one cycle for each
 * addition on the processors that this program supports. Processor time is measured, so other
 * processes on the core do not matter, nor does the load of the other half of the core (SMT). The
 * ranks of a node share its cores. A slow core is measured again for longer before its value
 * counts, because an idle core needs some milliseconds to reach its clock.
 *
 * If all cores of a node are slow, it is measured again together with the others: a hypervisor may
 * lower the clock of a whole machine for a moment (observed: 2.88 instead of 3.78 GHz), and nodes
 * that share a machine are measured at different moments. */
#include "check/node/inside.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/quantile.h"
#include "base/text.h"
#include "base/thread.h"
#include "check/host/file.h"
#include "kernels/cpu.h"
#include "measure/measure_product.h"
#include "measure/measure_ranks.h"

#define CHAIN 262144 /* additions in a slice: less than 0.1 ms */
#define SLICES_MIN 3
#define AGAIN_MS 20 /* milliseconds for a core that seems slow */
#define AGAIN_N 5   /* repetitions, between which other processes may leave the core */
/* milliseconds for all slow cores of a rank, together with the other ranks */
#define AGAIN_ALL_MS 200
/* Number of these repetitions. The pause doubles before each, 2.5 s in total. After 0.6 s a good
 * core still seemed slow in one of 194 checks of eight nodes on a busy virtual machine. */
#define LOOKS 7
#define SLOW 0.95 /* share of the median */
/* share of the cores' time; if a hypervisor uses more, clocks are unclear */
#define STEAL_SHARE 0.01
#define PATIENCE 50 /* multiple of the limit, for a core that other processes use */
#define SIDE 96     /* side of the product that every core computes */
/* most rows of all nodes; with more cores only the slowest, the median and the fastest get rows */
#define ROWS_MAX 2048
/* share of the largest clock of any core; a core with a lower maximum is of another kind */
#define SMALL_SHARE 0.93

struct core {
    int number;
    bool is_small; /* it is a small core of a processor with two kinds of cores */
    bool is_wrong; /* its sums are wrong, or its product differs */
    double ghz;    /* NAN: the thread could not be pinned there */
    uint64_t sum;  /* checksum of its product; 0: not computed */
};

struct cores {
    struct check_node *node;
    struct core *core;
    int n;
    int64_t limit_ms;
    bool is_stolen;  /* other machines used some of the time */
    bool is_cleared; /* slower than the other ranks' cores, but not while all were measured again */
    double peers_ghz; /* median of the ranks' slowest cores; 0: one rank */
    struct dev *dev;  /* a device with one thread */
    struct stream *stream;
    struct measure_memory memory; /* memory of a product; none: products are not computed */
};

static bool pin_to_core(int number)
{
    cpu_set_t *set = CPU_ALLOC((size_t)number + 1);
    size_t bytes = CPU_ALLOC_SIZE((size_t)number + 1);
    if (!set)
        return false;
    CPU_ZERO_S(bytes, set);
    CPU_SET_S((size_t)number, bytes, set);
    bool is_pinned = sched_setaffinity(0, bytes, set) == 0;
    CPU_FREE(set);
    return is_pinned;
}

/* compute_chain — computes a chain of additions. The empty asm prevents the compiler from computing
 * the sum in advance. */
static uint64_t compute_chain(uint64_t step)
{
    uint64_t sum = 1;
    for (int i = 0; i < CHAIN / 8; i++) {
        for (int k = 0; k < 8; k++) {
            sum += step;
            __asm__ volatile("" : "+r"(sum));
        }
    }
    return sum;
}

static enum status run_chain(void *arg)
{
    const uint64_t step = 0x9E3779B97F4A7C15u;
    struct core *core = arg;
    core->is_wrong = core->is_wrong || compute_chain(step) != 1 + step * CHAIN;
    return ST_OK;
}

/* measure_clock — measures the clock of the core on which this thread runs, and keeps the best
 * value. */
static void measure_clock(struct core *core, int64_t limit_ms)
{
    const struct measure_timer timer = {
        .threads_n = 1, .slices_min = SLICES_MIN, .patience = PATIENCE};
    struct measure_best best = {0};
    (void)measure_time_best(&timer, limit_ms, run_chain, core, &best); /* run_chain cannot fail */
    if (best.seconds > 0)
        core->ghz = fmax(core->ghz, CHAIN / best.seconds * 1e-9);
}

/* ---- the same product on every core ---- */

static const struct measure_product product = {
    .kind = MEASURE_PRODUCT_FORWARD, .n = SIDE, .in = SIDE, .out = SIDE, .dtype = DTYPE_F32};

static void measure_product(struct cores *c, struct core *core)
{
    struct measure_product_run run;
    if (c->memory.data && measure_product_open(&product, &c->memory, &run) &&
        measure_product_work(&run) == ST_OK)
        /* checksum of factors and product */
        core->sum = XXH3_64bits(c->memory.data, (size_t)c->memory.bytes);
}

/* ---- all cores of this rank ---- */

static int by_ghz(const void *a, const void *b)
{
    double x = ((const struct core *)a)->ghz, y = ((const struct core *)b)->ghz;
    return (x > y) - (x < y);
}

static double median_ghz(const struct cores *c) { return c->n ? c->core[c->n / 2].ghz : NAN; }

/* measure_slow — measures the cores again that seem slow. Returns false if there are none. */
static bool measure_slow(struct cores *c)
{
    const double least = SLOW * median_ghz(c);
    bool is_any = false;
    for (int i = 0; i < c->n && c->core[i].ghz < least; i++) {
        if (!(c->core[i].ghz > 0) || !pin_to_core(c->core[i].number))
            continue;
        measure_clock(&c->core[i], AGAIN_MS);
        is_any = true;
    }
    return is_any;
}

/* Ticks of all cores since the start: all time, and the time that a hypervisor gave to other
 * machines. */
struct times {
    double all, stolen;
};

/* read_times — reads "cpu user nice system idle iowait irq softirq steal …"; zeros: unknown. */
static struct times read_times(const char *root)
{
    char text[512];
    struct times t = {0};
    check_file_read(root, text, sizeof text, "/proc/stat");
    text[strcspn(text, "\n")] = 0;
    char *rest = text_starts(text, "cpu ") ? text + 4 : text + strlen(text), *word;
    for (int i = 0; i < 8 && (word = check_file_word(&rest)) != NULL; i++) {
        double ticks = 0;
        if (text_parse_f64(word, 0, 1e18, &ticks) != TEXT_OK)
            return (struct times){0};
        t.all += ticks;
        t.stolen = i == 7 ? ticks : 0;
    }
    return t;
}

/* read_stolen_share — returns the share of the cores' time since `begin` that other machines
 * used. */
static double read_stolen_share(const char *root, struct times begin)
{
    const struct times now = read_times(root);
    return now.all > begin.all ? (now.stolen - begin.stolen) / (now.all - begin.all) : 0;
}

static void *measure_all(void *arg)
{
    struct cores *c = arg;
    const struct times begin = read_times(c->node->config->root);
    for (int i = 0; i < c->n; i++) {
        if (!pin_to_core(c->core[i].number))
            continue;
        measure_clock(&c->core[i], c->limit_ms);
        measure_product(c, &c->core[i]);
    }
    qsort(c->core, (size_t)c->n, sizeof *c->core, by_ghz);
    for (int k = 0; k < AGAIN_N && measure_slow(c); k++) {
        clock_sleep_ms(AGAIN_MS);
        qsort(c->core, (size_t)c->n, sizeof *c->core, by_ghz);
    }
    c->is_stolen = read_stolen_share(c->node->config->root, begin) > STEAL_SHARE;
    return NULL;
}

/* ---- comparison with the other ranks ---- */

/* A rank's slowest core: its best clock so far, and its present clock; 0: there is none. */
struct slowest {
    double best, now;
};

/* One more measurement. median: of all ranks' slowest cores. */
struct again {
    struct cores *cores;
    double median;
    struct slowest own, *all;
    bool *is_cleared; /* [ranks] */
    double *values;
    int ranks, rank;
};

/* slowest_of — returns the slowest core; small cores are left out. */
static struct core *slowest_of(const struct cores *c)
{
    for (int i = 0; i < c->n; i++)
        if (!c->core[i].is_small && c->core[i].ghz > 0)
            return &c->core[i];
    return NULL;
}

static double median_of(const struct again *a, bool is_now)
{
    int n = 0;
    for (int i = 0; i < a->ranks; i++) {
        const double value = is_now ? a->all[i].now : a->all[i].best;
        if (value > 0)
            a->values[n++] = value;
    }
    return n > 0 ? quantile_median(a->values, n) : 0;
}

static bool is_slow(const struct again *a, int rank)
{
    const double best = a->all[rank].best;
    return best > 0 && best < SLOW * a->median && !a->is_cleared[rank];
}

/* measure_now — measures the slowest core and all slow cores, in a thread, which may be pinned. */
static void *measure_now(void *arg)
{
    struct again *a = arg;
    struct cores *c = a->cores;
    struct core *core = slowest_of(c), now = {0};
    const int64_t each_ms = c->n > 0 ? AGAIN_ALL_MS / c->n : 0;
    a->own = (struct slowest){0};
    if (core && pin_to_core(core->number)) {
        measure_clock(&now, c->limit_ms);
        a->own.now = now.ghz;
        core->ghz = fmax(core->ghz, now.ghz);
        core->is_wrong = core->is_wrong || now.is_wrong;
    }
    for (int i = 0; i < c->n; i++)
        if (c->core[i].ghz < SLOW * a->median && !c->core[i].is_small &&
            pin_to_core(c->core[i].number))
            measure_clock(&c->core[i], each_ms < AGAIN_MS ? each_ms : AGAIN_MS);
    qsort(c->core, (size_t)c->n, sizeof *c->core, by_ghz);
    return NULL;
}

/* share_slowest — exchanges the slowest cores. *any_out: a rank is slower than the others; the same
 * on all ranks. */
static enum status share_slowest(struct again *a, bool *any_out)
{
    const struct core *core = slowest_of(a->cores);
    a->own.best = core ? core->ghz : 0;
    TRY(measure_ranks_gather(a->cores->node->config->comm, &a->own, sizeof a->own, a->all));
    a->median = median_of(a, false);
    const double now = median_of(a, true);
    *any_out = false;
    for (int i = 0; i < a->ranks; i++) {
        a->is_cleared[i] =
            a->is_cleared[i] || (a->all[i].now > 0 && a->all[i].now >= SLOW * now && is_slow(a, i));
        *any_out = *any_out || is_slow(a, i);
    }
    return ST_OK;
}

static enum status look_again(struct again *a)
{
    bool any = false;
    TRY(share_slowest(a, &any));
    for (int k = 0; k < LOOKS && any; k++) {
        struct thread thread;
        clock_sleep_ms((int64_t)AGAIN_MS << k);
        TRY(thread_start(&thread, measure_now, a, "measures slow cores again"));
        pthread_join(thread.id, NULL);
        thread_free(&thread);
        TRY(share_slowest(a, &any));
    }
    a->cores->is_cleared = a->is_cleared[a->rank];
    a->cores->peers_ghz = a->median;
    return ST_OK;
}

/* measure_beside — measures slow cores again while all ranks do. Collective. */
static enum status measure_beside(struct cores *c)
{
    const struct comm_place *place = &c->node->config->place;
    const size_t n = (size_t)place->ranks;
    struct again a = {.cores = c,
                      .all = memory_new(n, sizeof *a.all),
                      .is_cleared = memory_new(n, sizeof *a.is_cleared),
                      .values = memory_new(n, sizeof *a.values),
                      .ranks = place->ranks,
                      .rank = place->rank};
    enum status st = look_again(&a);
    free(a.all);
    free(a.is_cleared);
    free(a.values);
    return st;
}

/* ---- the start ---- */

/* list_cores — lists the cores that this process may use. The cores with index local, local +
 * locals … belong to this rank. */
static enum status list_cores(struct cores *c)
{
    const struct comm_place *place = &c->node->config->place;
    const int cpus = 8192;
    cpu_set_t *set = CPU_ALLOC(cpus);
    int seen = 0;
    c->core = memory_new((size_t)cpus, sizeof *c->core);
    if (!set || sched_getaffinity(0, CPU_ALLOC_SIZE(cpus), set) != 0) {
        enum status st = FAIL(ST_RETRY, "cannot list the cores of this process: %s; start again",
                              strerror(errno));
        CPU_FREE(set);
        return st;
    }
    for (int i = 0; i < cpus; i++)
        if (CPU_ISSET_S((size_t)i, CPU_ALLOC_SIZE(cpus), set) &&
            seen++ % place->locals == place->local)
            c->core[c->n++] = (struct core){.number = i};
    CPU_FREE(set);
    return ST_OK;
}

/* core_max — returns the largest clock of the core that the kernel reports; 0: unknown. */
static double core_max(const char *root, int number)
{
    char path[FILE_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    double khz = 0;
    if (!text_format(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/cpufreq/cpuinfo_max_freq",
                     root, number) ||
        !file_exists(path) || file_read(path, 64, &text, &bytes) != ST_OK)
        return 0;
    text[strcspn(text, "\n")] = 0;
    if (text_parse_f64(text, 0, 1e9, &khz) != TEXT_OK)
        khz = 0;
    free(text);
    return khz;
}

static void add_arithmetic(struct cores *c)
{
    const struct comm_place *place = &c->node->config->place;
    /* The most frequent sum. */
    uint64_t sum = 0;
    int votes = 0;
    for (int i = 0; i < c->n; i++) { /* majority vote of Boyer and Moore, 1981 */
        if (c->core[i].sum == 0)
            continue;
        if (votes == 0)
            sum = c->core[i].sum;
        votes += c->core[i].sum == sum ? 1 : -1;
    }
    int wrong = 0;
    for (int i = 0; i < c->n; i++) {
        const struct core *core = &c->core[i];
        if (!core->is_wrong && (core->sum == 0 || core->sum == sum))
            continue;
        wrong++;
        struct check_row row = check_row_found(
            CHECK_STAGE_NODE, CHECK_POINT_HOST, place->node, "core arithmetic", CHECK_VERDICT_FAIL,
            "core %d computes other numbers than the other cores of this node", core->number);
        row.rank = place->rank;
        text_format(row.subject, sizeof row.subject, "core %d", core->number);
        text_format(row.remedy, sizeof row.remedy,
                    "echo 0 > /sys/devices/system/cpu/cpu%d/online # have the processor replaced",
                    core->number);
        check_row_add(c->node->rows, &row);
    }
    if (wrong > 0 || c->n == 0)
        return;
    struct check_row row = check_row_found(
        CHECK_STAGE_NODE, CHECK_POINT_HOST, place->node, "core arithmetic", CHECK_VERDICT_PASS,
        "%d cores computed the same %s", c->n, sum ? "sums and products" : "sums");
    row.rank = place->rank;
    check_row_add(c->node->rows, &row);
}

static enum status measure_own(struct cores *c)
{
    struct thread thread;
    TRY(list_cores(c));
    /* Cores of another kind (of a hybrid processor) are compared only with one another. */
    double most = 0;
    const char *root = c->node->config->root;
    for (int i = 0; i < c->n; i++)
        most = fmax(most, core_max(root, c->core[i].number));
    for (int i = 0; i < c->n; i++)
        c->core[i].is_small = core_max(root, c->core[i].number) < SMALL_SHARE * most;
    if (c->node->config->depth != CHECK_DEPTH_QUICK) {
        TRY(dev_cpu_open(1, CPU_ISA_N, &c->dev));
        TRY(dev_stream_open(c->dev, &c->stream));
        TRY(measure_memory_open(&c->memory, c->dev, c->stream, measure_product_bytes(&product)));
        TRY(measure_memory_fill(&c->memory, DTYPE_F32));
    }
    TRY(thread_start(&thread, measure_all, c, "measures one core after the other"));
    pthread_join(thread.id, NULL);
    thread_free(&thread);
    return ST_OK;
}

/* measure_cores — measures the cores and adds the rows. A rank that failed still joins the
 * collective measurements. */
static enum status measure_cores(struct cores *c)
{
    struct status_saved saved;
    enum status st = measure_own(c);
    status_save(&saved);
    if (c->node->config->comm)
        TRY(measure_beside(c));
    status_restore(&saved);
    TRY(st);
    const int64_t all = (int64_t)c->n * c->node->config->place.ranks;
    for (int i = 0; i < c->n; i++) {
        const struct core *core = &c->core[i];
        const bool is_told = all <= ROWS_MAX || i == 0 || i == c->n / 2 || i == c->n - 1;
        if (!is_told || !(core->ghz > 0))
            continue;
        /* A fifth is not significant: turbo differs by a tenth from core to core, and from moment
         * to moment. */
        struct check_node *n = c->node;
        struct check_row row =
            check_row_measured(CHECK_STAGE_NODE, CHECK_POINT_HOST, n->config->place.node,
                               core->is_small ? "small core clock" : "core clock", "GHz", core->ghz,
                               CHECK_BETTER_HIGHER, 0.2 * core->ghz);
        row.rank = n->config->place.rank;
        text_format(row.subject, sizeof row.subject, "core %d", core->number);
        if (c->is_stolen || c->is_cleared) { /* time used by others counts as the thread's time */
            row.slack = fmax(c->peers_ghz, fmax(core->ghz, c->core[c->n - 1].ghz));
            text_format(row.why, sizeof row.why, "not compared: %s",
                        c->is_stolen
                            ? "other machines of the hypervisor had part of the cores' time"
                            : "as fast as the others while all were measured again");
        }
        text_format(row.remedy, sizeof row.remedy,
                    "cpupower -c %d frequency-info; sensors; dmesg | grep -i throttl",
                    core->number);
        check_row_add(n->rows, &row);
    }
    add_arithmetic(c);
    return ST_OK;
}

enum status check_node_core_measure(struct check_node *n)
{
    struct cores c = {.node = n};
    c.limit_ms = n->config->depth == CHECK_DEPTH_QUICK ? 1 : 5;
    enum status st = measure_cores(&c);
    measure_memory_close(&c.memory);
    dev_stream_close(c.stream);
    dev_close(c.dev);
    free(c.core);
    return st == ST_OK ? ST_OK : check_node_failed(n, "core clock", st);
}
