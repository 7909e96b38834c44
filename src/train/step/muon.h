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
 * - All work is done with the device's operations: products, and `sgd`, which computes p ← b·p +
 *   a·g.
 * - The factor that clips gradients multiplies g. If it is NaN, nothing changes.
 *
 * It must not know how moments are sharded (store.h) or how other tensors are updated. */
#ifndef CONVOY_TRAIN_MUON_H
#define CONVOY_TRAIN_MUON_H

#include "base/arena.h"
#include "dev/op.h"
#include "mesh/store/store.h"
#include "model/param.h"

#define MUON_MOMENTUM 0.95 /* unless the user sets one */

/* Device memory, f32 and f64. x, y: room for the largest hidden tensor of a table. gram, square:
 * the smaller side of the largest matrix, squared. */
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

/* muon_alloc — allocates the memory for the hidden matrices of a table; nothing if it has none. */
struct muon_room muon_alloc(struct arena *arena, const struct param_table *table);
/* muon_orthogonalise — orthogonalises the rows × columns matrix in room->x by the iteration above,
 * and multiplies it by `factor`. *out: x or y of the room; the rest of the room is overwritten. If
 * unit[0] is NaN the result is zero. For muon_update, and for tests. */
enum status muon_orthogonalise(const struct muon *m, int64_t rows, int64_t columns, double factor,
                               struct tensor *out);
/* muon_update — updates the hidden matrices of a bucket. Call it after the update of the bucket's
 * other tensors. */
enum status muon_update(const struct muon *m, struct store *store, int bucket);

#endif
