#!/bin/bash
# Planted bugs in the stages of a pipeline. Each is one wrong line; the bits of one stage (test_mesh_pipe) must catch every one.
# A row: name | file | the edit, a sed expression.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/../mutants_lib.sh"
rows() {
    cat <<'ROWS'
inputs are not copied to their place|step/pipe_run|s/model_part_grad(&p) : model_part_input(&p),/model_part_grad(\&p) : run->p->received[0],/
gradients are sent from where the next pass writes|step/pipe_run|s/m->data = p->made\[at\];/m->data = p->made[0];/
a message has fewer rows|step/pipe_run|s/(size_t)micro_elems(run) \* dtype_bytes/(size_t)(micro_elems(run) - 1) * dtype_bytes/
scratch begins elsewhere in each chunk|step/pipe|s/shared.used_bytes = 0;/shared.used_bytes = (size_t)(chunk - s->pipe->chunk) * 64;/
micro-batches in flight share activations|step/pipe|s/at->acts\[micro % at->acts_n\];/at->acts[0];/
a pass is one of the first chunk|step/pipe|s/\*at = \&s->pipe->chunk\[chunk\];/*at = \&s->pipe->chunk[0];/
ROWS
}
plant_all tests/mesh/test_mesh_pipe.c train 1
