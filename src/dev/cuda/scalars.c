/* dev_cuda_scalars — moves the numbers that change from step to step out of recorded work; kernels
 * and events then read them from a block on the device (kernels/step_scalars.h). Must not know
 * where that block is. */
#include "dev/cuda/internal.h"

#include "kernels/step_scalars.h"

/* Moves the step scalars out of the arguments; false: dropout is off. */
static bool take_dropout(struct dropout *d, struct step_scalars *out)
{
    *out = step_scalars_dropout(d);
    d->seed = d->offset = 0;
    return d->p > 0;
}

bool dev_cuda_scalars_take(enum cuda_work work, void *args, struct step_scalars *out)
{
    struct xent *xent = args;
    struct xent_join *join = args;
    struct qa_xent *qa = args;
    struct grad_scale *grad_scale = args;
    struct adamw *adamw = args;
    struct sgd *sgd = args;
    struct cuda_event *event = args;
    switch (work) {
    case CUDA_WORK_embed_fwd:
        return take_dropout(&((struct embed_fwd *)args)->dropout, out);
    case CUDA_WORK_embed_bwd:
        return take_dropout(&((struct embed_bwd *)args)->dropout, out);
    case CUDA_WORK_matmul_fwd:
        return take_dropout(&((struct matmul_fwd *)args)->dropout, out);
    case CUDA_WORK_attention_fwd:
        return take_dropout(&((struct attention_fwd *)args)->dropout, out);
    case CUDA_WORK_attention_bwd:
        return take_dropout(&((struct attention_bwd *)args)->dropout, out);
    case CUDA_WORK_drop:
        return take_dropout(&((struct drop *)args)->dropout, out);
    case CUDA_WORK_branch_add:
        return take_dropout(&((struct branch_add *)args)->dropout, out);
    case CUDA_WORK_EVENT:
        *out = step_scalars_none();
        out->seed = event->number;
        event->number = 0;
        return true;
    case CUDA_WORK_grad_scale:
        *out = step_scalars_grad_scale(grad_scale);
        grad_scale->loss_scale = 0;
        return true;
    case CUDA_WORK_xent:
        *out = step_scalars_xent(xent);
        xent->scale = 0;
        return true;
    case CUDA_WORK_xent_join:
        *out = step_scalars_xent_join(join);
        join->scale = 0;
        return true;
    case CUDA_WORK_qa_xent:
        *out = step_scalars_qa_xent(qa);
        qa->scale_start = qa->scale_end = 0;
        return true;
    case CUDA_WORK_adamw:
        *out = step_scalars_adamw(adamw);
        adamw->lr = 0, adamw->step = 0;
        return true;
    case CUDA_WORK_sgd:
        *out = step_scalars_sgd(sgd);
        sgd->lr = 0, sgd->step = 0;
        return true;
    default:
        return false;
    }
}
