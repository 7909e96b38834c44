/* rehearse_flip — inverts a bit of a parameter in the memory of a running worker, as failing memory
 * would. It does so from outside, with the access that a process has to its descendants. The
 * workers' boards hold the addresses of the parameters. Must not know when. */
#include "node/rehearse/nodes.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/uio.h>

#include "base/rand.h"
#include "base/text.h"

/* Limits of a parameter's magnitude. If a parameter is far smaller, the next update would hide its
 * change. */
#define LEAST 1e-3f
#define MOST 1e3f
#define TRIES 1000
/* Lower bits change a parameter by less than a thousandth, which rounding may undo. */
#define BIT_FIRST 14
#define BITS 18

enum { ELEM_STREAM = 16 }; /* differs from the streams of the plan */

/* ---- memory of another process ---- */

static bool read_at(const struct rehearse_replica *r, uint64_t address, void *to, size_t n)
{
    struct iovec here = {to, n}, there = {(void *)(uintptr_t)address, n};
    return process_vm_readv((pid_t)r->pid, &here, 1, &there, 1, 0) == (ssize_t)n;
}

const char *rehearse_flip_refused(const struct rehearse_replica *first, char *out, size_t cap)
{
    float value;
    out[0] = 0;
    if (first->elems <= 0)
        text_copy(out, cap,
                  "no worker has parameters in host memory in which SENTINEL_EVERY finds a change; "
                  "it finds one with DEVICE=cpu and SHARD=none or full");
    else if (!read_at(first, first->address, &value, sizeof value))
        text_format(out, cap,
                    "the memory of a worker cannot be reached (%s): see seccomp and "
                    "kernel.yama.ptrace_scope",
                    strerror(errno));
    return out;
}

/* ---- a flip ---- */

/* choose_elem — chooses an element of ordinary size. Returns false if the worker has ended, or has
 * no such element. */
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

int rehearse_flip(const struct rehearse_replica *replicas, int n, uint64_t choice, char *out,
                  size_t cap)
{
    int64_t elem;
    float before;
    const int bit = BIT_FIRST + (int)((choice >> 32) % BITS);
    const struct rehearse_replica *r = n > 0 ? &replicas[choice % (uint64_t)n] : NULL;
    if (r == NULL || !choose_elem(r, choice, &elem, &before))
        return -1;
    float after = before;
    uint32_t word;
    memcpy(&word, &after, sizeof word);
    word ^= 1u << bit;
    memcpy(&after, &word, sizeof word);
    struct iovec here = {&word, sizeof word},
                 there = {(void *)(uintptr_t)(r->address + 4 * (uint64_t)elem), sizeof word};
    if (process_vm_writev((pid_t)r->pid, &here, 1, &there, 1, 0) != (ssize_t)sizeof word)
        return -1;
    text_format(out, cap, "bit %d of parameter %lld of rank %d: was %g, is %g", bit,
                (long long)elem, r->rank, (double)before, (double)after);
    return r->rank;
}
