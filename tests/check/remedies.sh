#!/bin/bash
# remedies — the remedies that `convoy check` prints, tried: a fault is made, the printed commands are run as they stand, and the
# check passes. What needs a mount is made in a mount namespace, which goes with this script. Needs root.
set -u
export LC_ALL=C NO_COLOR=1 STATUS_PORT=0 DEVICE=cpu
top=$(cd "$(dirname "$0")/../.." && pwd)
convoy=$(cd "$top" && realpath "${BUILD:-build}")/convoy
[ "$(id -u)" = 0 ] || { echo "remedies: mounts need root" >&2; exit 1; }
[ -x "$convoy" ] || { echo "remedies: build first: make $convoy" >&2; exit 1; }
[ "${1:-}" = inside ] || exec unshare -m "$0" inside
mount --make-rprivate / || exit 1
dir=$(mktemp -d "${TMPDIR:-/tmp}/convoy-remedies-XXXXXX")
chmod 755 "$dir"
cp "$convoy" "$dir/convoy" # where any user may run it
trap 'cd /; umount "$dir"/disk.* 2>/dev/null; rm -rf --one-file-system "$dir"' EXIT
cd "$dir" || exit 1
failed=0

# look ROW FOLDER [COMMAND…] — the verdict of the row in $verdict, its remedy in $remedy; COMMAND: what to run the check in.
look() {
    local row=$1 folder=$2
    shift 2
    "$@" ./convoy check CHECK=quick CHECKPOINT_DIR="$folder" JSON=1 >report.json 2>err
    verdict=$(jq -r --arg r "$row" '[.rows[] | select(.name == $r) | .verdict] | first' report.json)
    remedy=$(jq -r --arg r "$row" '[.rows[] | select(.name == $r) | .remedy] | first' report.json)
}
# tried NAME VERDICT_BEFORE REMEDY — of the look after the remedy.
tried() {
    if [ "$2" = fail ] && [ "$verdict" = pass ]; then
        echo "ok $1: $3"
    else
        echo "WRONG $1: $2, then $verdict: $3"
        failed=$((failed + 1))
    fi
}
# follow ROW FOLDER NAME [COMMAND…] — looks, runs the remedy as printed, looks again.
follow() {
    local row=$1 folder=$2 name=$3 before printed
    shift 3
    look "$row" "$folder" "$@"
    before=$verdict printed=$remedy
    sh -c "$printed" >said 2>&1
    look "$row" "$folder" "$@"
    tried "$name" "$before" "$printed"
}
disk() { mkdir "$dir/disk.$1" && mount -t tmpfs -o "size=$2" none "$dir/disk.$1" || exit 1; }

disk "read  only's" 20g # as a name of a volume may be
mount -o remount,ro "$dir/disk.read  only's"
follow "disk space" "$dir/disk.read  only's" "a disk that is mounted read-only"

mkdir -p "$dir/disk.read  only's/run/checkpoints" # not the mount point itself
mount -o remount,ro "$dir/disk.read  only's"
follow "disk space" "$dir/disk.read  only's/run/checkpoints" "a folder on such a disk"

mkdir closed && chmod 500 closed
user="setpriv --reuid=65534 --regid=65534 --clear-groups"
# shellcheck disable=SC2086
follow "disk space" "$dir/closed" "a folder of another user" $user

disk full 256m
mkdir "$dir/disk.full/old" && head -c 250m /dev/zero >"$dir/disk.full/old/checkpoint"
look "disk space" "$dir/disk.full"
before=$verdict printed=$remedy
sh -c "$printed" >said 2>&1 # it lists what is largest, and a person decides
grep -q "$dir/disk.full/old" said && rm -r "$dir/disk.full/old"
look "disk space" "$dir/disk.full"
tried "a full disk" "$before" "$printed"

disk inodes 20g,nr_inodes=50
for i in $(seq 60); do : >"$dir/disk.inodes/$i"; done 2>/dev/null
look "disk space" "$dir/disk.inodes"
before=$verdict printed=$remedy
sh -c "$printed" >said 2>&1
grep -q "$dir/disk.inodes" said && rm "$dir"/disk.inodes/[1-4]*
look "disk space" "$dir/disk.inodes"
tried "a disk without inodes" "$before" "$printed"

# A shell that was given few open files, and may take more.
if (ulimit -n 100 && ulimit -Hn 101) 2>/dev/null; then
    (
        ulimit -n 100
        look "open files" ""
        echo "$verdict"
        echo "$remedy"
        eval "$remedy"
        look "open files" ""
        echo "$verdict"
    ) >files 2>said
    { read -r before && read -r printed && read -r verdict; } <files
    [ "$before" != warn ] || before=fail # few open files warn
    tried "few open files" "$before" "$printed"
else
    echo "skip few open files: CAP_SYS_RESOURCE is needed to raise a limit"
fi

echo "remedies: $failed were wrong"
[ $failed = 0 ]
