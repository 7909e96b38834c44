/* clocks — vector clocks of streams, events and the host (Lamport's order; the histories are those
 * of FastTrack, Flanagan and Freund 2009). They find two operations on the same bytes that no wait
 * orders, whatever the order in which they were called. For runtime.h.
 *
 *   time     a count of operations for each stream. An operation is before a time if that time's
 *            count of its stream has reached the operation's number
 *   stream   its time grows with each operation, with each event that it waits for, and with the
 *            host's time when it is given an operation
 *   event    the times of its stream and of the host when it was recorded
 *   host     all operations that it has waited for. Its threads share one time, because their own
 *            locks are not seen: an order that threads could have made counts as one
 *   memory   each allocation is cut into ranges with one history: the last write, and the reads
 *            since then that are not before each other. An access that is not ordered with an
 *            earlier write is not ordered with the last one either, or that was reported
 *
 * Two accesses to one byte, at least one of them a write, are a race unless the first operation is
 * before the second. The program ends with both operations, their streams and the bytes. Accesses
 * of the host itself are not seen. */
#ifndef CONVOY_TESTS_CLOCKS_H
#define CONVOY_TESTS_CLOCKS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/emu/emu_touch.h"

#define CLOCKS_STREAMS 128 /* that are open, or whose work the host has not waited for */
#define CLOCKS_READERS 6

struct clocks_time {
    uint32_t at[CLOCKS_STREAMS];
};
/* An operation: the at-th in its stream's slot; 0: none. */
struct clocks_op {
    const void *who; /* a name, or the address of a kernel; NULL: work of a test */
    uint32_t at, number, stream_number; /* number: in its stream, from 1 */
    uint16_t stream;
    bool is_kernel, is_in_graph;
};
/* Bytes from here to the next range. */
struct clocks_range {
    size_t from;
    struct clocks_op write, read[CLOCKS_READERS];
    int reads_n;
};
struct clocks_block {
    const char *data, *what;
    size_t bytes;
    struct clocks_range *range;
    int n, cap;
};
static struct {
    struct clocks_time host;
    struct {
        struct clocks_time time;
        uint32_t number, first; /* in the order of opening; time.at of the slot at opening */
        bool is_open;
    } stream[CLOCKS_STREAMS]; /* the first is the NULL stream */
    int streams_n;            /* slots that were ever used, after the first */
    uint32_t opened_n;
    struct clocks_block *block;
    int blocks_n, block_at; /* block_at: of the last search */
    bool is_kept;           /* a test reads the report; else the program ends */
    char report[512];       /* the first since a test emptied it */
} clocks;

/* ---- order ---- */

static void clocks_join(struct clocks_time *time, const struct clocks_time *with)
{
    for (int i = 0; i <= clocks.streams_n; i++)
        if (time->at[i] < with->at[i])
            time->at[i] = with->at[i];
}

/* Returns the slot of a new stream. The slot of a closed one is free when the host has waited for
 * its work. */
static int clocks_open(void)
{
    int i = 1;
    while (i <= clocks.streams_n &&
           (clocks.stream[i].is_open || clocks.host.at[i] < clocks.stream[i].time.at[i]))
        i++;
    if (i == CLOCKS_STREAMS) {
        fprintf(stderr, "# clocks: more than %d streams\n", CLOCKS_STREAMS - 1);
        abort();
    }
    clocks.streams_n = i > clocks.streams_n ? i : clocks.streams_n;
    clocks.stream[i].number = ++clocks.opened_n;
    clocks.stream[i].first = clocks.stream[i].time.at[i];
    clocks.stream[i].is_open = true;
    return i;
}

static void clocks_close(int stream) { clocks.stream[stream].is_open = false; }

static void clocks_record(struct clocks_time *event, int stream)
{
    *event = clocks.stream[stream].time;
    clocks_join(event, &clocks.host);
}

static void clocks_wait(int stream, const struct clocks_time *event)
{
    clocks_join(&clocks.stream[stream].time, event);
}

static void clocks_host_waited(const struct clocks_time *time) { clocks_join(&clocks.host, time); }

static void clocks_host_waited_stream(int stream)
{
    clocks_host_waited(&clocks.stream[stream].time);
}

/* Freeing memory waits for the device. */
static void clocks_host_waited_all(void)
{
    for (int i = 0; i <= clocks.streams_n; i++)
        clocks_host_waited_stream(i);
}

/* ---- memory ---- */

static void clocks_add_block(const void *data, size_t bytes, const char *what)
{
    clocks.block = realloc(clocks.block, (size_t)(clocks.blocks_n + 1) * sizeof *clocks.block);
    struct clocks_block *p = &clocks.block[clocks.blocks_n++];
    *p = (struct clocks_block){data, what, bytes, calloc(1, sizeof *p->range), 1, 1};
}

static void clocks_drop_block(const void *data)
{
    for (int i = 0; i < clocks.blocks_n; i++)
        if (clocks.block[i].data == data) {
            free(clocks.block[i].range);
            clocks.block[i] = clocks.block[--clocks.blocks_n];
            clocks.block_at = 0;
            return;
        }
    abort();
}

/* Returns NULL for memory of the host that is not pinned. */
static struct clocks_block *clocks_find(const char *at)
{
    for (int i = 0; i < clocks.blocks_n; i++) {
        struct clocks_block *p = &clocks.block[(clocks.block_at + i) % clocks.blocks_n];
        if ((size_t)(at - p->data) < p->bytes) {
            clocks.block_at = (int)(p - clocks.block);
            return p;
        }
    }
    return NULL;
}

/* Returns the range that begins at this offset, which may be the end of the block. */
static int clocks_split(struct clocks_block *p, size_t offset)
{
    int low = 0, high = p->n; /* ranges before low begin before offset */
    while (low < high) {
        int mid = (low + high) / 2;
        if (p->range[mid].from < offset)
            low = mid + 1;
        else
            high = mid;
    }
    if (offset >= p->bytes || (low < p->n && p->range[low].from == offset))
        return low;
    if (p->n == p->cap) {
        p->cap *= 2;
        p->range = realloc(p->range, (size_t)p->cap * sizeof *p->range);
    }
    memmove(&p->range[low + 1], &p->range[low], (size_t)(p->n - low) * sizeof *p->range);
    p->n++;
    p->range[low] = p->range[low - 1];
    p->range[low].from = offset;
    return low;
}

static bool clocks_is_same(const struct clocks_range *a, const struct clocks_range *b)
{
    bool is_same = a->reads_n == b->reads_n && a->write.at == b->write.at &&
                   a->write.stream == b->write.stream;
    for (int i = 0; is_same && i < a->reads_n; i++)
        is_same = a->read[i].at == b->read[i].at && a->read[i].stream == b->read[i].stream;
    return is_same;
}

/* Makes one range of neighbours from `first` to before `end` that have the same history. */
static void clocks_unite(struct clocks_block *p, int first, int end)
{
    int to = first;
    for (int i = first + 1; i < end; i++)
        if (!clocks_is_same(&p->range[to], &p->range[i]) && ++to != i)
            p->range[to] = p->range[i];
    if (to + 1 == end)
        return;
    memmove(&p->range[to + 1], &p->range[end], (size_t)(p->n - end) * sizeof *p->range);
    p->n -= end - to - 1;
}

/* ---- races ---- */

static const char *clocks_name(const struct clocks_op *op)
{
    return op->is_kernel ? emu_kernel_name(op->who) : op->who ? op->who : "work of a test";
}

static void clocks_text(char *out, size_t cap, const struct clocks_op *op, bool is_write)
{
    char stream[32] = "the NULL stream";
    if (op->stream > 0)
        snprintf(stream, sizeof stream, "stream %u", op->stream_number);
    snprintf(out, cap, "%s%s (operation %u of %s) %s", clocks_name(op),
             op->is_in_graph ? " in a graph" : "", op->number, stream,
             is_write ? "writes" : "reads");
}

static void clocks_report(const struct clocks_block *p, size_t from, size_t to,
                          const struct clocks_op *first, bool is_first_write,
                          const struct clocks_op *then, bool is_then_write)
{
    char a[200], b[200], text[sizeof clocks.report];
    clocks_text(a, sizeof a, first, is_first_write);
    clocks_text(b, sizeof b, then, is_then_write);
    snprintf(text, sizeof text,
             "no wait orders two operations on bytes %zu to %zu of %zu bytes of %s at %p: %s, and "
             "%s",
             from, to - 1, p->bytes, p->what, (const void *)p->data, a, b);
    if (!clocks.report[0])
        memcpy(clocks.report, text, sizeof text);
    if (clocks.is_kept)
        return;
    fprintf(stderr, "# %s\n", text);
    abort();
}

static bool clocks_is_before(const struct clocks_op *op, const struct clocks_time *time)
{
    return op->at <= time->at[op->stream];
}

static void clocks_add_reader(struct clocks_range *r, const struct clocks_op *op,
                              const struct clocks_time *time)
{
    int n = 0;
    for (int i = 0; i < r->reads_n; i++)
        if (!clocks_is_before(&r->read[i], time))
            r->read[n++] = r->read[i];
    if (n == CLOCKS_READERS) {
        fprintf(stderr, "# clocks: more than %d reads that nothing orders; raise CLOCKS_READERS\n",
                CLOCKS_READERS);
        abort();
    }
    r->read[n++] = *op;
    r->reads_n = n;
}

static void clocks_access(const struct clocks_op *op, const struct clocks_time *time,
                          struct clocks_block *p, size_t from, size_t to, bool is_write)
{
    const int first = clocks_split(p, from), end = clocks_split(p, to);
    for (int i = first; i < end; i++) {
        struct clocks_range *r = &p->range[i];
        size_t next = i + 1 < p->n ? p->range[i + 1].from : p->bytes;
        if (!clocks_is_before(&r->write, time))
            clocks_report(p, r->from, next, &r->write, true, op, is_write);
        for (int k = 0; is_write && k < r->reads_n; k++)
            if (!clocks_is_before(&r->read[k], time))
                clocks_report(p, r->from, next, &r->read[k], false, op, true);
        if (is_write)
            r->write = *op, r->reads_n = 0;
        else
            clocks_add_reader(r, op, time);
    }
    clocks_unite(p, first > 0 ? first - 1 : 0, end < p->n ? end + 1 : p->n);
}

/* Checks and keeps the accesses of an operation, the newest of its stream: reads come first. */
static void clocks_operate(int stream, bool is_in_graph, struct emu_touch_op touched)
{
    struct clocks_time *time = &clocks.stream[stream].time;
    clocks_join(time, &clocks.host);
    const uint32_t at = ++time->at[stream];
    const struct clocks_op op = {touched.kernel ? touched.kernel : touched.who,
                                 at,
                                 at - clocks.stream[stream].first,
                                 clocks.stream[stream].number,
                                 (uint16_t)stream,
                                 touched.kernel != NULL,
                                 is_in_graph};
    for (int is_write = 0; is_write < 2; is_write++)
        for (int i = 0; i < touched.n; i++) {
            const struct emu_touch_range *t = &touched.touch[i];
            struct clocks_block *p = t->is_write == is_write ? clocks_find(t->at) : NULL;
            if (!p)
                continue;
            size_t from = (size_t)(t->at - p->data), left = p->bytes - from;
            clocks_access(&op, time, p, from, from + (t->bytes < left ? t->bytes : left), is_write);
        }
}

#endif
