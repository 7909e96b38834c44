#!/bin/bash
# test_kubelet — the base manifest's Job run by a small kubelet on this machine: pods killed, evicted, frozen; the job completes.
# KILLS=20 for more than a sample (make kubelet), SEED=2 for others.
. "$(dirname "$0")/lib.sh"
give_up() { skip "pods" "$1"; done_testing; exit; }
[ "${SAN:-}" = "" ] || give_up "its times are not meant for sanitizers"
[ "$(id -u)" = 0 ] || give_up "namespaces need root"
sh "$root/.ci/need" python3 python3-yaml iproute2 >out 2>err || give_up "python3-yaml cannot be installed: $(tail -n 1 err)"
unshare --net true 2>err || give_up "$(tail -n 1 err)"
# The files of the image, with the ordinary build and the libraries that it needs.
mkdir release
cp "$convoy" release/convoy
cp "$root/LICENSE" release/licences.txt
"$root/.ci/rootfs" release image >out 2>err || give_up "no root folder: $(tail -n 1 err)"
# The settings stand for a user's ConfigMap: a model that takes seconds.
unshare --net --kill-child --fork /usr/bin/python3 "$root/tests/e2e/kubelet.py" "$tmp/image" "$root/k8s/base" "$tmp/work" "${KILLS:-2}" "${SEED:-1}" \
    $tiny STEPS=2000 CHECKPOINT_EVERY=100 CHECKPOINT_KEEP=2 2>err || { echo "not ok 999 - the kubelet came to its end"; tail -n 12 err | sed 's/^/# /'; }
