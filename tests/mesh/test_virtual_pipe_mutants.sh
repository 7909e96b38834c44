#!/bin/bash
# Planted bugs in the stages of a pipeline whose ranks compute several parts of each layer (VIRTUAL_TP with PP). Each is one wrong line;
# the bits of tensor ranks in one stage (test_mesh_virtual_pipe) must catch every one. A row: name | file | the edit, a sed expression.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/../mutants_lib.sh"
rows() {
    cat <<'ROWS'
a message has the rows of the first virtual rank alone|step_pipe_rows|s/step_virtual_pass(s, p, i)/step_virtual_pass(s, p, 0)/
rows of all virtual ranks go to one place|step_pipe_rows|s/i \* each)/0 * each)/
what is received is not copied to its place|step_pipe_rows|s/is_back ? rows : at, is_back ? at : rows/at, rows/
a message has fewer rows|step_pipe_rows|s/step_pipe_elems(s, p->b, p->t) \/ n;/step_pipe_elems(s, p->b, p->t) \/ n - 1;/
outputs are sent from the activations of one virtual rank|step_pipe_rows|s/return s->virtual_ranks ? .*/return model_part_output(p);/
scratch begins elsewhere in each chunk|step_pipe|s/shared.used_bytes = begin;/shared.used_bytes = begin + (size_t)chunk * 64;/
outputs are not planned|step_pipe|s/chunk->output\[i\] = step_pipe_take_rows(s, acts);/chunk->output[i] = s->pipe->received[0];/
virtual ranks share scratch|step_pipe|s/const size_t begin = scratch->used_bytes;/const size_t begin = 0;/
micro-batches in flight share activations|step_virtual|s/own.acts = r->acts\[f->i\];/own.acts = r->acts[0];/
a pass is one of the first chunk|step_virtual|s/virtual_ranks->chunk\[chunk\];/virtual_ranks->chunk[0];/
all virtual ranks of a stage are the first|step_virtual|s/k < v->n; k++, part.tensor_rank++)/k < v->n; k++)/
tensors of another virtual rank are read|step_virtual|s/table->param\[row\].tensor_rank != own->tensor_rank/false/
ROWS
}
plant_all tests/mesh/test_mesh_virtual_pipe.c train 1
