/* rehearse_flip — inverts a bit of a parameter in the host memory of a running worker, as failing
 * memory would. It does so from outside, with the access that a process has to its descendants. The
 * workers' boards hold the addresses of the parameters. Memory of a GPU belongs to its worker only,
 * which inverts the bit itself (board_flip_order). Must not know when. */
#include "node/rehearse/nodes.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "base/bit_flip.h"
#include "base/text.h"

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
                  "no worker has parameters in which SENTINEL_EVERY finds a change; it finds one "
                  "with an optimizer that has moments, or with three workers and SHARD=none");
    else if (!first->is_on_device && !read_at(first, first->address, &value, sizeof value))
        text_format(out, cap,
                    "the memory of a worker cannot be reached (%s): see seccomp and "
                    "kernel.yama.ptrace_scope",
                    strerror(errno));
    return out;
}

/* ---- a flip ---- */

static bool read_elem(void *arg, int64_t elem, float *out)
{
    const struct rehearse_replica *r = arg;
    return read_at(r, r->address + 4 * (uint64_t)elem, out, sizeof *out);
}

int rehearse_flip(const struct rehearse_replica *replicas, int n, uint64_t choice, char *out,
                  size_t cap)
{
    struct bit_flip flip;
    if (n == 0)
        return -1;
    struct rehearse_replica r = replicas[choice % (uint64_t)n];
    if (!bit_flip_choose(choice, r.elems, read_elem, &r, &flip))
        return -1;
    struct iovec here = {&flip.after, sizeof flip.after},
                 there = {(void *)(uintptr_t)(r.address + 4 * (uint64_t)flip.elem),
                          sizeof flip.after};
    if (process_vm_writev((pid_t)r.pid, &here, 1, &there, 1, 0) != (ssize_t)sizeof flip.after)
        return -1;
    rehearse_flip_text(r.rank, &flip, out, cap);
    return r.rank;
}

void rehearse_flip_text(int rank, const struct bit_flip *flip, char *out, size_t cap)
{
    text_format(out, cap, "bit %d of parameter %lld of rank %d: was %g, is %g", flip->bit,
                (long long)flip->elem, rank, (double)flip->before, (double)flip->after);
}
