#!/bin/bash
# test_k8s — the manifests of every overlay against Kubernetes' schema and against what the program says of itself; then faults
# planted into them, one at a time. MUTANTS=200 SEED=2 for more and for others.
. "$(dirname "$0")/lib.sh"
build=${BUILD:-build}
case $build in /*) ;; *) build=$root/$build ;; esac
venv=$build/venv
extra kubernetes-validate test -x "$venv/bin/kubernetes-validate"
check() { "$venv/bin/python" "$root/tests/e2e/k8s_check.py" "$@" >out 2>err; }
for overlay in base overlays/cpu overlays/gpu overlays/infiniband overlays/jobset; do
    check check "$convoy" "$root/k8s/$overlay"
    ok "$overlay: schema and meaning" is "$? $(cat out)" "0 "
done
render() { check render "$root/k8s/$1"; }
render overlays/cpu
ok "cpu: its image, no claim" is "$(grep -c 'image: convoy:cpu' out) $(grep -c PersistentVolumeClaim out)" "1 0"
render overlays/infiniband
ok "infiniband: GPUs too" is "$(grep -cE 'nvidia.com/gpu: .8|rdma/|hostNetwork: true' out)" 3
# What is checked here is what kubectl makes of it, where there is one.
if kubectl kustomize "$root/k8s/base" >/dev/null 2>&1; then
    for overlay in base overlays/cpu overlays/gpu overlays/infiniband overlays/jobset; do
        kubectl kustomize "$root/k8s/$overlay" >by-kubectl 2>err
        check compare "$root/k8s/$overlay" <by-kubectl
        ok "$overlay: kubectl makes the same of it" is "$? $(cat out)" "0 "
    done
else
    skip "kubectl makes the same of it" "no kubectl with kustomize here"
fi
want=${MUTANTS:-40}
check mutants "$convoy" "${SEED:-1}" "$want"
ok "$(tail -n 1 out) planted faults are noticed" test "$(tail -n 1 out | cut -d ' ' -f 1)" -ge $((want * 38 / 40))
sed '$d; s/^/# not noticed: /' out
done_testing
