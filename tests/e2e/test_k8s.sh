#!/bin/bash
# test_k8s — the manifests of every overlay against Kubernetes' schema and against the program's own help; then faults planted
# in them, one at a time. MUTANTS=200 SEED=2 for more and other faults.
. "$(dirname "$0")/lib.sh"
build=${BUILD:-build}
case $build in /*) ;; *) build=$root/$build ;; esac
venv=$build/venv
extra kubernetes-validate test -x "$venv/bin/kubernetes-validate"
check() { "$venv/bin/python" "$root/tests/e2e/k8s_check.py" "$@" >out 2>err; }
overlays="base overlays/amd overlays/cpu overlays/gpu overlays/infiniband overlays/jobset overlays/own"
for overlay in $overlays; do
    check check "$convoy" "$root/k8s/$overlay"
    ok "$overlay: schema and meaning" is "$? $(cat out)" "0 "
done
render() { check render "$root/k8s/$1"; }
render overlays/cpu
ok "cpu: its image, no claim" is "$(grep -c "image: convoy:$(cat "$root/VERSION")-cpu" out) $(grep -c PersistentVolumeClaim out)" "1 0"
render overlays/amd
ok "amd: its image, GPUs of AMD only" is "$(grep -c "image: convoy:$(cat "$root/VERSION")-rocm" out) $(grep -cE 'amd.com/gpu: .8|value: hip' out) $(grep -c nvidia out)" "1 2 0"
render overlays/infiniband
ok "infiniband: GPUs too" is "$(grep -cE 'nvidia.com/gpu: .8|rdma/|hostNetwork: true' out)" 3
# An existing claim of any name, as overlays/own/data.yaml sets it: mounted, not created, and without the suffix.
mkdir own-claim
sed "s,\.\./gpu,$(realpath --relative-to=own-claim "$root/k8s/overlays/gpu")," "$root/k8s/overlays/own/kustomization.yaml" >own-claim/kustomization.yaml
sed 's/claimName: .*/claimName: team-books/' "$root/k8s/overlays/own/data.yaml" >own-claim/data.yaml
cp "$root/k8s/overlays/own/settings.yaml" own-claim/
check check "$convoy" "$tmp/own-claim"
ok "own with an existing claim: schema and meaning" is "$? $(cat out)" "0 "
check render "$tmp/own-claim"
ok "it is mounted at /data and not created; no kind that a plain cluster lacks" is \
    "$(grep -c 'claimName: team-books$' out) $(grep -c 'name: team-books' out) $(grep '^kind: ' out | sort | xargs)" \
    "1 0 kind: ConfigMap kind: Job kind: NetworkPolicy kind: PersistentVolumeClaim kind: Service"
for overlay in amd gpu infiniband jobset own; do
    render "overlays/$overlay"
    ok "$overlay trains on the text of a claim, not on the sample" is "$(grep -c alice out) $(grep -c 'DATA: /data$' out)" "0 1"
done
# Checkpoints in a bucket: the keys come from a secret, and no claim is made.
mkdir bucket
printf 'resources: [%s]\ncomponents: [%s]\n' "$(realpath --relative-to=bucket "$root/k8s/overlays/gpu")" "$(realpath --relative-to=bucket "$root/k8s/components/bucket")" >bucket/kustomization.yaml
check check "$convoy" "$tmp/bucket"
ok "the component bucket: schema and meaning" is "$? $(cat out)" "0 "
check render "$tmp/bucket"
ok "its keys are in a secret, and no claim is made for checkpoints" is "$(grep -c 'name: convoy-bucket$' out) $(grep -c convoy-checkpoints out) $(grep -c 'CHECKPOINT_DIR: s3://' out)" "2 0 1"
mkdir hub
printf 'resources: [%s]\ncomponents: [%s]\n' "$(realpath --relative-to=hub "$root/k8s/overlays/gpu")" "$(realpath --relative-to=hub "$root/k8s/components/hub")" >hub/kustomization.yaml
check check "$convoy" "$tmp/hub"
ok "the component hub: schema and meaning" is "$? $(cat out)" "0 "
check render "$tmp/hub"
ok "its model is of the hub, and the token is in a secret" is "$(grep -c 'MODEL: hf://' out) $(grep -c 'name: convoy-hub$' out)" "1 1"
# Two runs at a time: an overlay with nothing but a suffix and a number makes one of its own (a folder beside k8s, for kustomize wants it so).
for of in cpu jobset; do
    mkdir -p "second-$of"
    kind=$([ $of = cpu ] && echo Job || echo JobSet)
    at=$([ $of = cpu ] && echo spec || echo 'spec.replicatedJobs.[name=node].template.spec')
    printf 'nameSuffix: -b\nresources: [%s]\npatches: [{path: n.yaml}]\nreplacements:\n- source: {kind: ConfigMap, name: convoy-settings, fieldPath: data.N_NODES}\n  targets: [{select: {kind: %s}, fieldPaths: ["%s.completions", "%s.parallelism"]}]\n' \
        "$(realpath --relative-to="second-$of" "$root/k8s/overlays/$of")" $kind "$at" "$at" >"second-$of/kustomization.yaml"
    printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: convoy-settings}\ndata: {N_NODES: "3"}\n' >"second-$of/n.yaml"
    check check "$convoy" "$tmp/second-$of"
    ok "$of with a suffix: a run of its own" is "$? $(cat out)" "0 "
    check render "$tmp/second-$of"
    ok "$of: what is of the first run stands nowhere in it; the secret is for both" is "$(grep -cE 'instance: convoy$|subdomain: convoy$|convoy-(settings|checkpoints)$' out) $(grep -c 'convoy-token$' out)" "0 1"
done
ok "the smallest Kubernetes is said" is "$(grep -c 'Kubernetes 1.29 or newer' "$root/k8s/base/kustomization.yaml" "$root/README.md" | cut -d: -f2 | xargs)" "1 1"
# What is checked here is what kubectl makes of it, where there is one.
if kubectl kustomize "$root/k8s/base" >/dev/null 2>&1; then
    for overlay in $overlays second-cpu second-jobset; do
        folder=$root/k8s/$overlay
        [ -d "$folder" ] || folder=$tmp/$overlay
        kubectl kustomize "$folder" >by-kubectl 2>err
        check compare "$folder" <by-kubectl
        ok "$overlay: kubectl makes the same of it" is "$? $(cat out)" "0 "
    done
else
    skip "kubectl makes the same of it" "no kubectl with kustomize here"
fi
check planted "$convoy"
ok "what was wrong once, planted again: $(tail -n 1 out) noticed" is "$(tail -n 1 out | awk '{ print $1 - $3 }')" 0
sed '$d; s/^/# not noticed: /' out
want=${MUTANTS:-40}
check mutants "$convoy" "${SEED:-1}" "$want"
ok "$(tail -n 1 out) planted faults are noticed" test "$(tail -n 1 out | cut -d ' ' -f 1)" -ge $((want * 38 / 40))
sed '$d; s/^/# not noticed: /' out
done_testing
