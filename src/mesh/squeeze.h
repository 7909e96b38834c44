/* squeeze — gradients that are compressed on the way from rank to rank.
 *
 * Every rank quantises its gradient of a piece part by part, each part goes to its owner, the owner
 * adds what the parts say in the order of order.h, quantises the sum, and everybody (or the owner
 * alone) takes what that says: so all ranks hold the same bits, whatever they keep. What INT8 lost
 * is added to the next step's gradient, by the sender for its own, by the owner for the sum (error
 * feedback: Seide et al. 2014; Karimireddy et al. 2019; on both sides as in 1-bit Adam, Tang et al.
 * 2021). What was lost last is no part of a checkpoint: a resumed run begins with none.
 *
 * All of it runs in the comm's thread, piece after piece, on a CPU of one thread of its own;
 * gradients that lie in the memory of a GPU are brought here and back. Must not know units, steps
 * or whose gradient it is. */
#ifndef CONVOY_MESH_SQUEEZE_H
#define CONVOY_MESH_SQUEEZE_H

#include "comm/comm.h"

enum squeeze_kind { SQUEEZE_KIND_NONE, SQUEEZE_KIND_BF16, SQUEEZE_KIND_INT8 };

struct squeeze_config {
    struct comm *comm;
    struct dev *dev;        /* in whose memory gradients lie; NULL: the host's */
    enum squeeze_kind kind; /* not NONE */
    /* pieces from here on: squeeze_gather_begin is used, and what that needs is kept */
    int late_first;
    int pieces_n;
    const int64_t *piece_elems;
};

struct squeeze;
enum status squeeze_open(const struct squeeze_config *config, struct squeeze **out);
void squeeze_close(struct squeeze *q);          /* accepts NULL; the comm's thread is at rest */
int64_t squeeze_bytes(const struct squeeze *q); /* memory taken */
/* squeeze_plan — the same before it is taken, for one of `ranks` whose memory is apart from the
 * host's or not. Of the config kind, late_first and pieces are looked at. */
int64_t squeeze_plan(const struct squeeze_config *config, int rank, int ranks, bool is_apart);

/* squeeze_begin — the sum over ranks of piece `piece`, at `from` (its gradient, f32): to_all gets
 * all of it; to_own, when to_all is NULL, this rank's part (order_extent). Either may lie in
 * `from`. from and to belong to the call until the ticket is waited for. */
enum status squeeze_begin(struct squeeze *q, int piece, const float *from, float *to_all,
                          float *to_own, struct comm_ticket *ticket);

/* squeeze_gather_begin — the other ranks' parts of a piece whose own part came into its place in
 * to_all, after that has been waited for. to_all belongs to the call until the ticket is waited
 * for. */
enum status squeeze_gather_begin(struct squeeze *q, int piece, float *to_all,
                                 struct comm_ticket *ticket);

#endif
