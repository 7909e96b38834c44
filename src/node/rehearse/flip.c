/* rehearse_flip — see rehearse/flip.h. */
#include "node/rehearse/flip.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/uio.h>

#include "base/rand.h"
#include "base/text.h"
#include "train/feature/sentinel_line.h"

/* The next update would swallow a change of a parameter that is far smaller than it. */
#define LEAST 1e-3f
#define MOST 1e3f
#define TRIES 1000
/* Bits below change a parameter by less than a thousandth, which rounding may undo. */
#define BIT_FIRST 14
#define BITS 18

enum { ELEM_STREAM = 16 }; /* beside those of the plan */

/* ---- log lines ---- */

/* number_after — the digits behind a word; -1: the text has no such word, or no digits there. */
static int64_t number_after(const char *text, const char *word)
{
    char digits[24];
    int64_t number;
    const char *at = strstr(text, word);
    if (at == NULL)
        return -1;
    at += strlen(word);
    text_format(digits, sizeof digits, "%.*s", (int)strspn(at, "0123456789"), at);
    return text_parse_i64(digits, 0, INT64_MAX, &number) == TEXT_OK ? number : -1;
}

void rehearse_flip_note(struct rehearse_flips *flips, int node, int rank, const char *message)
{
    if (rank < 0 || rank >= REHEARSE_RANKS_MAX)
        return;
    flips->rank[rank] = (struct rehearse_replica){
        .node = node,
        .pid = number_after(message, SENTINEL_LINE_PROCESS),
        .elems = number_after(message, SENTINEL_LINE_ELEMS),
        .address = (uint64_t)number_after(message, SENTINEL_LINE_ADDRESS),
    };
}

void rehearse_flip_forget(struct rehearse_flips *flips, int node)
{
    for (int rank = 0; rank < REHEARSE_RANKS_MAX; rank++)
        if (flips->rank[rank].node == node)
            flips->rank[rank].pid = 0;
}

int rehearse_flip_named(const char *message)
{
    const bool is_named = strstr(message, SENTINEL_LINE_DIFFER) != NULL ||
                          strstr(message, SENTINEL_LINE_CHANGED) != NULL;
    return is_named ? (int)number_after(message, SENTINEL_LINE_OF_RANK) : -1;
}

/* ---- memory of another process ---- */

static bool read_at(const struct rehearse_replica *r, uint64_t address, void *to, size_t n)
{
    struct iovec here = {to, n}, there = {(void *)(uintptr_t)address, n};
    return process_vm_readv((pid_t)r->pid, &here, 1, &there, 1, 0) == (ssize_t)n;
}

const char *rehearse_flip_refused(const struct rehearse_flips *flips, char *out, size_t cap)
{
    float value;
    const struct rehearse_replica *first = &flips->rank[0];
    out[0] = 0;
    if (first->pid <= 0)
        text_copy(out, cap,
                  "no worker has parameters in host memory of which SENTINEL_EVERY finds a change; "
                  "it does with DEVICE=cpu SHARD=none or full");
    else if (!read_at(first, first->address, &value, sizeof value))
        text_format(out, cap,
                    "the memory of a worker cannot be reached (%s): see seccomp and "
                    "kernel.yama.ptrace_scope",
                    strerror(errno));
    return out;
}

/* ---- a flip ---- */

/* choose_worker — of a node; -1: none is known. */
static int choose_worker(const struct rehearse_flips *flips, int node, uint64_t choice)
{
    int ranks[REHEARSE_RANKS_MAX], n = 0;
    for (int rank = 0; rank < REHEARSE_RANKS_MAX; rank++)
        if (flips->rank[rank].pid > 0 && flips->rank[rank].node == node)
            ranks[n++] = rank;
    return n > 0 ? ranks[choice % (uint64_t)n] : -1;
}

/* choose_elem — one of ordinary size; false: the worker has ended, or has none. */
static bool choose_elem(const struct rehearse_replica *r, uint64_t choice, int64_t *elem,
                        float *value)
{
    for (int i = 0; i < TRIES; i++) {
        *elem = (int64_t)rand_below(choice, RAND_STREAM(REHEARSE, ELEM_STREAM), (uint64_t)i,
                                    (uint64_t)r->elems);
        if (!read_at(r, r->address + 4 * (uint64_t)*elem, value, sizeof *value))
            return false;
        if (fabsf(*value) >= LEAST && fabsf(*value) <= MOST)
            return true;
    }
    return false;
}

int rehearse_flip(const struct rehearse_flips *flips, int node, uint64_t choice, char *out,
                  size_t cap)
{
    int64_t elem;
    float before;
    int rank = choose_worker(flips, node, choice), bit = BIT_FIRST + (int)((choice >> 32) % BITS);
    if (rank < 0 || !choose_elem(&flips->rank[rank], choice, &elem, &before))
        return -1;
    float after = before;
    uint32_t word;
    memcpy(&word, &after, sizeof word);
    word ^= 1u << bit;
    memcpy(&after, &word, sizeof word);
    const struct rehearse_replica *r = &flips->rank[rank];
    struct iovec here = {&word, sizeof word},
                 there = {(void *)(uintptr_t)(r->address + 4 * (uint64_t)elem), sizeof word};
    if (process_vm_writev((pid_t)r->pid, &here, 1, &there, 1, 0) != (ssize_t)sizeof word)
        return -1;
    text_format(out, cap, "bit %d of parameter %lld of rank %d: was %g, is %g", bit,
                (long long)elem, rank, (double)before, (double)after);
    return rank;
}
