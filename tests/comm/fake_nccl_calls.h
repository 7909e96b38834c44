/* fake_nccl_calls — the collectives, messages and groups of fake_nccl.c: what is checked when they
 * are called. Included by fake_nccl.c only. */
#ifndef CONVOY_TESTS_COMM_FAKE_NCCL_CALLS_H
#define CONVOY_TESTS_COMM_FAKE_NCCL_CALLS_H

int ncclGroupStart(void)
{
    group_depth++;
    return SUCCESS;
}

int ncclGroupEnd(void)
{
    if (--group_depth > 0)
        return SUCCESS;
    for (ncclComm_t comm = grouped; comm; comm = comm->next_grouped)
        comm->is_busy = 1;
    grouped = NULL;
    return IN_PROGRESS;
}

static int is_inside(const struct op *op, const void *data, size_t n)
{
    const char *p = data;
    return p >= knobs.base && p + n * bytes_of(op->type) <= knobs.base + knobs.bytes;
}

/* The arguments of a call, as the real library checks them, and more. */
static int is_right(const struct ncclComm *comm, const struct op *op)
{
    size_t ranks = (size_t)comm->world->n;
    int is_root = op->peer == comm->rank,
        is_sum = op->kind == ALL_REDUCE || op->kind == REDUCE || op->kind == REDUCE_SCATTER;
    size_t in_n = op->kind == REDUCE_SCATTER ? op->n * ranks : op->n,
           out_n = op->kind == ALL_GATHER ? op->n * ranks : op->n;
    int has_in = op->kind != RECV && (op->kind != BROADCAST || is_root),
        has_out = op->kind != SEND && (op->kind != REDUCE || is_root);
    if (op->n == 0 || op->stream == NULL || op->peer < 0 || op->peer >= comm->world->n)
        return 0;
    if (is_sum ? op->type < 6 || op->type > 9 : op->type != 1)
        return 0;
    if (comm->stream != NULL && comm->stream != op->stream)
        return 0;
    return (!has_in || is_inside(op, op->in, in_n)) && (!has_out || is_inside(op, op->out, out_n));
}

static int say(ncclComm_t comm, struct op op)
{
    int refusal = atomic_exchange(&knobs.refuses_next, 0);
    if (refusal != 0)
        return refusal;
    ALONE(comm);
    pthread_mutex_lock(&mutex);
    int result = comm->result, is_misused = result != SUCCESS || comm->is_busy ||
                                            comm->is_finalized || comm->pending_n == OPS ||
                                            !is_right(comm, &op);
    if (!is_misused) {
        comm->pending[comm->pending_n++] = op;
        comm->stream = op.stream;
    }
    if (!is_misused && group_depth == 0) {
        comm->is_busy = 1;
    } else if (!is_misused && grouped != comm) {
        comm->next_grouped = grouped;
        grouped = comm;
    }
    pthread_mutex_unlock(&mutex);
    if (result != SUCCESS)
        return result;
    if (is_misused) {
        atomic_fetch_add(&knobs.misused_n, 1);
        return INVALID_ARGUMENT;
    }
    return comm->rank % 2 == 0 ? IN_PROGRESS : SUCCESS; /* SUCCESS must not be relied on */
}

int ncclAllReduce(const void *in, void *out, size_t n, int type, int op, ncclComm_t comm,
                  void *stream)
{
    return op != 0 ? misused() : say(comm, (struct op){ALL_REDUCE, in, out, n, type, 0, stream, 0});
}
int ncclReduce(const void *in, void *out, size_t n, int type, int op, int root, ncclComm_t comm,
               void *stream)
{
    return op != 0 ? misused() : say(comm, (struct op){REDUCE, in, out, n, type, root, stream, 0});
}
int ncclReduceScatter(const void *in, void *out, size_t n, int type, int op, ncclComm_t comm,
                      void *stream)
{
    return op != 0 ? misused()
                   : say(comm, (struct op){REDUCE_SCATTER, in, out, n, type, 0, stream, 0});
}
int ncclAllGather(const void *in, void *out, size_t n, int type, ncclComm_t comm, void *stream)
{
    return say(comm, (struct op){ALL_GATHER, in, out, n, type, 0, stream, 0});
}
int ncclBroadcast(const void *in, void *out, size_t n, int type, int root, ncclComm_t comm,
                  void *stream)
{
    return say(comm, (struct op){BROADCAST, in, out, n, type, root, stream, 0});
}
int ncclSend(const void *data, size_t n, int type, int peer, ncclComm_t comm, void *stream)
{
    return say(comm, (struct op){SEND, data, NULL, n, type, peer, stream, 0});
}
int ncclRecv(void *data, size_t n, int type, int peer, ncclComm_t comm, void *stream)
{
    return say(comm, (struct op){RECV, NULL, data, n, type, peer, stream, 0});
}

#endif
