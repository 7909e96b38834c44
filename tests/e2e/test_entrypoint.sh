#!/bin/bash
# test_entrypoint — the image's entry point warns with the flag to add, execs convoy and passes all arguments on.
. "$(dirname "$0")/lib.sh"
unset DEVICE # which the suite sets
mkdir bin
cat >bin/convoy <<'EOF'
#!/bin/sh
echo "pid $$ words $#:$*"
exit 42
EOF
chmod +x bin/convoy
# enter DEV WORD… — with DEV for /dev; $rc, out, err.
enter() {
    rc=0
    (CONVOY_DEV=$1; export CONVOY_DEV; shift; PATH=$tmp/bin:$PATH exec sh "$root/entrypoint" "$@") >out 2>err &
    entered=$!
    wait $entered || rc=$?
}
mkdir -p bare
touch bare/nvidiactl
enter bare train 'DATA=two words' STEPS=3
ok "its process becomes convoy, with all words" is "$(cat out)" "pid $entered words 3:train DATA=two words STEPS=3"
ok "the exit code is convoy's" is $rc 42
for flag in "--gpus all" "--ulimit memlock" "--device /dev/infiniband" "--group-add"; do
    ok "without a reason no $flag" is "$(grep -cF -- "$flag" err)" 0
done
mkdir -p none
enter none
ok "no GPU: the flag for docker and for podman" is "$(grep -c 'warn: no NVIDIA GPU.*--gpus all .*nvidia.com/gpu=all' err)" 1
ok "and it goes on" is "$rc $(cat out)" "42 pid $entered words 0:"
DEVICE=cpu enter none
ok "unless it is not wanted" is "$(grep -c GPU err)" 0
DEVICE=hip enter none
ok "no AMD GPU: the flags, and none of NVIDIA" is "$(grep -c 'warn: no AMD GPU.*--device /dev/kfd --device /dev/dri' err) $(grep -c NVIDIA err)" "1 0"
mkdir -p amd/dri && touch amd/kfd
DEVICE=hip enter amd
ok "/dev/kfd without /dev/dri: the flags" is "$(grep -c 'warn: no AMD GPU.*--device /dev/dri' err)" 1
touch amd/dri/renderD128
DEVICE=hip enter amd
ok "both: no word of GPUs" is "$rc $(grep -c GPU err)" "42 0"
mkdir -p ib/infiniband
(ulimit -l 64 && enter ib; echo "$rc" >rc)
ok "little memory may be locked: the flag" is "$(grep -c 'warn: only 64 KiB.*--ulimit memlock=-1' err) $(cat rc)" "1 42"
ok "no device of InfiniBand: the flag" is "$(grep -c 'warn:.*--device /dev/infiniband' err)" 1
if [ "$(id -u)" = 0 ] && mkdir -p small/shm && touch small/nvidiactl && mount -t tmpfs -o size=64m cv$$ small/shm 2>/dev/null; then
    enter small
    ok "64 MiB of shared memory: the flags" is "$(grep -c 'warn:.*65536 KiB.*--ipc host, or --shm-size 8g' err)" 1
    umount small/shm
    mount -t tmpfs -o size=2g cv$$ small/shm
    enter small
    ok "2 GiB: silent" is "$(cat err)" ""
    umount small/shm
    touch ib/infiniband/uverbs0
    chgrp 1234 ib/infiniband/uverbs0
    chmod 660 ib/infiniband/uverbs0
    cp "$root/entrypoint" bin/entrypoint # that user may not come into this one's home
    chmod 755 "$tmp" . ib ib/infiniband bin
    rc=0
    # By names that begin in this folder: those above it may be closed to that user.
    (CONVOY_DEV=ib PATH=bin:$PATH exec setpriv --reuid 65532 --regid 65532 --clear-groups sh bin/entrypoint) >out 2>err || rc=$?
    ok "a device of another group: the flag with its number" is "$(grep -c 'warn:.*uverbs0.*--group-add 1234' err) $rc" "1 42"
    chgrp 1235 amd/kfd
    chmod 660 amd/kfd
    chmod 755 amd amd/dri
    (DEVICE=hip CONVOY_DEV=amd PATH=bin:$PATH exec setpriv --reuid 65532 --regid 65532 --clear-groups sh bin/entrypoint) >out 2>err || rc=$?
    ok "an AMD GPU of another group: the flag with its number" is "$(grep -c 'warn: amd/kfd.*--group-add 1235' err) $rc" "1 42"
else
    skip "shared memory and groups" "they need root"
fi
ok "it is POSIX sh" sh -n "$root/entrypoint"
done_testing
