#!/bin/bash
# Planted bugs in the copies of peers' memory. Each is one wrong line; random histories of the job (test_peer_copy_history) must catch
# every one. A row: name | file | the edit, a sed expression.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/../mutants_lib.sh"
rows() {
    cat <<'ROWS'
a rank keeps the wrong one's slice in a ring|peer_copy/choice|s/partner(world, rank, RING - 1)/partner(world, rank, 1)/
a rank keeps its own slice twice|peer_copy/choice|s/node ^ 1 : first/node : first/
another rank's slice is taken|peer_copy/choice|s/ \&\& offer->slot\[i\].rank == slice_rank \&\&$/ \&\&/
a step with lost slices is whole|peer_copy/choice|s/        missing_n++;/        ;/
the oldest step is chosen|peer_copy/choice|s/(!best || compare(at, best) > 0)/(!best || compare(at, best) < 0)/
only the newest step is looked at|peer_copy/choice|s/while (!out->is_found/while (!at \&\& !out->is_found/
the newer slot is written over|peer_copy/memory|/^int peer_copy_memory_oldest/,/^}/s/is_older(/!is_older(/
slices of other ranks become the state as they are|peer_copy/restore|s/    if (copy->choice.ranks != copy->place.ranks)/    if (0)/
a slice that was restored has no second copy|peer_copy/restore|s/    TRY(replicate(copy, slot));/    ;/
pieces of a slice are written to one place|step/slice|s/to->values + from - to->first);/to->values);/
a slice of another part becomes the state|step/slice|s/    if (!is_own_part(s, \&at))/    if (0)/
the moments of a slice become parameters|step/slice|s/struct resize to = {s, r->part,/struct resize to = {s, 0,/
a copy has the own slice in place of the kept one|peer_copy/exchange|s/slice = step_slice(step, rank);/slice = step_slice(step, copy->place.rank);/
a slice that was received is never complete|peer_copy/exchange|s/    if (piece->i == n - 1 \&\& copy->receives)/    if (0)/
pieces of a slice come from one place|peer_copy/exchange|s/mine + to.first, to.elems/mine, to.elems/
ROWS
}
plant_all tests/mesh/test_peer_copy_history.c train "${SEEDS:-60}"
