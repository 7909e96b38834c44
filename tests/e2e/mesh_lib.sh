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
    tail -n 13 gpt.jsonl | head -n 12 >rest.jsonl # the last line is the evaluation
    losses_near rest.jsonl 2e-6 "a checkpoint of $name goes on with $*" $gpt "$@" CHECKPOINT_DIR=go RESUME=required
}
# refused TEXT SETTING… — 78, with these words.
refused() {
    local text=$1
    shift
    run $gpt "$@"
    ok "refused: $*" is "$rc $(grep -cF -- "$text" err)" "78 1"
}
