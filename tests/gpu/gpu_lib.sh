# shellcheck shell=bash
# gpu_lib — what the modes of gpu.sh share: is there a GPU, NVIDIA's libraries, steps with a time limit, results, short training
# runs. Sourced by gpu.sh, which sets mode, here, top, GPU, results, DRY and work.

say() { printf '%s\n' "$*" >&2; }

# look — finds out whether there is a GPU, and its vendor. NVIDIA_CTL, AMD_KFD: for tests, the files of the drivers.
vendor=nvidia runtime=CUDA carry="make gpu-carry builds it where nvcc is"
look() {
    [ "$DRY" = 1 ] && return 0
    [ -e "${NVIDIA_CTL:-/dev/nvidiactl}" ] || nvidia-smi -L >/dev/null 2>&1 && return 0
    if [ -e "${AMD_KFD:-/dev/kfd}" ]; then
        vendor=amd runtime=HIP device=hip carry="make HIP=1 CUDA=0 gpu-carry builds it where clang-19 and HIP's headers are"
        return 0
    fi
    say "gpu-$mode: no GPU here: there is no /dev/nvidiactl, nvidia-smi finds none, and there is no /dev/kfd; run this on a machine with" \
        "an NVIDIA GPU (sm_80 or newer; in a container with --gpus all) or, for first, an AMD GPU (in a container with --device /dev/kfd" \
        "--device /dev/dri --group-add video). DRY=1 tries the script itself."
    return 1
}
# nvidia_only REASON — skips a step on GPUs of other vendors.
nvidia_only() { [ $vendor = nvidia ] || { echo "for NVIDIA GPUs only: $1" >"$work/note"; return 77; }; }

# find_libraries — NVIDIA's libraries of PyPI's packages, all in one folder, for they look for each other beside themselves. Every
# folder of the package `nvidia` counts: site-packages of the system and of a user are two.
pythons() { printf '%s\n' python3 /opt/torch/.venv/bin/python3; }
nvidia_folders() {
    local python
    pythons | while read -r python; do
        timeout -k 5 30 "$python" -c 'import nvidia; print("\n".join(nvidia.__path__))' 2>/dev/null
    done
}
caller_path=${LD_LIBRARY_PATH-} # the driver may lie in a folder that only this names
find_libraries() {
    local folder file
    if [ -n "${CONVOY_LIB_DIR:-}" ]; then
        # The tests' programs find them by the loader alone.
        LD_LIBRARY_PATH=$CONVOY_LIB_DIR$(printf ':%s' "$CONVOY_LIB_DIR"/*/lib)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
        export LD_LIBRARY_PATH
        return
    fi
    [ $vendor = nvidia ] || return 0
    while IFS= read -r folder; do
        for file in "$folder"/*/lib/lib*.so*; do
            mkdir -p "$work/lib"
            [ -e "$file" ] && [ ! -e "$work/lib/${file##*/}" ] && ln -s "$file" "$work/lib/"
        done
    done < <(nvidia_folders)
    [ -d "$work/lib" ] || return 0
    export CONVOY_LIB_DIR=$work/lib LD_LIBRARY_PATH=$work/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

# ---- results ----

# can_write — and the folder of logs, which bench and first keep.
can_write() {
    local why
    if ! why=$( { mkdir -p "$results/$mode" && : >"$results/$mode/.try" && rm "$results/$mode/.try"; } 2>&1); then
        say "gpu-$mode: nothing can be written to $results: ${why##*: }; set OUT to a folder that can be written"
        return 1
    fi
    [ "$mode" = test ] || logs=$results/$mode
}

# Tables in files, a row a line, tabs between columns:
#   rows      name, outcome, seconds, note, planned seconds: of steps
#   measured  name, unit, value, share of the limit, ms
#   times     operation, shape, calls, ms, share, rate, unit: of one step (CUDA_TIMES=1)
#   machine   what, value
for table in rows measured times machine; do : >"$work/$table"; done
# quote — one line, without what would break a table or JSON.
quote() { printf '%s' "$1" | tr -d '\000-\010\013-\037' | tr '\t\n' '  '; }

# Asked once: on a bare machine nvidia-smi takes seconds.
gpu_name='dry run, no GPU' driver='' version=''
look_at_gpu() {
    version=$("$GPU/convoy" version 2>/dev/null | head -1)
    [ "$DRY" = 1 ] && return
    if [ $vendor = amd ]; then
        gpu_name='' driver=$(cat "${AMD_SYS:-/sys}/module/amdgpu/version" 2>/dev/null || uname -r) # the name: gpu_first.sh, describe
        return
    fi
    IFS=, read -r gpu_name driver < <(timeout -k 5 20 nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null)
    driver=${driver# }
}

wanted() { [ -z "${ONLY:-}" ] || grep -qE -- "$ONLY" <<<"$1"; }

# within — what hangs is ended: the rest is still to be seen. A step that has an end (step_end, in seconds of the epoch) shortens it.
step_end='' child=''
within() { # seconds, command...
    local most=$1 left
    shift
    if [ -n "$step_end" ]; then
        left=$((step_end - $(date +%s)))
        [ $left -ge 1 ] || left=1
        [ "$most" -le $left ] || most=$left
    fi
    # In the background and waited for, so that a signal to this script ends it at once (gpu.sh).
    timeout -k 5 "$most" "$@" &
    child=$!
    wait "$child"
    set -- $?
    child=''
    return "$1"
}

# step — runs a command, its output in a log of its own under $logs. Its row: ok, failed, or skipped (77) with a reason, which is
# what it wrote to $work/note.
failures=0
step() { # name, command...
    local name=$1 began rc log note outcome
    wanted "$name" || return 0
    shift
    log=$logs/$(printf '%s' "$name" | tr -c 'a-zA-Z0-9' '_').log
    rm -f "$work/note"
    began=$(date +%s)
    "$@" >"$log" 2>&1
    rc=$?
    note=$(cat "$work/note" 2>/dev/null)
    case $rc in
    0) outcome=ok ;;
    77) outcome=skipped note=${note:-a dry run has no GPU} ;;
    124 | 137) outcome=failed note="${note:+$note; }ended after its time limit" ;;
    *) outcome=failed note=${note:-$(grep -E ' error |not ok|Bail out|ERROR SUMMARY|^gpu_bench:' "$log" | head -3)} ;;
    esac
    [ "$outcome" != failed ] || note=${note:-exit code $rc}
    note=${note:0:400}
    printf '%s\t%s\t%s\t%s\t%s\n' "$name" "$outcome" "$(($(date +%s) - began))" "$(quote "$note")" "${step_cost:-}" >>"$work/rows"
    say "$outcome: $name${note:+ ($(quote "$note"))}"
    [ "$outcome" != failed ] || { failures=$((failures + 1)) && tail -20 "$log" >&2; }
    write_results
}

# write_results — JSON and a table from the tables so far; neither is ever half written.
write_results() {
    local as base=$results/$mode
    [ "$mode" != first ] || describe
    for as in json md; do
        awk -f "$here/gpu_results.awk" -v as=$as -v mode="$mode" -v dry="$DRY" -v gpu="$gpu_name" -v driver="$driver" \
            -v when="$(date -u +%Y-%m-%dT%H:%M:%SZ)" -v version="$version" -v precision="${precision:-}" \
            "$here/predicted.tsv" "$work/rows" "$work/measured" "$work/times" "$work/machine" >"$base.$as.new" && mv "$base.$as.new" "$base.$as"
    done
}
write_last() {
    write_results && say "written: $results/$mode.json $results/$mode.md"
}

# ---- short training runs ----

device=cuda
[ "$DRY" = 1 ] && device=cpu
export STATUS_PORT=0 JOIN_TIMEOUT=60s
# SMALLER: more settings, for an emulated GPU.
nano="MODEL=gpt2-nano SEQ_LEN=64 BATCH_SIZE=2 GLOBAL_BATCH=4 STEPS=10 SEED=3 LR=1e-3 PRECISION=fp32 ${SMALLER:-}"

# train — losses of the steps go to $work/NAME.losses.
train() { # name, settings...
    local name=$1
    shift
    rm -f "$work/$name.jsonl"
    # shellcheck disable=SC2086 # words
    within 300 "$GPU/convoy" train $nano DATA="$work/text" METRICS_FILE="$work/$name.jsonl" "$@" || return
    sed -n 's/.*"loss":\([^,]*\),.*/\1/p' "$work/$name.jsonl" >"$work/$name.losses"
    sed -n 's/.*"grad_norm":\([^,]*\),.*/\1/p' "$work/$name.jsonl" >"$work/$name.norms"
    [ -s "$work/$name.losses" ]
}

# near — are the losses of two runs within 1e-4 of each other, or within $3? Notes how far apart they are. $4: norms, of gradients.
near() {
    paste "$work/$1.${4:-losses}" "$work/$2.${4:-losses}" | awk -v out="$work/note" -v most="${3:-1e-4}" -v what="${4:-losses}" '
        function number(x) { return x ~ /^-?[0-9.]+([eE][-+]?[0-9]+)?$/ } # an awk may take "nan" for 0
        { d = $2 + 0 == 0 ? ($1 + 0 != 0) : ($1 - $2) / $2; if (d < 0) d = -d; if (d > worst) worst = d; if (!number($1) || !number($2)) bad = 1 }
        END { printf "%d %s, %.1e apart at most\n", NR, what, worst >>out; exit bad || !(worst <= most) || NR == 0 }'
}

gpus() {
    if [ "$DRY" = 1 ]; then
        echo 2
    elif [ $vendor = amd ]; then
        timeout -k 5 60 "$GPU/convoy" version gpu 2>/dev/null | sed -n 's/^amdgpu  *\([0-9]*\) GPU.*/\1/p'
    else
        timeout -k 5 20 nvidia-smi -L 2>/dev/null | grep -c ^GPU
    fi
}

# text_for_training — the book that ships.
text_for_training() { cp "$top/assets/alice.txt" "$work/text"; }

# ---- steps of more than one mode ----

kernels() { within 300 "$GPU/$(test_program)" "$1"; } # family
runtime() {
    [ "$DRY" = 1 ] && return 77
    nvidia_only "it checks CUDA's runtime" || return
    within 120 "$GPU/gpu_tests" runtime
}
golden() {
    [ "$DRY" = 1 ] && return 77
    GOLDEN_DEVICE=$device within 300 "$GPU/gpu_tests" golden
}
as_on_cpu() { train cpu DEVICE=cpu && train gpu DEVICE=$device && near gpu cpu; }
# graphs — CUDA_GRAPH=auto and off: the same bits, with dropout and accumulation.
graphs() {
    train whole DEVICE=$device DROPOUT=0.1 BATCH_SIZE=1 && train eager DEVICE=$device DROPOUT=0.1 BATCH_SIZE=1 CUDA_GRAPH=off &&
        cmp "$work/whole.losses" "$work/eager.losses"
}
sanitizer() { # tool, command...
    local tool=$1 program
    nvidia_only compute-sanitizer || return
    shift
    for program in "$(command -v compute-sanitizer)" /usr/local/cuda/bin/compute-sanitizer; do [ -x "$program" ] && break; done
    [ -x "$program" ] || { echo "no compute-sanitizer here" >"$work/note"; return 77; }
    [ "$DRY" = 1 ] && return 77
    # It brings libraries of its own; those of PyPI would hide them.
    within 300 env LD_LIBRARY_PATH="$caller_path" "$program" --tool "$tool" --target-processes all --error-exitcode 9 "$@" >"$work/sanitizer" 2>&1
    local rc=$?
    cat "$work/sanitizer"
    if grep -q 'Device not supported' "$work/sanitizer"; then
        echo "compute-sanitizer does not support this device" >"$work/note"
        return 77
    fi
    return $rc
}

test_program() { if [ "$DRY" = 1 ]; then echo dry_tests; else echo gpu_tests; fi; }
families() { "$GPU/$(test_program)" list | sed -n 's/^family //p'; }
