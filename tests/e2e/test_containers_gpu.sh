#!/bin/bash
# test_containers_gpu — the Dockerfile's image `gpu`, built by podman on bases made here in place of NVIDIA's: a Debian with
# the CUDA toolkit, and one with a package source of cuBLAS, NCCL, cuDNN and NVRTC, all from PyPI's packages. The image has
# everything a GPU needs but the driver, reports that, and trains on the CPU. Only when CONTAINERS=1 (make containers):
# fetches 1.2 GB once, into a cache folder.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/containers_lib.sh"
[ "${SAN:-}" = "" ] || give_up "the image gpu" "a build with a sanitizer is no release"
[ "${CONTAINERS:-0}" = 1 ] || give_up "the image gpu" "the first time takes ten minutes and 6 GB of disk; CONTAINERS=1 asks for it"
begin_store && make_base && make_cuda_base && make_run_base || give_up "the image gpu" "$why"
leave() {
    end_store
    cleanup
}
trap leave EXIT
image=$image-gpu
build_image gpu $image --build-arg BUILD_BASE=$base_image-cuda --build-arg RUN_BASE=$base_image-run -v "$store/packages:/opt/packages:ro"
ok "podman builds the target gpu" is "$? ${why:-}" "0 "
[ -z "${why:-}" ] || { done_testing; exit; }

# 1. What the image is.
show() { podman image inspect $image | jq -r "$1"; }
size=$(show '.[0].Size')
ok "it has at most 1.8 GB ($size bytes)" test "$size" -le 1800000000
ok "user, entry point, signal to stop" is "$(show '.[0].Config | [.User, .Entrypoint[0], .Cmd[0], .StopSignal] | join(" ")')" \
    "65532:65532 /entrypoint train SIGTERM"
ok "its health is told by convoy status" is "$(show '.[0].Healthcheck.Test | join(" ")')" "CMD /usr/bin/convoy status"
ok "what NVIDIA's and Mellanox' hooks look for" is \
    "$(show '.[0].Config.Env[]' | grep -E '^(NVIDIA_(VISIBLE|DRIVER)|MELLANOX)' | sort | xargs)" \
    "MELLANOX_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility NVIDIA_VISIBLE_DEVICES=all"
ok "labels: version and commit" is "$(show '.[0].Labels | [."org.opencontainers.image.version", ."org.opencontainers.image.revision"] | join(" ")')" \
    "$(cat "$root/VERSION") $commit"

within version gpu
ok "CUDA is inside" is "$rc $(grep -cE '^cuda +13\.[0-9]+: sm_80 sm_90a sm_100 PTX' out)" "0 1"
ok "cuBLAS, cuDNN and NCCL are found" is "$(sed -nE 's/^(cublaslt|cudnn|nccl) +([0-9.]+) from .*\/(lib[^/]*)$/\1 \2 \3/p' out | xargs)" \
    "cublaslt 13.0.2 libcublasLt.so.13 cudnn 9.19.0 libcudnn_graph.so.9 nccl 2.28.9 libnccl.so.2"
ok "the driver is not, which is the host's" shows '^driver .*libcuda\.so\.1 is not in'
ok "the commit is inside" shows "^commit $commit$"

# 2. Without a GPU.
within train MODEL=gpt2-nano DATA=synthetic STEPS=2 DEVICE=cuda
ok "DEVICE=cuda: 69, the driver's library and the flag" is \
    "$rc $(grep -cE ' error .*no NVIDIA driver: libcuda\.so\.1 .*--gpus all' err)" "69 1"
ok "the entry point named that flag before" is "$(grep -c '^entrypoint: warn: no NVIDIA GPU is visible: add --gpus all' err)" 1
ok "and the flag for shared memory, of which podman gives 64 MB" is "$(grep -cE '^entrypoint: warn: /dev/shm has only [0-9]+ KiB.*--ipc host' err)" 1

# 3. On the CPU: what bare processes do.
mkdir data c d
cp /usr/share/common-licenses/Apache-2.0 data/a.txt
chown 65532:65532 c d
job="MODEL=gpt2-nano SEQ_LEN=32 BATCH_SIZE=1 STEPS=10"
run $job DATA=data METRICS_FILE=bare.jsonl
flags="-e DEVICE=cpu --shm-size 2g -v $tmp/data:/data:ro -v $tmp/c:/checkpoints"
within train $job DATA=/data CACHE_DIR=/checkpoints/cache METRICS_FILE=/checkpoints/m.jsonl
ok "it trains as the user 65532, nothing writable but its volumes" is "$rc $(newest_step c) $(stat -c %u c/step-00000010)" "0 10 65532"
ok "the losses of a bare process, bit for bit" is "$(losses c/m.jsonl)" "$(losses bare.jsonl)"
ok "the entry point has nothing to say" is "$rc $(grep -c '^entrypoint' err)" "0 0"
flags="$flags -v $tmp/data:/dev/infiniband"
within version
ok "where InfiniBand is: the flags for memory to lock and for its devices" is \
    "$rc $(grep -cE '^entrypoint: warn: (only [0-9]+ KiB of memory may be locked.*--ulimit memlock=-1|/dev/infiniband has no uverbs device: add --device)' err)" "0 2"
flags=${flags% -v *}

# 4. podman stop reaches it through the entry point.
podman run -d --name one-$$ $limits --read-only --tmpfs /tmp --cap-drop all ${flags/\/c:/\/d:} $image train $tiny DATA=synthetic STEPS=100000000 >out 2>err
pid=$$ # for wait_for
wait_for 10 eval 'podman logs one-$$ 2>/dev/null | grep -q "^step "'
ok "process 1 is convoy" is "$(podman exec one-$$ cat /proc/1/comm 2>&1)" convoy
podman healthcheck run one-$$ >out 2>&1
ok "it is healthy" is $? 0
podman stop -t 10 one-$$ >out 2>&1
ok "stopped: 143 and a checkpoint" is "$(podman wait one-$$) $(newest_step d | grep -c .)" "143 1"
done_testing
