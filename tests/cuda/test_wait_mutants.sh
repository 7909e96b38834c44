#!/bin/bash
# Planted bugs: waits between streams, events and the host that are missing. Each is one wrong line; the clocks of the tests' runtime
# (tests/cuda/clocks.h) must name two operations on the same bytes for every one. And bugs in the sums by which a device finds changes of
# its memory (rows_sums), which test_sentinel_cuda must catch. A row: name | file | the edit, a sed expression.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/../mutants_lib.sh"
include=$("$build/tests/cuda/test_clocks_cuda" include 2>/dev/null)
if [ ! -f "$include/cuda_runtime_api.h" ] && [ -z "${ROWS:-}" ]; then
    echo "1..0 # SKIP: built without CUDA"
    exit 0
fi
names='no wait orders two operations'
flags="$flags -I$root/tests/kernels -isystem $include -DCONVOY_CUDA=\"sm_90a\" -DCUDA_INCLUDE=\"$include\""
libs="$build/libaccess.a ${libs/-lcmocka/-lcmocka -lstdc++}"
[ -n "${ROWS:-}" ] || ln -s "$build"/tests/cuda/libcu*.so.* "$tmp"
rows() {
    cat <<'ROWS'
no stream waits for an event|dev/cuda/event|s/    CUDA_CHECK(dev_runtime->StreamWaitEvent(s->stream, event->event, 0));/    ;/
a stream is waited for as it was when it was opened|dev/cuda/cuda|s/    TRY(dev_cuda_event_record(first, &first->event));/    ;/
an event behind recorded work is not recorded|dev/cuda/graph|s/    if (st == ST_OK \&\& event)/    if (0)/
an event within recorded work is not recorded|dev/cuda/event|/    CUDA_CHECK(s->is_captured/,/dev_runtime->EventRecord(a->event/d
other threads wait for an event that is not submitted|comm/core/staging|s/    TRY(dev_flush(s));.*/    ;/
a call does not wait for the computation|comm/core/staging|s/    TRY(dev_stream_wait(staging->in, call->event));/    ;/
a call is not given its event|comm/core/run|s/^    root->event = NULL;/    root->event = event = NULL;/
a chunk takes a buffer that is still copied out|comm/core/staging|s/        TRY(dev_stream_wait_stream(staging->in, staging->out));/        ;/
a call does not wait for its copies in|comm/core/staging|s/        TRY(staging_sync(ctx, staging->in));/        ;/
a call ends before its copies out|comm/core/staging|s/    return staging_sync(ctx, staging->out);/    return ST_OK;/
no exchange waits for the stream|mesh/store/store|s/comm_wait_stream(s->c.comm, s->c.stream);/ST_OK;/
shards of a tensor are gathered before they are computed|mesh/tensor_axis|/^static enum status gather(/,/^}/s/comm_wait_stream(comm, s)/dev_flush(s)/
an outgoing message does not wait for its rows|train/step/pipe_run|s/m->is_send ? m->made : copied/m->is_send ? NULL : copied/
rows are received while the last ones are read|train/step/pipe_run|s/m->is_send ? m->made : copied/m->is_send ? m->made : NULL/
ROWS
}
rows_sums() {
    cat <<'ROWS'
an update that the device skipped is compared|train/feature/step_update_sums|s/    if (now->updates == 0)/    if (0)/
sums are compared before they have arrived|train/feature/step_update_sums|s/^    TRY(dev_sync(s->stream));/    ;/
checksums are compared before they have arrived|train/feature/step_checksums|s/^    return dev_sync(s->stream);/    return ST_OK;/
sums of one update are added to those of the last one|train/feature/step_update_sums|s/    return dev_fill(s->stream, s->sums.updates, 0, bytes);/    return ST_OK;/
the GPU is not named|train/feature/step_checksums|s/    if (dev_text_place(.*/    if (0)/
ROWS
}
plant_rows rows tests/cuda/test_clocks_cuda.c . 1
names=
export FLIPS=2
plant_rows rows_sums tests/cuda/test_sentinel_cuda.c . 1
plant_end
