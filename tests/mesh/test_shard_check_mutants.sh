#!/bin/bash
# Planted bugs in the comparison of virtual shards that two groups of ranks compute. Each is one wrong line; flips of bits in these
# groups, and comparisons without one (test_mesh_shard_check), must catch every one. A row: name | file | the edit, a sed expression.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/../mutants_lib.sh"
rows() {
    cat <<'ROWS'
a part of a sum is not recorded|step_shard_trace|s/TRY(step_shard_trace_give(a->check, in, elems));/;/
a part that is gathered is not recorded|step_shard_trace|s/TRY(step_shard_trace_give(a->check, own, .*));/;/
the axis of samples is not recorded|step_shard_trace|s/p->context = recorded(k, \&k->context, p->context);/;/
shards that are not compared are recorded|step_shard_trace|s/ || !step_shard_check_has(k, m))$/)/
the last difference is named|sentinel|s/order > least)/order < least)/
of several ranks at once one is named|sentinel|s/return firsts_n == 1 ? first : -1;/return first;/
gradients are not recorded|step_shard_trace|s/            sum = XXH3_64bits_withSeed(grad.data/            (void)XXH3_64bits_withSeed(grad.data/
rows for the next stage are not recorded|step_pipe_run|s/        TRY(give(run, model_part_output(&p)));/        ;/
gradients for the stage before are not recorded|step_pipe_run|s/    return give(run, run->p->made\[at\]);/    return ST_OK;/
backward passes of stages have the order of forward ones|step_pipe_run|s/op.is_backward ? ends_at(run) - 1 - at : at/at/
parts of a tied embedding's gradient lie in one place|step_pipe_ends|s/micro % pipe->plan.heads_ahead/0/
a shard alone has the samples of another place|step_pipe_run|s/\.sample_first = sample,/.sample_first = 0,/
one rank of a group speaks for all|step_shard_differ|s/place < places_n(s); place++) {$/place < 1; place++) {/
the ranks of groups are mixed up|step_shard_differ|s/\[MESH_AXIS_DATA\] = group,/[MESH_AXIS_DATA] = 0,/
the wrong group is named|step_shard_differ|s/odd == 0 ? a->owner : a->checker/odd == 0 ? a->checker : a->owner/
the positions of a sample are not divided|step_shard_check|s/batch = step_context_part(s, \&k->batch, \&k->own);/batch = k->batch;/
a trace is never emptied|step_shard_check|s/    step_shard_trace_clear(trace);/    ;/
ROWS
}
export FLIPS=24 CHECKS=24
plant_all tests/mesh/test_mesh_shard_groups.c train 1
