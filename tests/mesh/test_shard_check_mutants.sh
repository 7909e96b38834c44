#!/bin/bash
# Planted bugs in the comparison of virtual shards that two groups of ranks compute. Each is one wrong line; flips of bits in these
# groups, and comparisons without one (test_mesh_shard_check), must catch every one. A row: name | file | the edit, a sed expression.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/../mutants_lib.sh"
rows() {
    cat <<'ROWS'
a part of a sum is not recorded|feature/step_shard_trace|s/TRY(step_shard_trace_give(a->step, in, elems));/;/
a part that is gathered is not recorded|feature/step_shard_trace|s/TRY(step_shard_trace_give(a->step, own, .*));/;/
the axis of samples is not recorded|feature/step_shard_trace|s/p->context = recorded(s, \&k->context, p->context);/;/
shards that are not compared are recorded|feature/step_shard_trace|s/ || !step_shard_check_has(s, m))$/)/
the last difference is named|feature/sentinel|s/order > least)/order < least)/
of several ranks at once one is named|feature/sentinel|s/return firsts_n == 1 ? first : -1;/return first;/
gradients are not recorded|feature/step_shard_trace|s/            sum = XXH3_64bits_withSeed(grad.data/            (void)XXH3_64bits_withSeed(grad.data/
rows for the next stage are not recorded|step/pipe_run|s/        TRY(give(run, model_part_output(&p)));/        ;/
gradients for the stage before are not recorded|step/pipe_run|s/    return give(run, run->p->made\[at\]);/    return ST_OK;/
backward passes of stages have the order of forward ones|step/pipe_run|s/op.is_backward ? ends_at(run) - 1 - at : at/at/
parts of a tied embedding's gradient lie in one place|step/pipe_ends|s/micro % pipe->plan.heads_ahead/0/
a shard alone has the samples of another place|step/pipe_run|s/\.sample_first = sample,/.sample_first = 0,/
one rank of a group speaks for all|feature/step_shard_differ|s/place < places_n(s); place++) {$/place < 1; place++) {/
the ranks of groups are mixed up|feature/step_shard_differ|s/\[MESH_AXIS_DATA\] = group,/[MESH_AXIS_DATA] = 0,/
the wrong group is named|feature/step_shard_differ|s/odd == 0 ? a->owner : a->checker/odd == 0 ? a->checker : a->owner/
the positions of a sample are not divided|feature/step_shard_check|s/batch = step_context_part(s, \&k->batch, \&k->own);/batch = k->batch;/
a trace is never emptied|feature/step_shard_check|s/    step_shard_trace_clear(trace);/    ;/
ROWS
}
export FLIPS=24 CHECKS=24
plant_all tests/mesh/test_mesh_shard_groups.c train 1
