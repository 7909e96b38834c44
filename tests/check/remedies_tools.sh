#!/bin/bash
# remedies_tools — the commands that `convoy check` prints for nodes that a test makes up (trees), run where their tools are stood in
# for by remedy_tool.sh, which takes only what the tools' manuals have, and changes the tree as the tool would change the node. Each
# must be accepted; where the tool changes what the check reads, the row must pass afterwards. Needs root (bind mounts).
set -u
export LC_ALL=C NO_COLOR=1 STATUS_PORT=0 DEVICE=cpu
top=$(cd "$(dirname "$0")/../.." && pwd)
convoy=$(cd "$top" && realpath "${BUILD:-build}")/convoy
[ "$(id -u)" = 0 ] || { echo "remedies_tools: mounts need root" >&2; exit 1; }
[ -x "$convoy" ] || { echo "remedies_tools: build first: make $convoy" >&2; exit 1; }
[ "${1:-}" = inside ] || exec unshare -m "$0" inside
mount --make-rprivate / || exit 1
dir=$(mktemp -d "${TMPDIR:-/tmp}/convoy-remedies-XXXXXX")
trap 'cd /; umount "$dir/root/shm" 2>/dev/null; rm -rf --one-file-system "$dir"' EXIT
cd "$dir" || exit 1
export TREE=$dir/root
mkdir bin
for tool in amd-smi cpupower dcgmi dmesg docker ethtool ip ipmitool kubectl mlxlink modprobe nvidia-smi perfquery reboot scontrol swapoff sysctl systemctl; do
    ln -s "$top/tests/check/remedy_tool.sh" "bin/$tool"
done
for tool in basename cat grep head ls mkdir mount ps sed sh tail taskset; do ln -s "$(command -v $tool)" "bin/$tool"; done
: >kmsg
mount --bind kmsg /dev/kmsg
mount -t tmpfs none /dev/shm
failed=0 accepted=0 mended=0 advice=0

rows() { "$convoy" check CHECK=quick BUDGET=1s CHECK_ROOT="$TREE" JSON=1 2>/dev/null | jq -r '.rows[] | select(.stage == "static") | "\(.verdict)\t\(.name)\t\(.remedy)"'; }
verdict_of() { rows | awk -F'\t' -v name="$1" '$2 == name { print $1; exit }'; }
# What a tool changes in the tree is read again.
is_mendable() { [[ $1 =~ ^(cpupower|sysctl|modprobe\ nvidia_peermem|ethtool\ -s|echo\ madvise|nvidia-smi\ -i\ [0-9]+\ -pm) ]]; }
huge=/sys/kernel/mm/transparent_hugepage/enabled
try() { # try TREE ROW REMEDY
    case $3 in
        '# '* | 'repair '* | 'measure again'* | [A-Z_]*=* | *': {'* | *': ['* | hostNetwork:* | podPidsLimit:*)
            advice=$((advice + 1)); return ;;
    esac
    if [[ $3 == ulimit* ]] && ! (ulimit -l 64 && ulimit -l unlimited) 2>/dev/null; then
        echo "skip $1, $2: $3: CAP_SYS_RESOURCE is needed to raise a limit"; return
    fi
    [ -f "$TREE$huge" ] && [ -f "$huge" ] && mount --bind "$TREE$huge" "$huge"
    if (ulimit -l 64; PATH=$dir/bin sh -c "$3") >said 2>&1; then
        accepted=$((accepted + 1))
    else
        echo "WRONG $1, $2: $3"; sed 's/^/# /' said
        failed=$((failed + 1))
    fi
    mountpoint -q "$huge" && umount "$huge"
    is_mendable "$3" || return
    local after
    after=$(verdict_of "$2")
    if [ "$after" = pass ]; then
        mended=$((mended + 1)); echo "ok $1, $2: $3"
    else
        echo "WRONG $1, $2: then $after: $3"; failed=$((failed + 1))
    fi
}
for tree in $(sed -n 's/^tree \([a-z0-9-]*\).*/\1/p' "$top/tests/check/trees/faults.tree"); do
    rm -rf "$TREE"
    "$top/tests/check/trees/unpack.pl" "$TREE" "$tree" >/dev/null || exit 1
    while IFS=$'\t' read -r verdict name remedy; do
        case $verdict in fail | warn) try "$tree" "$name" "$remedy" ;; esac
    done < <(rows)
done
# What takes a node out, as its scheduler knows it: alone, or behind "# if it stays: ".
drain() { # drain TREE PART-OF-COMMAND [SETTING=VALUE…]
    rm -rf "$TREE"
    "$top/tests/check/trees/unpack.pl" "$TREE" "$1" >/dev/null || exit 1
    local before=$accepted remedy
    remedy=$(env "${@:3}" N_NODES=1 NODE_ID=0 "$convoy" check CHECK=quick BUDGET=1s CHECK_ROOT="$TREE" JSON=1 2>/dev/null |
        jq -r '[.rows[] | select(.verdict == "fail") | .remedy] | first')
    remedy=${remedy##*"# if it stays: "}
    [[ $remedy != "$2"* ]] || try "$1" "its scheduler" "$remedy"
    if [ "$accepted" != $((before + 1)) ]; then echo "WRONG $1: $remedy"; failed=$((failed + 1)); fi
}
drain row-failed "scontrol update NodeName=gpu-07 State=DRAIN" SLURM_JOB_ID=7 SLURMD_NODENAME=gpu-07
drain nvlink-down "kubectl cordon gpu-node-3" KUBERNETES_SERVICE_HOST=1 NODE_NAME=gpu-node-3
drain nvlink-down 'kubectl cordon $(kubectl get pod' KUBERNETES_SERVICE_HOST=1
# The flags of containers and the scheduler's command; docker itself reads its flags, where it is there.
if real=$(type -P docker) && [ "$real" != "$dir/bin/docker" ]; then
    for flags in "--gpus all" "--ulimit memlock=-1" "--ulimit nofile=65536" "--shm-size=8g" "--pids-limit=-1" "--cpus=8" \
        "--network host" "--device /dev/infiniband --cap-add IPC_LOCK --network host"; do
        # shellcheck disable=SC2086
        if "$real" run $flags --help >said 2>&1; then accepted=$((accepted + 1)); else echo "WRONG docker run $flags"; failed=$((failed + 1)); fi
    done
fi
echo "remedies_tools: $accepted commands were accepted, $mended of them mended the row; $advice are settings or advice; $failed were wrong"
[ $failed = 0 ]
