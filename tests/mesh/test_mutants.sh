#!/bin/bash
# Planted bugs in the steps of a mesh. Each is one wrong line, which the test of its list must catch: the bits of one stage (pipe), random
# histories of the job (copy), flips of bits in virtual shards that two groups of ranks compute, and comparisons without one (shards), in
# states that updates check (updates), and in replicas (replicas).
# LISTS=copy: only that list. A row: name | file | the edit, a sed expression.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/../mutants_lib.sh"
rows_pipe() {
    cat <<'ROWS'
inputs are not copied to their destination|step/pipe_run|s/model_shard_grad(&p) : model_shard_input(&p),/model_shard_grad(\&p) : run->p->received[0],/
gradients are sent from where the next pass writes|step/pipe_run|s/m->data = p->made\[at\];/m->data = p->made[0];/
a message has fewer rows|step/pipe_run|s/(size_t)micro_elems(run) \* dtype_bytes/(size_t)(micro_elems(run) - 1) * dtype_bytes/
scratch begins elsewhere in each chunk|step/pipe|s/shared.used_bytes = 0;/shared.used_bytes = (size_t)(chunk - s->pipe->chunk) * 64;/
micro-batches in flight share activations|step/pipe|s/at->acts\[micro % at->acts_n\];/at->acts[0];/
a pass is one of the first chunk|step/pipe|s/\*at = \&s->pipe->chunk\[chunk\];/*at = \&s->pipe->chunk[0];/
ROWS
}
rows_copy() {
    cat <<'ROWS'
a rank keeps the wrong one's slice in a ring|peer_copy/choice|s/find_in_ring(world, rank, RING - 1)/find_in_ring(world, rank, 1)/
a rank keeps its own slice twice|peer_copy/choice|s/node ^ 1 : first/node : first/
another rank's slice is taken|peer_copy/choice|s/ \&\& offer->slot\[i\].rank == slice_rank \&\&$/ \&\&/
a step with lost slices is whole|peer_copy/choice|s/        missing_n++;/        ;/
the oldest step is chosen|peer_copy/choice|s/(!best || compare_stamps(at, best) > 0)/(!best || compare_stamps(at, best) < 0)/
only the newest step is looked at|peer_copy/choice|s/while (!out->is_found/while (!at \&\& !out->is_found/
the newer slot is written over|peer_copy/memory|/^int peer_copy_memory_oldest/,/^}/s/is_older(/!is_older(/
slices of other ranks become the state as they are|peer_copy/restore|s/    if (copy->choice.ranks != copy->place.ranks)/    if (0)/
a slice that was restored has no second copy|peer_copy/restore|s/    TRY(replicate_slices(copy, slot));/    ;/
chunks of a slice are written to one address|step/slice|s/to->values + from - to->first);/to->values);/
a slice of another shard becomes the state|step/slice|s/    if (!is_own_shard(s, \&at))/    if (0)/
the moments of a slice become parameters|step/slice|s/struct resize to = {s, r->array,/struct resize to = {s, 0,/
a copy has the own slice in place of the kept one|peer_copy/exchange|s/slice = step_slice(step, rank);/slice = step_slice(step, copy->place.rank);/
a slice that was received is never complete|peer_copy/exchange|s/    if (chunk->i == n - 1 \&\& copy->receives)/    if (0)/
chunks of a slice come from one address|peer_copy/exchange|s/mine + to.first, to.elems/mine, to.elems/
ROWS
}
rows_shards() {
    cat <<'ROWS'
a part of a sum is not recorded|feature/step_shard_trace|s/TRY(step_shard_trace_give(a->check, in, elems));/;/
a part that is gathered is not recorded|feature/step_shard_trace|s/TRY(step_shard_trace_give(a->check, own, .*));/;/
the axis of samples is not recorded|feature/step_shard_trace|s/p->context = wrap_axis(k, \&k->context, p->context);/;/
shards that are not compared are recorded|feature/step_shard_trace|s/ || !step_shard_check_has(k, m))$/)/
the last difference is named|feature/sentinel|s/order > least)/order < least)/
of several ranks at once one is named|feature/sentinel|s/return firsts_n == 1 ? first : -1;/return first;/
gradients are not recorded|feature/step_shard_trace|s/            TRY(add_hash(k, grad.data.*/            ;/
rows for the next stage are not recorded|step/pipe_run|s/        TRY(call_row_hooks(run, model_shard_output(&p)));/        ;/
gradients for the stage before are not recorded|step/pipe_run|s/    return call_row_hooks(run, run->p->made\[at\]);/    return ST_OK;/
backward passes of stages have the order of forward ones|step/pipe_run|s/op.is_backward ? ends_at(run) - 1 - at : at/at/
terms of a tied embedding's gradient lie in one range|step/pipe_ends|s/micro % pipe->plan.heads_ahead/0/
a shard alone has the samples of another place|step/pipe_run|s/\.sample_first = sample,/.sample_first = 0,/
one rank of a group speaks for all|feature/step_shard_differ|s/place < places_n(s); place++) {$/place < 1; place++) {/
the ranks of groups are mixed up|feature/step_shard_differ|s/\[MESH_AXIS_DATA\] = group,/[MESH_AXIS_DATA] = 0,/
the wrong group is named|feature/step_shard_differ|s/odd == 0 ? a->owner : a->checker/odd == 0 ? a->checker : a->owner/
the positions of a sample are not divided|feature/step_shard_check|s/batch = step_context_batch(s, \&k->batch, \&k->own);/batch = k->batch;/
a trace is never emptied|feature/step_shard_check|s/    step_shard_trace_clear(trace);/    ;/
ROWS
}
rows_updates() {
    cat <<'ROWS'
updates are never compared|feature/step_update_sums|s/    if (kept->is_known \&\& kept->writes == kept->next_writes)/    if (0)/
the sums of an update are added to the last ones|feature/step_update_sums|s/    return dev_fill(s->stream, s->sums.updates, 0, bytes);/    return ST_OK;/
a deferred update is added to one that is not compared|feature/step_update_sums|s/^    if (kept->is_pending)$/    if (0)/
buckets share their sums|step/update|s/s->core.sums.updates + bucket/s->core.sums.updates/
a loaded state keeps the sums of the last one|feature/step_update_sums|s/^        take_bucket(sums, i, kept->written);/        ;/
a pass finds nothing|feature/step_update_sums|s/^        if (is_known(u, i))$/        if (0)/
moments have the sum of parameters|feature/step_update_sums|s/tensor_at(array\[i\], from)/tensor_at(array[0], from)/
frozen parameters have no checksum|feature/step_update_sums|s/        TRY(step_checksums_add(s, i, a.p, a.elems, words));/        ;/
ROWS
}
rows_replicas() {
    cat <<'ROWS'
one number of a state is compared|feature/step_sentinel|s/at < numbers \&\& out->is_same/at < 1 \&\& out->is_same/
a moment is called parameters|feature/step_sentinel|s,out->array = at / CHECKSUM_N;,out->array = 0;,
a checksum is added to the last one|feature/step_checksums|s/    return dev_fill(.*/    return ST_OK;/
ROWS
}
plant_list() {
    case $1 in
    pipe) plant_rows rows_pipe tests/mesh/test_mesh_pipe.c train 1 ;;
    copy) plant_rows rows_copy tests/mesh/test_peer_copy_history.c train "${SEEDS:-60}" ;;
    shards) FLIPS=24 CHECKS=24 plant_rows rows_shards tests/mesh/test_mesh_shard_groups.c train 1 ;;
    updates) FLIPS=8 CHECKS=8 plant_rows rows_updates tests/mesh/test_mesh_updates.c train 1 ;;
    replicas) FLIPS=40 CHECKS=20 plant_rows rows_replicas tests/mesh/test_mesh_sentinel.c train 1 ;;
    esac
}
for list in ${LISTS:-pipe copy shards updates replicas}; do plant_list "$list"; done
plant_end
