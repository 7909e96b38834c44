#!/bin/sh
# test_cli — what a user types: help, version, config, mistakes; exit codes that need no training; colours; full and closed
# outputs. Runs in an environment of its own, so the caller's variables do not matter.
top=$(pwd)
convoy=$(cd "$top" && realpath "${BUILD:-build}")/convoy
work=$(mktemp -d "${TMPDIR:-/tmp}/convoy-cli-XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99
n=0

# try CODE [NAME=VALUE of the environment ...] -- WORD ...: run and compare the exit code; leaves out and err.
try() {
    want=$1
    shift
    vars=
    while [ "$1" != -- ]; do
        vars="$vars $1"
        shift
    done
    shift
    what="$vars convoy $*"
    # shellcheck disable=SC2086 — variables here hold no spaces
    env -i PATH="$PATH" HOME="$work" $vars "$convoy" "$@" >out 2>err
    code=$?
    why=
    [ "$code" = "$want" ] || why="exit code $code, want $want"
}
# says FILE TEXT: the text is in out or err; quiet FILE: it is empty.
says() { grep -qF -- "$2" "$1" || why="${why:-$1 does not say: $2}"; }
quiet() { [ ! -s "$1" ] || why="${why:-$1 is not empty}"; }
is() {
    n=$((n + 1))
    if [ -z "$why" ]; then
        printf 'ok %d -%s\n' "$n" "$what"
    else
        printf 'not ok %d -%s\n# %s\n' "$n" "$what" "$why"
        head -n 5 out err | sed 's/^/# /'
    fi
}

for words in help --help -h; do
    try 0 -- $words; says out 'Usage: convoy'; says out 'BATCH_SIZE'; quiet err
    [ "$(awk '{ if (length($0) > w) w = length($0) } END { print w }' out)" -le 100 ] || why='over 100 columns'
    ! grep -q "$(printf '\033')" out || why='escape codes without a terminal'
    [ "$(wc -l <out)" -le 25 ] || why="$(wc -l <out) lines are no screen"
    is
done
for words in 'model LAYERS' 'data SEQ_LEN' 'optimiser BETA1' 'checkpoints CHECKPOINT_EVERY' 'network MASTER_ADDR' 'logs LOG_LEVEL' 'commands PROMPT'; do
    try 0 -- help "${words% *}"; says out "  ${words#* } "; quiet err
    [ "$(grep -cE '^  [A-Z][A-Z0-9_]+ ' out)" -lt 60 ] || why='more than one kind'
    is
done
try 0 -- help settings; says out '  BATCH_SIZE '; says out '  MASTER_ADDR '; says out '  PROMPT '; is
try 0 -- help DATA; says out 'DATA: Training data'; is
try 64 -- help networks; says err 'did you mean network?'; is
try 0 -- help exit-codes; says out '78  BAD_SETTING'; says out '143  TERMINATED'; is
try 0 -- help BATCH_SIZE; says out 'allowed  1 to 65536 samples'; is
try 0 -- help batch_size; says out 'BATCH_SIZE'; is
try 0 -- help config; says out 'convoy config'; is
try 0 -- config --help; says out 'convoy config'; is
try 0 -- help settings-markdown; says out '| `LR` | 3e-4 |'; is
try 64 -- help BATCHSIZE; says err 'did you mean BATCH_SIZE?'; quiet out; is
try 64 -- help confg; says err 'did you mean config?'; is
try 64 -- help qqqqqqqq; says err 'neither a topic, a command nor a setting'; is
try 64 -- help a b; is
for words in version --version; do
    try 0 -- $words; says out "convoy $(cat "$top/VERSION")"; says out 'commit '; says out 'OpenSSL/3'
    for library in libevent libcurl tls cjson utf8proc xxhash zstd ucx; do
        [ "$(awk -v n=$library '$1 == n && NF >= 3' out | wc -l)" = 1 ] || why="${why:-no version and licence of $library}"
    done
    quiet err; is
done
try 64 -- version x; is
try 0 -- version gpu; says out 'opened when needed'
[ "$(awk '$1 ~ /^(driver|cublaslt|cudnn|nccl)$/ && NF >= 2' out | wc -l)" = 4 ] || why="${why:-not a line for each library of NVIDIA}"; is

try 0 -- config; says out 'BATCH_SIZE'; [ "$(head -c 4 out)" = NAME ] || why='no head line'; is
try 0 LR=1e-3 SLURM_NODEID=0 -- config SEED=7; is
what=' each value says who set it'
why=
[ "$(awk '$1 == "LR" { print $2, $3 }' out)" = '1e-3 environment' ] || why='LR'
[ "$(awk '$1 == "SEED" { print $2, $3 }' out)" = '7 argument' ] || why='SEED'
[ "$(awk '$1 == "NODE_ID" { print $2, $3 }' out)" = '0 SLURM_NODEID' ] || why='NODE_ID'
is
try 0 LR=1e-3 -- config JSON=1
[ "$(jq -c '[.LR.value, .LR.origin, .BATCH_SIZE.value, .SHUFFLE.value, .CACHE_DIR.value, .LR.agree]' out)" = \
    "[0.001,\"environment\",8,true,\"$work/.cache/convoy\",true]" ] || why='JSON differs'
is

try 64 -- confg; says err 'unknown command confg; did you mean config?'; quiet out; is
try 64 -- qqqqqqqq; says err 'unknown command qqqqqqqq; `convoy help` lists them'; is
for words in sft finetune fine-tune; do
    try 64 -- $words; says err "unknown command $words; to fine-tune is to train from given weights: convoy train MODEL="; is
done
try 78 -- config DEVICE=gpu; says err 'DEVICE=gpu (argument) is not known, did you mean cuda'; is
try 78 -- config PRECISION=bfloat16; says err 'did you mean bf16'; is
try 78 -- config SHARD=fsdp; says err 'did you mean full'; is
for words in 'train DATA=synthetic MODEL=' 'generate PROMPT=x MODEL=' 'import TO=x FROM='; do
    # shellcheck disable=SC2086
    try 66 -- ${words}org/a-model; says err 'fetch it first: `hf download org/a-model --local-dir a-model`'; is
    # shellcheck disable=SC2086
    try 66 -- ${words}./a-model; ! grep -q 'hf download' err || why='a path is no name on the hub'; is
done
try 1 -- status http://nowhere.invalid; says err 'the name does not resolve'; is
try 1 -- status http://127.0.0.1:1; says err 'no connection: nothing listens there'; is
try 64 -- --frobnicate; says err 'unknown command --frobnicate'; is
try 64 -- BATCH_SIZE; says err 'a setting is given as BATCH_SIZE=VALUE'; is
try 64 -- ''; says err 'unknown command'; is
try 64 -- config BATCHSIZE=8; says err 'did you mean BATCH_SIZE?'; quiet out; is
try 64 -- config nonsense; says err 'not of the form NAME=VALUE'; is
try 78 -- config BATCH_SIZE=8x; says err 'BATCH_SIZE=8x (argument) is not a whole number; allowed: 1 to 65536'; quiet out; is
try 78 BATCH_SIZE=0 -- config; says err 'BATCH_SIZE=0 (environment) is out of range'; is
try 78 NNODES=2 SLURM_STEP_NUM_NODES=4 -- config; says err 'two launchers contradict each other'; is
try 78 SLURM_STEP_NUM_NODES=4 SLURM_NODEID=4 -- config; says err 'NODE_ID=4 (SLURM_NODEID) must be below N_NODES=4'; is
try 78 -- config HEADS=5 EMBED=128; says err 'HEADS=5 (argument) does not divide EMBED=128 (argument)'; is
[ "$(wc -l <err)" = 1 ] || why='the sentence is said more than once'
what=' a failure is said once'
is
try 78 LOG_FORMAT=json -- config HEADS=5 EMBED=128
[ "$(jq -r .level err)" = error ] || why='the error is not JSON'
is
try 0 BATCHSIZE=8 -- config; says err 'did you mean BATCH_SIZE?'; says out 'BATCH_SIZE'; is
try 0 BATCHSIZE=8 LOG_FORMAT=json -- config
[ "$(jq -r .level err)" = warn ] || why='the warning is not JSON'
is
try 0 BATCHSIZE=8 LOG_LEVEL=error -- config; quiet err; is
try 0 PATH=/x HOME=/root TERM=xterm KUBERNETES_PORT=tcp://10.0.0.1:443 NODE_NAME=n POD_IP=10.0.0.2 -- config; quiet err; is

# Without a wish the program shows how to begin; without DATA it trains nothing.
try 64 --; says err 'DATA=book.txt'; says err "$convoy train"; quiet out
[ "$(wc -l <err)" -le 8 ] || why='more than a short text'; is
try 64 NO_COLOR=1 --; says err 'DATA=book.txt'; is
try 78 MODEL=gpt2-nano --; says err 'DATA is not set: name what to train on'; says err 'DATA=synthetic'; quiet out
[ "$(wc -l <err)" = 1 ] || why='more than one line'; is
try 78 -- train; says err 'DATA is not set'; is
try 78 DATA=synthetic -- train DATA=; says err 'DATA is not set'; is
try 78 -- train N_NODES=2 MASTER_ADDR=127.0.0.1; says err 'DATA is not set'; says err 'JOB_TOKEN or JOB_TOKEN_FILE is not set'; is
try 78 -- train N_NODES=2 NODE_ID=1 MASTER_ADDR=127.0.0.1; says err 'JOB_TOKEN or JOB_TOKEN_FILE is not set'; quiet out # node 1 takes node 0's
[ "$(grep -c 'DATA is not set' err)" = 0 ] || why='node 1 needs no DATA'; is
try 78 -- check N_NODES=2; says err 'MASTER_ADDR is not set'; says err 'NODE_ID is not set'; is
try 78 -- config 'MASTER_ADDR=[::1]:1234'; says err 'has a port, which belongs in MASTER_PORT'; is
try 78 -- eval; says err 'VAL_DATA is not set'; is
try 0 STATUS_PORT=0 -- DATA=synthetic MODEL=gpt2-nano LAYERS=1 HEADS=1 EMBED=8 VOCAB=16 CONTEXT=8 BATCH_SIZE=1; says out 'step 1/1  loss'; is
try 78 -- config CP=2 N_GPU_EACH_NODE=1; says err "CP=2 (argument) does not divide the job's 1 worker ("; is
try 0 -- config LR=1e-3; [ "$(grep -v ' default$' out | grep -c '^LR ')" = 1 ] || why='LR is not marked as set'; is
try 78 -- config CHANGED=1; says err 'CHANGED=1 (argument): this setting was removed; `convoy config | grep'; is
try 78 CHANGED=1 -- config; says err 'CHANGED=1 (environment): this setting was removed'; is

# Nobody listens on port 1: the answer is 1, with the address that was asked.
try 1 -- status STATUS_PORT=1; says err 'no answer from http://127.0.0.1:1/status'; is
try 1 STATUS_ADDR=127.0.0.2 -- status STATUS_PORT=1; says err 'no answer from http://127.0.0.2:1/status'; is
try 1 -- status 'http://127.0.0.1:1/status?a=b' JSON=1; says err '127.0.0.1:1'; is
try 78 -- status STATUS_PORT=0; says err 'STATUS_PORT=0 (argument) means no endpoint'; is
try 1 -- status STATUS_PORT=1 DATA=http://x/; says err '127.0.0.1:1'; is
try 1 -- status DATA=http://x/ STATUS_PORT=1; says err '127.0.0.1:1'; is
try 64 -- status http://127.0.0.1:1/ x; says err 'not of the form NAME=VALUE'; is

# Words in other programs' form are answered with ours; a secret is not repeated.
for words in '--model gpt2' '--model=gpt2' '-model gpt2' 'train --model gpt2' 'train -model=gpt2' 'config model gpt2'; do
    # shellcheck disable=SC2086
    try 64 -- $words; says err 'a setting is given as MODEL=gpt2'; quiet out; is
done
try 64 -- generate --prompt 'Once upon'; says err "a setting is given as PROMPT='Once upon'"; is
try 64 -- config --json; says err 'a setting is given as JSON=1'; is
try 64 -- --job-token=abcdefghijklmnop; says err 'JOB_TOKEN=…'; ! grep -q abcdefgh err || why='the secret is told'; is
try 64 -- train --job-token abcdefghijklmnop; ! grep -q abcdefgh err || why='the secret is told'; is

# help COMMAND: settings that matter, and examples that are right but for the files they name.
for command in train tokenize generate import export eval bench rehearse status config; do
    try 0 -- help $command; says out 'Main settings'; says out "  convoy $command"
    [ "$(awk '{ if (length($0) > w) w = length($0) } END { print w }' out)" -le 120 ] || why='over 120 columns'
    sed -n "s/^  convoy $command//p" out >examples
    while read -r words; do
        eval "set -- $words"
        case ${1:-} in *=* | "") ;; *) shift ;; esac
        env -i PATH="$PATH" HOME="$work" "$convoy" config "$@" >/dev/null 2>err || why="refused: $words"
    done <examples
    is
done

# status of a folder: its newest checkpoint, the other ones, its settings; damage is reported.
tiny='DATA=synthetic MODEL=gpt2-nano LAYERS=1 HEADS=1 EMBED=8 VOCAB=16 CONTEXT=8 BATCH_SIZE=1 STATUS_PORT=0'
# shellcheck disable=SC2086
try 0 -- train $tiny STEPS=4 CHECKPOINT_DIR=run1 CHECKPOINT_EVERY=2 LR=0.0125; is
try 0 -- status run1; says out 'gpt2-nano (lm)  1 layers, 1 heads, 8 wide'; says out 'step        4  32 tokens'
says out 'step 4, 2'; says out ' LR=0.0125'; says out 'run1/step-00000004'; quiet err; is
try 0 -- status run1/step-00000002 JSON=1
[ "$(jq -c '[.step, .checkpoints, .model.embed, .settings.LR]' out)" = '[2,[2],8,0.0125]' ] || why='JSON differs'; is
echo '{"points":{"loss":[4.5,3.5,2.5]},"events":[{"seconds":7,"text":"was\u001b[31m lost"}]}' >run1/history.json
try 0 -- status run1; says out '2.5'; says out 'after 7s'; says out 'was?[31m lost'; is
printf x | dd of=run1/step-00000004/manifest.json bs=1 seek=40 conv=notrunc 2>/dev/null
try 1 -- status run1; says out 'step        2 '; says err '1 of 2 checkpoints cannot be used'; says err 'step-00000004/manifest.json'; is
try 1 -- status run1/step-00000004; says err 'manifest.json'; says out 'damaged     run1/step-00000004'; is
mkdir bare
try 1 -- status bare; says err 'holds no checkpoint and no history of a run'; is
try 1 -- status ./nowhere; says err 'is not a folder'; is

# tokenize: what is missing, and one word that becomes a file.
try 78 -- tokenize OUT=o.bin; says err 'set DATA'; is
try 78 -- tokenize DATA=synthetic OUT=o.bin; says err 'DATA=synthetic has no text'; is
try 78 -- tokenize DATA=x; says err 'OUT'; is
try 66 -- tokenize DATA=missing.txt OUT=o.bin; says err 'missing.txt'; is
printf 'hello world' >in.txt
try 0 -- tokenize DATA=in.txt OUT=o.bin; [ -s o.bin ] || why='no o.bin'; is
: >empty.txt
try 65 -- tokenize DATA=empty.txt OUT=o2.bin; says err 'empty'; [ ! -e o2.bin ] || why='o2.bin was written'; is

# generate: a folder without a checkpoint is missing input, and nothing but text may go to stdout.
mkdir -p none
try 66 -- generate CHECKPOINT_DIR=none; says err 'none'; quiet out; is
try 78 -- generate TEMPERATURE=-1; says err 'TEMPERATURE=-1 (argument) is out of range; allowed: 0 to 100'; is
try 78 -- generate TOKENS=0; says err 'allowed: 1 to 9007199254740991 tokens'; is

# A terminal gets bold headings, unless NO_COLOR has a value. script(1) gives a terminal.
if command -v script >/dev/null; then
    what=' bold on a terminal'
    why=
    env -u NO_COLOR TERM=xterm script -qec "$convoy help" /dev/null >out </dev/null
    grep -q "$(printf '\033')\[1m" out || why='no bold'
    is
    for value in 1 0 no; do
        what=" NO_COLOR=$value on a terminal"
        why=
        NO_COLOR=$value TERM=xterm script -qec "$convoy help" /dev/null >out </dev/null
        ! grep -q "$(printf '\033')" out || why='escape codes'
        is
    done
    what=' an empty NO_COLOR is none'
    why=
    NO_COLOR='' TERM=xterm script -qec "$convoy help" /dev/null >out </dev/null
    grep -q "$(printf '\033')\[1m" out || why='no bold'
    is
else
    n=$((n + 1))
    printf 'ok %d - bold on a terminal # SKIP script(1) is not installed\n' "$n"
fi

# A full or closed stdout is reported as a failure of storage.
: >out
for words in help version config 'config JSON=1' 'help exit-codes' 'help LR' 'help settings-markdown'; do
    what=" convoy $words >/dev/full"
    why=
    # shellcheck disable=SC2086
    "$convoy" $words >/dev/full 2>err
    [ $? = 74 ] || why='exit code is not 74'
    says err 'cannot write to stdout: No space left on device'
    is
done
what=' convoy help, stdout closed'
why=
"$convoy" help >&- 2>err
[ $? = 74 ] || why='exit code is not 74'
says err 'cannot write to stdout: Bad file descriptor'
is
what=' convoy version, all closed'
why=
"$convoy" version <&- >&- 2>&-
[ $? = 74 ] || why='exit code is not 74'
is
what=' convoy help into a pipe whose reader left'
why=
"$convoy" help | head -n 1 >out
says out 'Usage'
is

# The largest environment that the system passes on, and arguments of every kind.
what=' an environment of 5000 variables and one of 100 kB'
why=
env -i PATH="$PATH" HOME="$work" $(seq -f 'SOME_VARIABLE_%.0f=x' 5000) DATA="$(head -c 100000 /dev/zero | tr '\0' a)" "$convoy" config >out 2>err
[ $? = 78 ] || why='exit code is not 78'
says err 'is too long; allowed: 0 to 4095 bytes'
[ "$(wc -c <err)" -lt 400 ] || why='the sentence repeats the value'
is
printf '1..%d\n' "$n"
