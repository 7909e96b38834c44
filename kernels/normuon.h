/* normuon — divides the update of each neuron by the root of a running mean of its squares. Must
 * not know where the update comes from. */
#ifndef CONVOY_KERNELS_NORMUON_H
#define CONVOY_KERNELS_NORMUON_H
#include "kernels/tensor.h"

/* normuon — of neuron i, with elements x_i1 … x_in:
 *   v_i ← β2·v_i + (1-β2)·(1/n)·Σ_j x_ij²;  x_ij ← x_ij / (√v_i + eps)
 * i/o  x (rows, columns) f32  a row is a neuron, or a column where is_by_column
 * i/o  v (neurons) f32
 * in   grad_scale  (1) f64  if it is NaN, nothing changes; other values have no effect; data NULL:
 *      none
 * The order of a sum depends on the shape alone. Tolerance to plain: nmse 1e-11.
 * Source Li et al. 2025 (NorMuon, arXiv 2510.05491), algorithm 1. */
struct normuon {
    struct tensor x, v;
    int64_t rows, columns;
    bool is_by_column;
    double beta2, eps;
    struct tensor grad_scale;
};
#endif
