/* step_pipe_rows — the rows that stages give each other, between the activations of a pass and a
 * message (step_pipe.h). Must not know the order of messages. */
#include "train/step_pipe.h"

/* copy_rows — of each virtual rank, to or from its place in the message. */
static enum status copy_rows(const struct step *s, const struct pass *p,
                             struct tensor (*of)(const struct pass *p), struct tensor message,
                             bool is_back)
{
    const int n = step_virtual_n(&s->config);
    const int64_t each = step_pipe_elems(s, p->b, p->t) / n;
    for (int i = 0; i < n; i++) {
        const struct pass own = step_virtual_pass(s, p, i);
        void *rows = of(&own).data, *at = tensor_at(message, i * each).data;
        if (rows != at)
            TRY(dev_copy(s->stream, is_back ? rows : at, is_back ? at : rows,
                         (size_t)each * dtype_bytes(message.dtype)));
    }
    return ST_OK;
}

enum status step_pipe_rows_pack(const struct step *s, const struct pass *p,
                                struct tensor (*of)(const struct pass *p), struct tensor message)
{
    return copy_rows(s, p, of, message, false);
}

enum status step_pipe_rows_unpack(const struct step *s, const struct pass *p,
                                  struct tensor (*of)(const struct pass *p), struct tensor message)
{
    return copy_rows(s, p, of, message, true);
}

struct tensor step_pipe_rows_output(const struct step *s, int chunk, int micro,
                                    const struct pass *p)
{
    const struct step_pipe_chunk *at = &s->pipe->chunk[chunk];
    return s->virtual_ranks ? at->output[micro % at->acts_n] : model_part_output(p);
}
