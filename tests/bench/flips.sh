#!/bin/bash
# flips — random bits that flip where a job's numbers are, and comparisons where none does: COUNT (300) of each kind, CLEAN (1000) comparisons.
#   weights   of the workers of 4 running nodes, by `convoy rehearse`, each found within SENTINEL_EVERY steps, healed, the weights of a calm run
#   shards    the same of 2 nodes with SHARD=full, each found by the next update
#   replicas  any bit of parameters and moments on 3 and 4 ranks, compared at once (tests/mesh/test_mesh_sentinel)
#   gradients of any rank with EXACT=layout, before a virtual shard of it is compared (tests/mesh/test_mesh_shard_check)
#   groups    the same with TP, CP and PP, and of what ranks of a group give to each other (tests/mesh/test_mesh_shard_groups)
#   updates   any bit of what a rank updates, found by its next update: each SHARD, 1 to 4 ranks (tests/mesh/test_mesh_updates)
#   files     of the newest checkpoint: named at the resume, which takes the checkpoint before
#   messages  between two ranks (tests/comm/test_tcp_proxy)
#   copies    of the state in peers' memory (tests/mesh/test_peer_copy)
# Gate: all found; the right rank or file named in 99 % of them; no equal replicas called different. Ends with 1 when it is missed. `make flips`.
export LOG_LEVEL=info
. "$(dirname "$0")/bench_lib.sh"
count=${COUNT:-300} clean=${CLEAN:-1000}
tiny="MODEL=gpt2-nano LAYERS=2 HEADS=2 EMBED=32 VOCAB=64 CONTEXT=32 BATCH_SIZE=2 SEQ_LEN=16 LR=1e-3 DATA=synthetic"
# row KIND FLIPS FOUND NAMED MS — NAMED "-": a kind without names.
row() {
    local verdict=ok
    [ "$2" -ge "$count" ] && [ "$3" = "$2" ] && { [ "$4" = - ] || [ $(($4 * 100)) -ge $(($2 * 99)) ]; } || verdict="NOT OK" failed=1
    printf '%-9s %6d %6d %12s %8.1f s   %s\n' "$1" "$2" "$3" "$4" "$(($5 / 100))e-1" "$verdict"
}
counted() { sed -nE "s/^# $1.*/\\1/p" "$2" | tail -n 1; } # counted REGEX FILE — the number in a line of a test's diagnostics; its group 1

# rehearsed KIND NODES SHARD EVERY STEPS — flips in running workers, found within so many finished steps; one that is found later counts as not healed.
rehearsed() {
    local kind=$1 nodes=$2 shard=$3 every=$4 steps=$5 made=0 healed=0 named=0 seed=1 begin
    begin=$(now_ms)
    while [ $made -lt "$count" ] && [ $seed -le 20 ]; do
        "$convoy" rehearse $tiny N_NODES=$nodes SHARD=$shard SENTINEL_EVERY=$every CHECKPOINT_EVERY=40 CHECKPOINT_DIR="$dir/run" FAULT_MIX=flip FAULT_EVERY=400ms \
            DURATION=$(((count - made) * 6 / 10 + 5))s SEED=$seed JSON=1 >out 2>err || { tail -n 3 err >&2; failed=1; }
        read -r made healed named < <(jq -r --argjson steps $steps --argjson sum "[$made, $healed, $named]" '.faults[] | select(.kind == "flip")
            | [$sum, [.made, .healed - (if .detect_steps.worst > $steps then 1 else 0 end), .named_right]] | transpose | map(add) | join(" ")' out)
        seed=$((seed + 1))
    done
    row "$kind" $made $healed $named $(($(now_ms) - begin))
}

# program KIND NAMED PATTERN VARIABLES… -- PROGRAM — a test that counts what it finds, and fails at the first that it does not.
program() {
    local kind=$1 named=$2 pattern=$3 begin n=0
    shift 3
    begin=$(now_ms)
    env "$@" >out 2>&1 || { tail -n 5 out >&2; failed=1; }
    n=$(counted "$pattern" out)
    [ "$named" = - ] || named=${n:-0}
    row "$kind" "${n:-0}" "${n:-0}" "$named" $(($(now_ms) - begin))
}

# flip FILE — a random bit of it; srand is seeded anew by each process.
flip() {
    perl -e 'my $n = -s $ARGV[0]; srand $ARGV[1]; my ($at, $bit) = (int rand $n, int rand 8);
        open my $f, "+<:raw", $ARGV[0] or die "$!\n"; seek $f, $at, 0; read $f, my $byte, 1; seek $f, $at, 0;
        print $f chr(ord($byte) ^ 1 << $bit)' "$1" "$2"
}
files() {
    local found=0 named=0 begin file list
    begin=$(now_ms)
    "$convoy" train $tiny STEPS=60 STOP_AFTER=40 CHECKPOINT_EVERY=20 CHECKPOINT_DIR=whole >out 2>&1
    list=(whole/step-00000040/*)
    for ((i = 0; i < count; i++)); do
        rm -rf hurt && cp -r whole hurt
        file=hurt/step-00000040/$(basename "${list[$((i % ${#list[@]}))]}")
        flip "$file" "$i"
        "$convoy" train $tiny STEPS=60 STOP_AFTER=41 CHECKPOINT_EVERY=20 CHECKPOINT_DIR=hurt >out 2>&1 || true
        ! grep -q 'resuming from hurt/step-00000020: step 20 ' out || found=$((found + 1))
        ! grep -q "skipping a damaged checkpoint: $file" out || named=$((named + 1))
    done
    row files "$count" $found $named $(($(now_ms) - begin))
}

# comparisons — each after a step; the flip in the last step shows that they were made.
comparisons() {
    local begin called last=$((clean + 1)) steps
    begin=$(now_ms)
    "$convoy" train $tiny N_GPU_EACH_NODE=4 SHARD=none SENTINEL_EVERY=1 STEPS=$last FAULT=flip@step=$last:rank=2 MAX_RESTARTS=0 >out 2>&1 || true
    steps=$(sed -nE 's/.*after step ([0-9]+) the .* differ.*/\1/p' out | sort -u)
    called=$(echo "$steps" | grep -cvx $last) || true
    [ "$steps" = $last ] || failed=1
    printf '%-9s %d comparisons of equal replicas on 4 workers, %d called different, %.1f s\n' none "$clean" "$called" "$((($(now_ms) - begin) / 100))e-1"
}

printf '%-9s %6s %6s %12s %10s\n' kind flips found "named right" time
rehearsed weights 4 none 10 10
rehearsed shards 2 full 1000 1
program replicas named '4 ranks: ([0-9]+) flips found and named' FLIPS="$count" CHECKS="$clean" "$build/tests/mesh/test_mesh_sentinel"
program gradients named 'gradients: ([0-9]+) flips found' FLIPS="$count" CHECKS="$clean" "$build/tests/mesh/test_mesh_shard_check"
program groups named 'groups: ([0-9]+) flips found' FLIPS="$count" CHECKS="$clean" "$build/tests/mesh/test_mesh_shard_groups"
files
program updates named 'full, 4 ranks: ([0-9]+) flips found and named' FLIPS="$count" CHECKS="$clean" "$build/tests/mesh/test_mesh_updates"
program messages - '([0-9]+) faults noticed' PROXY_KINDS=bits PROXY_TRIALS=$(((count + 1) / 2)) "$build/tests/comm/test_tcp_proxy"
program copies - '([0-9]+) flips found' FLIPS="$count" "$build/tests/mesh/test_peer_copy"
comparisons
exit $failed
