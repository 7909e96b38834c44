/* muon — the update of hidden matrices by orthogonalised momentum (Jordan et al. 2024; the same as
 * torch.optim.Muon with adjust_lr_fn "match_rms_adamw", apart from rounding).
 *
 *   m ← μ·m + g;  u = μ·m + g                                            (Nesterov)
 *   X = u/(‖u‖ + 1e-6);  5 times: A = X·Xᵀ, X ← a·X + (b·A + c·A²)·X     (Newton–Schulz)
 *   p ← p·(1 - lr·wd) - lr·0.2·√max(rows, columns)·X
 *   a, b, c = 3.4445, -4.7750, 2.0315
 *
 * - The matrices that lie in one tensor (param_matrices) are orthogonalised one by one, each whole
 *   and on one rank, in fp32. So all ranks get the same bits, and these depend neither on the
 *   number of ranks nor on SHARD.
 * - All is made of the device's operations: products, and `sgd`, which is p ← b·p + a·g there.
 * - The factor that clips gradients multiplies g. If it is NaN, nothing changes.
 *
 * It must not know how moments are sharded (store.h) or what the other tensors' update is. */
#ifndef CONVOY_TRAIN_MUON_H
#define CONVOY_TRAIN_MUON_H

#include "base/arena.h"
#include "dev/op.h"
#include "mesh/store/store.h"
#include "model/param.h"

#define MUON_MOMENTUM 0.95 /* unless the user sets one */

/* Device memory, f32 and f64: x, y: the largest hidden tensor of a table; gram, square: the smaller
 * side of the largest matrix, squared. */
struct muon_room {
    struct tensor x, y, gram, square;
    struct tensor sums, factor, unit; /* f64: (1), (2), (2) */
};

struct muon {
    const struct op_table *op;
    struct stream *stream;
    const struct param_table *table;
    const struct muon_room *room;
    struct tensor grad_scale; /* as the optimisers' (kernels/adamw.h) */
    double momentum, weight_decay, lr;
    int64_t step;                 /* from 1 */
    void (*heartbeat)(void *arg); /* after each matrix; may be NULL */
    void *heartbeat_arg;
};

/* muon_take — the memory for the hidden matrices of a table; none has none. */
struct muon_room muon_take(struct arena *arena, const struct param_table *table);
/* muon_orthogonalise — `factor` times what the iteration makes of the rows × columns matrix in
 * room->x. *out: x or y of the room; the rest of the room is overwritten. NaN in unit[0]: zeros.
 * For muon_update, and for tests. */
enum status muon_orthogonalise(const struct muon *m, int64_t rows, int64_t columns, double factor,
                               struct tensor *out);
/* muon_update — the hidden matrices of a bucket, after the update of its other tensors. */
enum status muon_update(const struct muon *m, struct store *store, int bucket);

#endif
