# mesh_lib — what the tests of workers that share a model (TP, PP) or samples (CP) have in common. Source it after nodes_lib.sh.
# Three variables come before the first call: $gpt, settings of a model; $share, those of its mesh; $name, the mesh as the points
# name it.

# equals_one — a run of the mesh (two.jsonl; folder two, with a checkpoint of step 8) has the losses of one worker's (gpt.jsonl,
# folder one), in training and in the evaluation.
equals_one() {
    local loss
    run $gpt METRICS_FILE=gpt.jsonl CHECKPOINT_DIR=one VAL_DATA=synthetic EVAL_EVERY=20
    loss=$(grep -o 'held-out loss [0-9.]*' out)
    run $gpt $share METRICS_FILE=two.jsonl CHECKPOINT_DIR=two CHECKPOINT_EVERY=8 VAL_DATA=synthetic EVAL_EVERY=20
    ok "$name: done" is "$rc $(steps_of two.jsonl)" "0 20"
    ok "$name: losses within 2e-6 of one worker's" near gpt.jsonl two.jsonl 2e-6
    ok "$name: the held-out loss is the same" is "${loss:+$(grep -o 'held-out loss [0-9.]*' out)}" "${loss:-one}"
}
# goes_on SETTING… — another mesh goes on from the checkpoint of step 8.
goes_on() {
    rm -rf go && mkdir go && cp -r two/step-00000008 go/
    run $gpt "$@" METRICS_FILE=go.jsonl CHECKPOINT_DIR=go RESUME=required
    tail -n 13 gpt.jsonl | head -n 12 >rest.jsonl # the last line is the evaluation
    ok "a checkpoint of $name goes on with $*" near rest.jsonl go.jsonl 2e-6
}
# heals FAULT:rank=R… — each of these faults in step 21 of 30: one restart from step 16, the bits of a run without.
heals() {
    local f
    run $gpt $share STEPS=30 METRICS_FILE=calm.jsonl CHECKPOINT_DIR=calm
    for f; do
        run $gpt $share STEPS=30 METRICS_FILE=$f.jsonl CHECKPOINT_DIR=$f CHECKPOINT_EVERY=8 FAULT=${f%%:*}@step=21:${f#*:} STEP_TIMEOUT=$(patience_for "$f")
        ok "FAULT=$f: heals by one restart from step 16" is "$rc $(grep -cE ' warn .*after step 2[01].*restart 1 of 3' err) $(
            grep -c 'resuming from .*: step 16 of 30' err)" "0 1 1"
        ok "FAULT=$f: losses and weights bit for bit" is "$(losses $f.jsonl | cksum) $(weights $f/step-00000030)" \
            "$(losses calm.jsonl | cksum) $(weights calm/step-00000030)"
    done
}
# refused TEXT SETTING… — 78, with these words.
refused() {
    local text=$1
    shift
    run $gpt "$@"
    ok "refused: $*" is "$rc $(grep -cF -- "$text" err)" "78 1"
}
