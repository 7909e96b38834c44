/* measure_link — see measure_link.h. */
#include "measure/measure_link.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/quantile.h"
#include "base/text.h"

#define PROBE_BYTES ((int64_t)64 << 10) /* bytes of the first slice, which is not counted */
#define PATIENCE 4     /* on a busy machine a limit ends after at most PATIENCE times its time */
#define RESENT_EVERY 8 /* pings between two checks of counts and clock */
#define SLICES_MIN 3   /* slices each way, even after the end: each link has a rate */

enum kind { PING, PUSH, PULL, END };

/* The leader's order, and the other rank's answer to it. */
struct message {
    int64_t kind, bytes;
    int64_t wall_ms, waited_ns;
    int64_t segments, resent;
    int64_t recv_waited_ns; /* part of waited_ns since the previous answer was sent */
    int64_t unused;
};

/* ---- life ---- */

enum status measure_link_open(struct measure_link *link, struct comm *comm, struct dev *dev,
                              int64_t bulk_cap)
{
    *link = (struct measure_link){.comm = comm,
                                  .rank = comm_place(comm)->rank,
                                  .dev = comm_stays_on_device(comm) ? dev : NULL,
                                  .bulk_cap = bulk_cap,
                                  .stat_fd = -1};
    link->samples = malloc(sizeof *link->samples * 2 * MEASURE_LINK_PINGS_MAX);
    if (link->samples == NULL)
        return FAIL(ST_RETRY, "out of memory: %d pings", MEASURE_LINK_PINGS_MAX);
    link->stat_fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    if (link->dev != NULL)
        return dev_alloc(link->dev, (size_t)bulk_cap, &link->bulk);
    link->bulk = calloc(1, (size_t)bulk_cap);
    return link->bulk != NULL
               ? ST_OK
               : FAIL(ST_RETRY, "out of memory: %lld bytes to send", (long long)bulk_cap);
}

void measure_link_close(struct measure_link *link)
{
    if (link->stat_fd >= 0)
        close(link->stat_fd);
    if (link->dev != NULL)
        dev_free(link->dev, link->bulk, (size_t)link->bulk_cap);
    else
        free(link->bulk);
    free(link->samples);
    *link = (struct measure_link){.stat_fd = -1};
}

/* ---- both ends ---- */

/* Returns the total time for which this thread has waited for a core. */
static int64_t waited_ns(const struct measure_link *link)
{
    char text[96];
    ssize_t n = link->stat_fd >= 0 ? pread(link->stat_fd, text, sizeof text - 1, 0) : 0;
    int64_t waited = 0;
    if (n <= 0)
        return 0;
    text[n] = 0;
    char *second = strchr(text, ' '), *end = second != NULL ? strchr(second + 1, ' ') : NULL;
    if (end != NULL)
        *end = 0;
    return end != NULL && text_parse_i64(second + 1, 0, INT64_MAX, &waited) == TEXT_OK ? waited : 0;
}

static enum status send_message(struct measure_link *link, int peer, struct message *m)
{
    return comm_send(link->comm, (struct tensor){m, DTYPE_U8}, (int64_t)sizeof *m, peer);
}

static enum status recv_message(struct measure_link *link, int peer, struct message *m)
{
    return comm_recv(link->comm, (struct tensor){m, DTYPE_U8}, (int64_t)sizeof *m, peer);
}

static enum status send_bulk(struct measure_link *link, int peer, int64_t bytes)
{
    return comm_send(link->comm, (struct tensor){link->bulk, DTYPE_U8}, bytes, peer);
}

static enum status recv_bulk(struct measure_link *link, int peer, int64_t bytes)
{
    return comm_recv(link->comm, (struct tensor){link->bulk, DTYPE_U8}, bytes, peer);
}

static void fill_answer(struct measure_link *link, int peer, struct message *m)
{
    struct comm_link tcp = {.segments_sent = -1};
    comm_link(link->comm, peer, &tcp);
    m->wall_ms = clock_wall_ms() + link->clock_offset_ms;
    m->waited_ns = waited_ns(link);
    m->segments = tcp.segments_sent;
    m->resent = tcp.segments_resent;
}

/* ---- the rank that follows ---- */

static enum status follow_leader(struct measure_link *link, int peer)
{
    for (;;) {
        struct message m;
        const int64_t before_ns = waited_ns(link);
        TRY(recv_message(link, peer, &m));
        const int64_t recv_waited_ns = waited_ns(link) - before_ns;
        if (m.kind == END)
            return ST_OK;
        if (m.bytes < 0 || m.bytes > link->bulk_cap)
            return FAIL(ST_BUG, "rank %d requests %lld bytes of %lld", peer, (long long)m.bytes,
                        (long long)link->bulk_cap);
        if (m.kind == PUSH)
            TRY(recv_bulk(link, peer, m.bytes));
        if (m.kind == PULL)
            TRY(send_bulk(link, peer, m.bytes));
        fill_answer(link, peer, &m);
        m.recv_waited_ns = recv_waited_ns;
        TRY(send_message(link, peer, &m));
    }
}

/* ---- the rank that leads ---- */

/* The state of one measurement. */
struct leader {
    struct measure_link *link;
    const struct measure_link_plan *plan;
    struct measure_link_found *found;
    int peer;
    int64_t fastest_ns;
    struct message mine, theirs; /* the counts of both ends before the current measurement */
};

/* The begin of an action. */
struct since {
    int64_t ms, waited_ns;
};

/* Sends an order; *ns_out: time until it was carried out, with a round trip. */
static enum status send_order(struct leader *l, enum kind kind, int64_t bytes,
                              struct message *answer, int64_t *ns_out)
{
    struct message m = {.kind = kind, .bytes = bytes};
    const int64_t begin_ns = clock_ns();
    TRY(send_message(l->link, l->peer, &m));
    if (kind == PUSH)
        TRY(send_bulk(l->link, l->peer, bytes));
    if (kind == PULL)
        TRY(recv_bulk(l->link, l->peer, bytes));
    int64_t end_ns = clock_ns();
    TRY(recv_message(l->link, l->peer, answer));
    *ns_out = (kind == PULL ? end_ns : clock_ns()) - begin_ns;
    return ST_OK;
}

/* Returns the retransmissions on either way since the first ping. */
static int64_t resent_so_far(struct leader *l, const struct message *answer)
{
    struct message now = {0};
    fill_answer(l->link, l->peer, &now);
    return now.resent - l->mine.resent + answer->resent - l->theirs.resent;
}

/* Returns true if the limit is over. Time in which this rank waited for a core does not count, up
 * to PATIENCE times the limit. */
static bool is_over(const struct leader *l, struct since since, int64_t limit_ms)
{
    const int64_t now_ms = clock_ms(), all_ms = now_ms - since.ms;
    const int64_t waited_ms = (waited_ns(l->link) - since.waited_ns) / 1000000;
    return now_ms >= l->plan->end_ms || all_ms >= PATIENCE * limit_ms ||
           all_ms - waited_ms >= limit_ms;
}

static struct since begin_time(const struct leader *l)
{
    return (struct since){clock_ms(), waited_ns(l->link)};
}

static bool wants_ping(struct leader *l, int n, struct since since, const struct message *answer)
{
    const struct measure_link_plan *plan = l->plan;
    const bool is_few = n < plan->pings_min;
    if (n >= plan->pings || n >= MEASURE_LINK_PINGS_MAX || (!is_few && clock_ms() >= plan->end_ms))
        return false;
    if (n == 0 || n % RESENT_EVERY != 0)
        return true;
    return resent_so_far(l, answer) < plan->resent_max &&
           (is_few || !is_over(l, since, plan->ping_ms));
}

static double find_least(const double *values, int n)
{
    double best = values[0];
    for (int i = 1; i < n; i++)
        best = values[i] < best ? values[i] : best;
    return best;
}

/* Adds TCP's counts since the last call to the counts of the pings or of the bulk. */
static void count_segments(struct leader *l, const struct message *answer, bool is_bulk)
{
    struct message now = {0};
    fill_answer(l->link, l->peer, &now);
    struct measure_link_way *to = &l->found->way[0], *back = &l->found->way[1];
    l->found->knows_segments = now.segments >= 0 && answer->segments >= 0;
    *(is_bulk ? &to->bulk_segments : &to->segments) += now.segments - l->mine.segments;
    *(is_bulk ? &to->bulk_resent : &to->resent) += now.resent - l->mine.resent;
    *(is_bulk ? &back->bulk_segments : &back->segments) += answer->segments - l->theirs.segments;
    *(is_bulk ? &back->bulk_resent : &back->resent) += answer->resent - l->theirs.resent;
    l->mine = now;
    l->theirs = *answer;
}

static enum status measure_pings(struct leader *l)
{
    struct message answer;
    const struct since since = begin_time(l);
    int64_t ns;
    /* the first ping connects, and wakes the other rank: not counted */
    TRY(send_order(l, PING, 0, &answer, &ns));
    fill_answer(l->link, l->peer, &l->mine);
    l->theirs = answer;
    int n = 0;
    for (; wants_ping(l, n, since, &answer); n++) {
        /* Measures one ping, as the n-th sample. */
        const int64_t wall_ms = clock_wall_ms() + l->link->clock_offset_ms;
        const int64_t before_ns = waited_ns(l->link);
        int64_t round_ns;
        TRY(send_order(l, PING, 0, &answer, &round_ns));
        const int64_t mine_ns = waited_ns(l->link) - before_ns;
        const int64_t net_ns = round_ns - mine_ns - answer.recv_waited_ns;
        /* Compares the wall clocks by the fastest ping: the other rank read its clock about in the
         * middle. */
        if (l->fastest_ns == 0 || round_ns < l->fastest_ns) {
            l->fastest_ns = round_ns;
            l->found->offset_ms = answer.wall_ms - wall_ms - round_ns / 2000000;
        }
        l->link->samples[n] = (double)round_ns * 0.5e-3;
        l->link->samples[MEASURE_LINK_PINGS_MAX + n] =
            (double)(net_ns > round_ns / 20 ? net_ns : round_ns / 20) * 0.5e-3;
    }
    /* Sorts half of the round trips, and finds the shortest without the waits for a core. Of these
     * a few of the least are omitted: a rank that polls waits for a core while the ping is on its
     * way. */
    double *us = l->link->samples, *net_us = us + MEASURE_LINK_PINGS_MAX;
    l->found->early_us = find_least(us, n < MEASURE_LINK_EARLY ? n : MEASURE_LINK_EARLY);
    quantile_sort(us, n);
    quantile_sort(net_us, n);
    l->found->pings = n;
    l->found->best_us = us[0];
    l->found->p50_us = quantile_of(us, n, 0.5);
    l->found->p99_us = quantile_of(us, n, 0.99);
    l->found->net_us = net_us[n / 20];
    count_segments(l, &answer, false);
    return ST_OK;
}

/* Returns the size of a slice of the plan's slice_ms at this rate, in whole KiB. */
static int64_t slice_bytes(const struct leader *l, double rate)
{
    double bytes = rate * 1e6 * (double)l->plan->slice_ms;
    if (bytes > (double)l->link->bulk_cap)
        bytes = (double)l->link->bulk_cap;
    return bytes < PROBE_BYTES ? PROBE_BYTES : (int64_t)bytes / 1024 * 1024;
}

struct slice {
    double rate, rate_max; /* GB/s */
};

static enum status run_slice(struct leader *l, enum kind kind, int64_t bytes, struct slice *out)
{
    struct message answer;
    const int64_t before_ns = waited_ns(l->link), theirs_ns = l->theirs.waited_ns;
    int64_t ns;
    TRY(send_order(l, kind, bytes, &answer, &ns));
    const double all = (double)ns;
    const double trip = 2e3 * l->found->best_us;
    const double mine = (double)(waited_ns(l->link) - before_ns);
    const double theirs = (double)(answer.waited_ns - theirs_ns);
    const double elapsed = all - (trip < all / 2 ? trip : all / 2);
    const double rest = elapsed - mine - theirs; /* each may have waited while the other did not */
    out->rate = (double)bytes / elapsed;
    out->rate_max = (double)bytes / (rest > all / 20 ? rest : all / 20);
    count_segments(l, &answer, true);
    return ST_OK;
}

/* Measures one way. The first slices grow until they have their length; the best slices are
 * kept. */
static enum status run_slices(struct leader *l, enum kind kind)
{
    struct measure_link_way *way = &l->found->way[kind == PUSH ? 0 : 1];
    struct slice slices[MEASURE_LINK_SLICES_MAX], probe;
    const struct since since = begin_time(l);
    int n = 0;
    TRY(run_slice(l, kind, PROBE_BYTES, &probe));
    int64_t bytes = slice_bytes(l, probe.rate_max);
    for (; n < l->plan->slices && n < MEASURE_LINK_SLICES_MAX; n++) {
        if (n >= SLICES_MIN && is_over(l, since, l->plan->bulk_ms))
            break;
        TRY(run_slice(l, kind, bytes, &slices[n]));
        way->bulk_bytes += bytes;
        bytes = slice_bytes(l, slices[n].rate_max);
    }
    double rates[MEASURE_LINK_SLICES_MAX];
    for (int i = 0; i < n; i++) {
        rates[i] = slices[i].rate;
        if (slices[i].rate > way->rate) {
            way->rate = slices[i].rate;
            way->rate_max = slices[i].rate_max;
        }
    }
    quantile_sort(rates, n);
    way->spread = n >= SLICES_MIN ? (way->rate - quantile_of(rates, n, 0.5)) / way->rate : 1;
    return ST_OK;
}

static enum status lead_peer(struct measure_link *link, int peer,
                             const struct measure_link_plan *plan, struct measure_link_found *found)
{
    struct leader l = {.link = link, .plan = plan, .found = found, .peer = peer};
    struct message end = {.kind = END};
    found->a = link->rank;
    found->b = peer;
    TRY(measure_pings(&l)); /* measures a few even after the end: each link has a latency */
    if (plan->slices > 0) {
        TRY(run_slices(&l, PUSH));
        TRY(run_slices(&l, PULL));
    }
    return send_message(link, peer, &end);
}

enum status measure_link_measure(struct measure_link *link, int peer,
                                 const struct measure_link_plan *plan,
                                 struct measure_link_found *found)
{
    *found = (struct measure_link_found){0};
    return link->rank < peer ? lead_peer(link, peer, plan, found) : follow_leader(link, peer);
}
