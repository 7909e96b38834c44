#!/bin/bash
# test_kubelet — the base manifest's Job, run by a small kubelet on this machine: pods are killed, evicted and frozen; the job
# completes. KILLS=20 for more than a sample (make kubelet), SEED=2 for other faults.
. "$(dirname "$0")/lib.sh"
[ "${SAN:-}" = "" ] || give_up pods "its times are not meant for sanitizers"
[ "$(id -u)" = 0 ] || give_up pods "namespaces need root"
extra python3-yaml /usr/bin/python3 -c 'import yaml'
unshare --net true 2>err || give_up pods "$(tail -n 1 err)"
# The files of the image, with the ordinary build and the libraries that it needs.
mkdir release
cp "$convoy" release/convoy
cp "$root/LICENSE" release/licences.txt
"$root/.ci/rootfs" release image >out 2>err || give_up pods "no root folder: $(tail -n 1 err)"
# The text in the image, which the manifests name, is for whole vocabularies.
few="$tiny DATA=synthetic"
# kubelet FOLDER RUNS SETTING… — the settings stand for a user's ConfigMap: a model that takes seconds.
kubelet() {
    unshare --net --kill-child --fork /usr/bin/python3 "$root/tests/e2e/kubelet.py" "$tmp/image" "$1" "$(mktemp -d)/work" "$2" "${SEED:-1}" "${@:3}" 2>err ||
        { echo "not ok 999 - the kubelet came to its end"; tail -n 12 err | sed 's/^/# /'; }
}
export TMPDIR=$tmp
kubelet "$root/k8s/base" "${KILLS:-2}" $few STEPS=1000 CHECKPOINT_EVERY=50 CHECKPOINT_KEEP=2 | tee tap
if grep -q '^cannot be made here' tap; then give_up pods "containers $(cat tap)"; fi
n=$(grep -cE '^(not )?ok' tap)

# README.md's commands, with kubectl's part played here.
mkdir bin
cat >bin/kubectl <<'EOF'
#!/bin/bash
set -eu
case "$1 $2" in
"create secret") mkdir -p "secrets/$4"; word=${5#--from-literal=}; printf %s "${word#*=}" >"secrets/$4/${word%%=*}" ;;
"apply -k") echo "$3" >applied ;;
*) exit 64 ;;
esac
EOF
chmod +x bin/kubectl
block kubernetes >commands
PATH=$tmp/bin:$PATH bash -e commands
ok "README.md: a secret and an overlay" is "$? $(find secrets -type f) $(cat applied)" "0 secrets/convoy-token/JOB_TOKEN k8s/overlays/cpu"
SECRETS=$tmp/secrets kubelet "$root/$(cat applied)" 0 STEPS=4 BATCH_SIZE=1 >tap2
ok "with which the job completes, and its pods become ready" is \
    "$(grep -c '^ok' tap2) $(grep -c '^not ok' tap2) $(grep -c '^ok 1 - undisturbed: Complete, step 4$' tap2)" "2 0 1"
grep -q '^not ok' tap2 && sed 's/^/# /' tap2

# The other overlays: their variables, volumes, probes and names, in runs without trouble.
for overlay in gpu infiniband jobset; do
    kubelet "$root/k8s/overlays/$overlay" 0 $few STEPS=40 BATCH_SIZE=1 GLOBAL_BATCH=4 >tap2
    ok "overlay $overlay: the job completes, its pods become ready" is \
        "$(grep -c '^ok' tap2) $(grep -c '^not ok' tap2) $(grep -c '^ok 1 - undisturbed: Complete, step 40$' tap2)" "2 0 1"
    grep '^#' tap2
    grep -q '^not ok' tap2 && sed 's/^/# /' tap2
done
done_testing
