/* op_list — the list of all operations, X(name), in one place. The arguments of operation `name`
 * are struct name, declared with its contract in the header of its family. dev/op.h makes the table
 * of a device from this list; kernels/cpu.h and kernels/cuda.h make the prototypes. Must not know
 * devices. */
#ifndef CONVOY_KERNELS_OP_LIST_H
#define CONVOY_KERNELS_OP_LIST_H

#include "kernels/adamw.h"      /* adamw, sgd */
#include "kernels/attention.h"  /* attention_fwd, attention_decode, attention_bwd */
#include "kernels/branch_add.h" /* branch_add */
#include "kernels/cast.h"       /* cast */
#include "kernels/checksum.h"   /* checksum */
#include "kernels/combine.h"    /* combine */
#include "kernels/compress.h"   /* compress, expand */
#include "kernels/copy_2d.h"    /* copy_2d */
#include "kernels/dropout.h"    /* drop */
#include "kernels/embed.h"      /* embed_fwd, embed_bwd */
#include "kernels/gelu.h"       /* gelu_fwd, gelu_bwd */
#include "kernels/grad_scale.h" /* grad_scale */
#include "kernels/matmul.h"     /* matmul_fwd, matmul_bwd_x, matmul_bwd_w */
#include "kernels/norm.h"       /* norm_fwd, norm_bwd, head_norm_fwd, head_norm_bwd */
#include "kernels/reduce.h"     /* sum, sumsq */
#include "kernels/relu2.h"      /* relu2_fwd, relu2_bwd */
#include "kernels/rope.h"       /* rope_table, rope */
#include "kernels/softcap.h"    /* softcap */
#include "kernels/swiglu.h"     /* swiglu_fwd, swiglu_bwd */
#include "kernels/xent.h"       /* xent, qa_xent, xent_shard, xent_join */

#define OP_LIST(X)      \
    X(embed_fwd)        \
    X(embed_bwd)        \
    X(norm_fwd)         \
    X(norm_bwd)         \
    X(head_norm_fwd)    \
    X(head_norm_bwd)    \
    X(rope_table)       \
    X(rope)             \
    X(matmul_fwd)       \
    X(matmul_bwd_x)     \
    X(matmul_bwd_w)     \
    X(gelu_fwd)         \
    X(gelu_bwd)         \
    X(relu2_fwd)        \
    X(relu2_bwd)        \
    X(swiglu_fwd)       \
    X(swiglu_bwd)       \
    X(attention_fwd)    \
    X(attention_decode) \
    X(attention_bwd)    \
    X(softcap)          \
    X(xent)             \
    X(qa_xent)          \
    X(xent_shard)       \
    X(xent_join)        \
    X(drop)             \
    X(branch_add)       \
    X(sum)              \
    X(sumsq)            \
    X(checksum)         \
    X(grad_scale)       \
    X(adamw)            \
    X(sgd)              \
    X(compress)         \
    X(expand)           \
    X(cast)             \
    X(copy_2d)          \
    X(combine)

#endif
