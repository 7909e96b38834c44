/* ckpt_compare — the first bits in which two checkpoints differ. It must not know what made them.
 */
#ifndef CONVOY_FORMAT_CKPT_COMPARE_H
#define CONVOY_FORMAT_CKPT_COMPARE_H

#include "format/ckpt.h"
#include "format/manifest.h"

/* Where two checkpoints differ, and how much of them was compared. */
struct ckpt_compare_result {
    int tensors_n;                     /* compared, the different one among them */
    char part[MANIFEST_NAME_MAX];      /* of the first difference, such as "model"; "": equal */
    char tensor[SAFETENSORS_NAME_MAX]; /* "": one of them lacks the part */
    int64_t elem;                      /* the first that differs; -1: another shape, or missing */
    int64_t differ_n, elems;           /* elements of that tensor: that differ, and all */
    float left, right;
};

/* ckpt_compare — tensor by tensor, bit by bit, in the order of the files. Both were verified. */
void ckpt_compare(const struct ckpt *left, const struct ckpt *right,
                  struct ckpt_compare_result *out);

#endif
