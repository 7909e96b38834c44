#!/bin/bash
# test_containers_rocm — the Dockerfile's image `rocm`, built by podman on a Debian made here, with that Debian's runtime of AMD. It has
# code for both chips and everything but the GPU, reports that, and trains on the CPU. Only when CONTAINERS=1 (make containers).
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/containers_lib.sh"
[ "${SAN:-}" = "" ] || give_up "the image rocm" "a build with a sanitizer is no release"
[ "${CONTAINERS:-0}" = 1 ] || give_up "the image rocm" "the first time takes many minutes; CONTAINERS=1 asks for it"
begin_store && make_base || give_up "the image rocm" "$why"
leave() {
    end_store
    cleanup
}
trap leave EXIT
image=$image-rocm
build_image rocm $image --build-arg CPU_BASE=$base_image --build-arg ROCM_BASE=$base_image
ok "podman builds the target rocm" is "$? ${why:-}" "0 "
[ -z "${why:-}" ] || { done_testing; exit; }

# 1. What the image is.
show() { podman image inspect $image | jq -r "$1"; }
size=$(show '.[0].Size')
ok "it has at most 1 GB ($size bytes)" test "$size" -le 1000000000
ok "user, entry point, device" is "$(show '.[0].Config | [.User, .Entrypoint[0], .Cmd[0], (.Env[] | select(startswith("DEVICE")))] | join(" ")')" \
    "65532:65532 /entrypoint train DEVICE=hip"
ok "labels: version and commit" is "$(show '.[0].Labels | [."org.opencontainers.image.version", ."org.opencontainers.image.revision"] | join(" ")')" \
    "$(cat "$root/VERSION") $commit"

# 2. Without a GPU.
within version gpu
ok "code for both chips is inside" is "$rc $(grep -cE '^hip +gfx90a gfx942' out)" "0 1"
ok "AMD's runtime is found" shows '^amdhip64 +5\.[0-9]+ from .*/libamdhip64\.so\.5'
ok "the GPU is not, and hipBLASLt and RCCL are missing" is "$(grep -cE '^(amdgpu|hipblaslt|rccl) ' out)" 3
within train MODEL=gpt2-nano DATA=synthetic STEPS=2
ok "train: 69, the device file and the flags" is "$rc $(grep -cE ' error .*no /dev/kfd .*--device /dev/kfd --device /dev/dri' err)" "69 1"
ok "the entry point named the flags before" is "$(grep -c '^entrypoint: warn: no AMD GPU is visible: add --device /dev/kfd' err)" 1

# 3. On the CPU: what a bare process does.
mkdir data c
cp /usr/share/common-licenses/Apache-2.0 data/a.txt
chown 65532:65532 c
job="MODEL=gpt2-nano SEQ_LEN=32 BATCH_SIZE=1 STEPS=10 LINGER=0"
run $job DATA=data METRICS_FILE=bare.jsonl
flags="-e DEVICE=cpu --shm-size 2g -v $tmp/data:/data:ro -v $tmp/c:/checkpoints"
within train $job DATA=/data METRICS_FILE=/checkpoints/m.jsonl
ok "it trains on the CPU with the losses of a bare process" is "$rc $(losses c/m.jsonl)" "0 $(losses bare.jsonl)"
done_testing
