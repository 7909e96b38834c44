#!/bin/bash
# test_cli — what a user types: help, version, config, mistakes; exit codes that need no training; colours; full and closed
# outputs. Runs in an environment of its own, so the caller's variables do not matter.
. "$(dirname "$0")/lib.sh"

# shown CODE [FILE TEXT]… — how the last one ended, and that each TEXT is in FILE, out or err; TEXT '': it is empty; !TEXT: not there.
# FILE sh: TEXT is a command that succeeds.
shown() {
    is "$rc" "$1" || return 1
    shift
    while [ $# != 0 ]; do
        case $1-$2 in
        sh-*) eval "$2" ;;
        *-) [ ! -s "$1" ] ;;
        *-!*) ! grep -qF -- "${2#!}" "$1" ;;
        *) grep -qF -- "$2" "$1" ;;
        esac || { echo "# not so: $1 '$2'"; return 1; }
        shift 2
    done
}
# cli CODE [NAME=VALUE of the environment …] -- WORD … [-- FILE TEXT …] — one point.
cli() {
    local want=$1 vars=() words=()
    shift
    while [ "$1" != -- ]; do
        vars+=("$1")
        shift
    done
    shift
    while [ $# != 0 ] && [ "$1" != -- ]; do
        words+=("$1")
        shift
    done
    [ $# = 0 ] || shift
    rc=0
    env -i PATH="$PATH" HOME="$tmp" "${vars[@]}" "$convoy" "${words[@]}" >out 2>err || rc=$?
    ok "${vars[*]} convoy ${words[*]}" shown "$want" "$@"
}
widest() { awk '{ if (length($0) > w) w = length($0) } END { print w }' out; }

for words in help --help -h; do
    cli 0 -- $words -- out 'Usage: convoy' out BATCH_SIZE err '' sh '[ "$(widest)" -le 100 ]' out "!$(printf '\033')" sh '[ "$(wc -l <out)" -le 25 ]'
done
for words in 'model LAYERS' 'data SEQ_LEN' 'optimiser BETA1' 'checkpoints CHECKPOINT_EVERY' 'network MASTER_ADDR' 'logs LOG_LEVEL' 'commands PROMPT'; do
    cli 0 -- help "${words% *}" -- out "  ${words#* } " err '' sh '[ "$(grep -cE "^  [A-Z][A-Z0-9_]+ " out)" -lt 60 ]' # of one kind
done
cli 0 -- help settings -- out '  BATCH_SIZE ' out '  MASTER_ADDR ' out '  PROMPT '
cli 0 -- help DATA -- out 'DATA: Training data'
cli 64 -- help networks -- err 'did you mean network?'
cli 0 -- help exit-codes -- out '78  BAD_SETTING' out '143  TERMINATED'
cli 0 -- help BATCH_SIZE -- out 'allowed  1 to 65536 samples'
cli 0 -- help batch_size -- out 'BATCH_SIZE'
cli 0 -- help config -- out 'convoy config'
cli 0 -- config --help -- out 'convoy config'
cli 0 -- help settings-markdown -- out '| `LR` | 3e-4 |'
cli 0 -- help status-markdown -- out '| `checkpoint.save_seconds` | seconds |'
cli 64 -- help BATCHSIZE -- err 'did you mean BATCH_SIZE?' out ''
cli 64 -- help confg -- err 'did you mean config?'
cli 64 -- help qqqqqqqq -- err 'neither a topic, a command nor a setting'
cli 64 -- help a b
for words in version --version; do
    cli 0 -- $words -- out "convoy $(cat "$root/VERSION")" out 'commit ' out OpenSSL/3 err ''
    ok "version and licence of each library" is "$(awk '$1 ~ /^(libevent|libcurl|tls|cjson|utf8proc|pcre2|xxhash|zstd|ucx)$/ && NF >= 3 { print $1 }' out | sort -u | wc -l)" 9
done
cli 64 -- version x
cli 0 -- version gpu -- out 'opened if needed' sh '[ "$(grep -cE "^(driver|cublaslt|cudnn|nccl) +[^ ]" out)" = 4 ]'

cli 0 -- config -- out BATCH_SIZE sh '[ "$(head -c 4 out)" = NAME ]'
cli 0 LR=1e-3 SLURM_NODEID=0 -- config SEED=7
ok "each value says who set it" is "$(awk '$1 ~ /^(LR|SEED|NODE_ID)$/ { print $1, $2, $3 }' out | sort | xargs)" "LR 1e-3 environment NODE_ID 0 SLURM_NODEID SEED 7 argument"
cli 0 LR=1e-3 -- config JSON=1
ok "as JSON" is "$(jq -c '[.LR.value, .LR.origin, .BATCH_SIZE.value, .SHUFFLE.value, .CACHE_DIR.value, .LR.agree]' out)" \
    "[0.001,\"environment\",8,true,\"$tmp/.cache/convoy\",true]"

cli 64 -- confg -- err 'unknown command confg; did you mean config?' out ''
cli 64 -- qqqqqqqq -- err 'unknown command qqqqqqqq; `convoy help` lists them'
for words in sft finetune fine-tune; do
    cli 64 -- $words -- err "unknown command $words; to fine-tune a model, train it from its weights: convoy train MODEL="
done
cli 78 -- config DEVICE=gpu -- err 'DEVICE=gpu (argument) is not known, did you mean cuda'
cli 78 -- config PRECISION=bfloat16 -- err 'did you mean bf16'
cli 78 -- config SHARD=fsdp -- err 'did you mean full'
for words in 'train DATA=synthetic MODEL=' 'generate PROMPT=x MODEL=' 'import TO=x FROM='; do
    # shellcheck disable=SC2086
    cli 66 -- ${words}org/a-model -- err 'to use the model of that name on the Hugging Face hub, set hf://org/a-model'
    # shellcheck disable=SC2086
    cli 66 -- ${words}./a-model -- err '!hf://' # a path is no name on the hub
done
cli 1 -- status http://nowhere.invalid -- err 'the name does not resolve'
cli 1 -- status http://127.0.0.1:1 -- err 'no connection: nothing listens there'
cli 64 -- --frobnicate -- err 'unknown command --frobnicate'
cli 64 -- BATCH_SIZE -- err 'write a setting as BATCH_SIZE=VALUE'
cli 64 -- '' -- err 'unknown command'
cli 64 -- config BATCHSIZE=8 -- err 'did you mean BATCH_SIZE?' out ''
cli 64 -- config nonsense -- err 'not of the form NAME=VALUE'
cli 78 -- config BATCH_SIZE=8x -- err 'BATCH_SIZE=8x (argument) is not a whole number; allowed: 1 to 65536' out ''
cli 78 BATCH_SIZE=0 -- config -- err 'BATCH_SIZE=0 (environment) is out of range'
cli 78 NNODES=2 SLURM_STEP_NUM_NODES=4 -- config -- err 'two launchers contradict each other'
cli 78 SLURM_STEP_NUM_NODES=4 SLURM_NODEID=4 -- config -- err 'NODE_ID=4 (SLURM_NODEID) must be below N_NODES=4'
cli 78 -- config HEADS=5 EMBED=128 -- err 'HEADS=5 (argument) does not divide EMBED=128 (argument)'
ok "a failure is said once" is "$(wc -l <err)" 1
cli 78 LOG_FORMAT=json -- config HEADS=5 EMBED=128 -- sh '[ "$(jq -r .level err)" = error ]'
cli 0 BATCHSIZE=8 -- config -- err 'did you mean BATCH_SIZE?' out 'BATCH_SIZE'
cli 0 BATCHSIZE=8 LOG_FORMAT=json -- config -- sh '[ "$(jq -r .level err)" = warn ]'
cli 0 BATCHSIZE=8 LOG_LEVEL=error -- config -- err ''
cli 0 PATH=/x HOME=/root TERM=xterm KUBERNETES_PORT=tcp://10.0.0.1:443 NODE_NAME=n POD_IP=10.0.0.2 -- config -- err ''

# Without a wish the program shows how to begin; without DATA it trains nothing.
cli 64 -- -- err 'DATA=book.txt' err "$convoy train" out '' sh '[ "$(wc -l <err)" -le 8 ]'
cli 64 NO_COLOR=1 -- -- err 'DATA=book.txt'
cli 78 MODEL=gpt2-nano -- -- err 'DATA is not set: set it to the training data' err 'DATA=synthetic' out '' sh '[ "$(wc -l <err)" = 1 ]'
cli 78 -- train -- err 'DATA is not set'
cli 78 DATA=synthetic -- train DATA= -- err 'DATA is not set'
cli 78 -- train N_NODES=2 MASTER_ADDR=127.0.0.1 -- err 'DATA is not set' err 'JOB_TOKEN or JOB_TOKEN_FILE is not set'
cli 78 -- train N_NODES=2 NODE_ID=1 MASTER_ADDR=127.0.0.1 -- err 'JOB_TOKEN or JOB_TOKEN_FILE is not set' out '' err '!DATA is not set' # node 1 takes node 0's
cli 78 -- check N_NODES=2 -- err 'MASTER_ADDR is not set' err 'NODE_ID is not set'
cli 78 -- config 'MASTER_ADDR=[::1]:1234' -- err 'has a port, which belongs in MASTER_PORT'
cli 78 -- eval -- err 'VAL_DATA is not set'
cli 0 STATUS_PORT=0 -- DATA=synthetic MODEL=gpt2-nano LAYERS=1 HEADS=1 EMBED=8 VOCAB=16 CONTEXT=8 BATCH_SIZE=1 -- out 'step 1/1  loss'
cli 78 -- config CP=2 N_GPU_EACH_NODE=1 -- err "CP=2 (argument) does not divide the job's 1 worker ("
cli 0 -- config LR=1e-3 -- sh '[ "$(grep -v " default$" out | grep -c "^LR ")" = 1 ]'
cli 78 -- config CHANGED=1 -- err 'CHANGED=1 (argument): this setting was removed; `convoy config | grep'
cli 78 CHANGED=1 -- config -- err 'CHANGED=1 (environment): this setting was removed'

# Nobody listens on port 1: the answer is 1, with the address that was asked.
cli 1 -- status STATUS_PORT=1 -- err 'no answer from http://127.0.0.1:1/status'
cli 1 STATUS_ADDR=127.0.0.2 -- status STATUS_PORT=1 -- err 'no answer from http://127.0.0.2:1/status'
cli 1 -- status 'http://127.0.0.1:1/status?a=b' JSON=1 -- err '127.0.0.1:1'
cli 78 -- status STATUS_PORT=0 -- err 'STATUS_PORT=0 (argument) means no status server'
cli 1 -- status STATUS_PORT=1 DATA=http://x/ -- err '127.0.0.1:1'
cli 1 -- status DATA=http://x/ STATUS_PORT=1 -- err '127.0.0.1:1'
cli 64 -- status http://127.0.0.1:1/ x -- err 'not of the form NAME=VALUE'

# Words in other programs' form are answered with ours; a secret is not repeated.
for words in '--model gpt2' '--model=gpt2' '-model gpt2' 'train --model gpt2' 'train -model=gpt2' 'config model gpt2'; do
    # shellcheck disable=SC2086
    cli 64 -- $words -- err 'write a setting as MODEL=gpt2' out ''
done
cli 64 -- generate --prompt 'Once upon' -- err "write a setting as PROMPT='Once upon'"
cli 64 -- config --json -- err 'write a setting as JSON=1'
cli 64 -- --job-token=abcdefghijklmnop -- err 'JOB_TOKEN=…' err '!abcdefgh'
cli 64 -- train --job-token abcdefghijklmnop -- err '!abcdefgh'

# help COMMAND: settings that matter, and examples that are right but for the files they name.
for command in train tokenize generate import export eval bench rehearse status config; do
    cli 0 -- help $command -- out 'Main settings' out "  convoy $command" sh '[ "$(widest)" -le 120 ]'
    refused=
    sed -n "s/^  convoy $command//p" out >examples
    while read -r words; do
        eval "set -- $words"
        case ${1:-} in *=* | "") ;; *) shift ;; esac
        env -i PATH="$PATH" HOME="$tmp" "$convoy" config "$@" >/dev/null 2>err || refused="$refused $words;"
    done <examples
    ok "its examples are right" is "$refused" ""
done

# status of a folder: its newest checkpoint, the other ones, its settings; damage is reported.
tiny='DATA=synthetic MODEL=gpt2-nano LAYERS=1 HEADS=1 EMBED=8 VOCAB=16 CONTEXT=8 BATCH_SIZE=1 STATUS_PORT=0'
# shellcheck disable=SC2086
cli 0 -- train $tiny STEPS=4 CHECKPOINT_DIR=run1 CHECKPOINT_EVERY=2 LR=0.0125
cli 0 -- status run1 -- out 'gpt2-nano (lm)  1 layers, 1 heads, 8 wide' out 'step        4  32 tokens' out 'step 4, 2' out ' LR=0.0125' out run1/step-00000004 err ''
cli 0 -- status run1/step-00000002 JSON=1 -- sh '[ "$(jq -c "[.step, .checkpoints, .model.embed, .settings.LR]" out)" = "[2,[2],8,0.0125]" ]'
echo '{"points":{"loss":[4.5,3.5,2.5]},"events":[{"seconds":7,"text":"was\u001b[31m lost"}]}' >run1/history.json
cli 0 -- status run1 -- out '2.5' out 'after 7s' out 'was?[31m lost'
printf x | dd of=run1/step-00000004/manifest.json bs=1 seek=40 conv=notrunc 2>/dev/null
cli 1 -- status run1 -- out 'step        2 ' err '1 of 2 checkpoints cannot be used' err 'step-00000004/manifest.json'
cli 1 -- status run1/step-00000004 -- err 'manifest.json' out 'damaged     run1/step-00000004'
mkdir bare
cli 1 -- status bare -- err 'holds no checkpoint and no history of a run'
cli 1 -- status ./nowhere -- err 'is not a folder'

# tokenize: what is missing, and one word that becomes a file.
cli 78 -- tokenize OUT=o.bin -- err 'set DATA'
cli 78 -- tokenize DATA=synthetic OUT=o.bin -- err 'DATA=synthetic has no text'
cli 78 -- tokenize DATA=x -- err 'OUT'
cli 66 -- tokenize DATA=missing.txt OUT=o.bin -- err 'missing.txt'
printf 'hello world' >in.txt
cli 0 -- tokenize DATA=in.txt OUT=o.bin -- sh '[ -s o.bin ]'
: >empty.txt
cli 65 -- tokenize DATA=empty.txt OUT=o2.bin -- err empty sh '[ ! -e o2.bin ]'

# generate: a folder without a checkpoint is missing input, and nothing but text may go to stdout.
mkdir -p none
cli 66 -- generate CHECKPOINT_DIR=none -- err 'none' out ''
cli 78 -- generate TEMPERATURE=-1 -- err 'TEMPERATURE=-1 (argument) is out of range; allowed: 0 to 100'
cli 78 -- generate TOKENS=0 -- err 'allowed: 1 to 9007199254740991 tokens'

# A terminal gets bold headings, unless NO_COLOR has a value. script(1) gives a terminal.
if there script; then
    on_terminal() { env "$@" TERM=xterm script -qec "$convoy help" /dev/null >out </dev/null; }
    bold=$(printf '\033[1m')
    on_terminal -u NO_COLOR
    ok "bold on a terminal" grep -qF "$bold" out
    for value in 1 0 no; do
        on_terminal NO_COLOR=$value
        ok "NO_COLOR=$value on a terminal" is "$(grep -c "$(printf '\033')" out)" 0
    done
    on_terminal NO_COLOR=
    ok "an empty NO_COLOR is none" grep -qF "$bold" out
else
    skip "bold on a terminal" "script(1) is not installed"
fi

# A full or closed stdout is reported as a failure of storage.
: >out
for words in help version config 'config JSON=1' 'help exit-codes' 'help LR' 'help settings-markdown'; do
    # shellcheck disable=SC2086
    "$convoy" $words >/dev/full 2>err
    ok "convoy $words >/dev/full" is "$? $(grep -c 'cannot write to stdout: No space left on device' err)" "74 1"
done
"$convoy" help >&- 2>err
ok "convoy help, stdout closed" is "$? $(grep -c 'cannot write to stdout: Bad file descriptor' err)" "74 1"
"$convoy" version <&- >&- 2>&-
ok "convoy version, all closed" is $? 74
"$convoy" help | head -n 1 >out
ok "convoy help into a pipe whose reader left" shows Usage

# The largest environment that the system passes on, and arguments of every kind.
env -i PATH="$PATH" HOME="$tmp" $(seq -f 'SOME_VARIABLE_%.0f=x' 5000) DATA="$(head -c 100000 /dev/zero | tr '\0' a)" "$convoy" config >out 2>err
ok "an environment of 5000 variables and one of 100 kB" is "$? $(grep -c 'is too long; allowed: 0 to 4095 bytes' err) $(($(wc -c <err) < 400))" "78 1 1"
done_testing
