#!/bin/bash
# test_compose — compose.yaml, read and resolved. test_containers.sh tests the containers themselves, because there is no
# Docker here.
. "$(dirname "$0")/lib.sh"
extra docker-compose there docker-compose
extra python3-yaml /usr/bin/python3 -c 'import yaml'
# resolve FILE… — as JSON in out.
resolve() {
    local files=
    for f in "$@"; do files="$files -f $root/$f"; done
    rc=0
    # shellcheck disable=SC2086
    env -u DATA JOB_TOKEN=a-secret-for-these-tests-only docker-compose --project-directory "$root" $files config >yaml 2>err || rc=$?
    /usr/bin/python3 -c 'import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)' <yaml >out
}
has() { jq -e "$1" out >/dev/null || { echo "# not so: $1"; false; }; }
resolve compose.yaml
ok "compose reads it" is $rc 0
ok "two CPU nodes and a GPU node" has '(.services | keys) == ["gpu", "node0", "node1"]'
ok "plain up starts the CPU nodes alone" has '[.services[] | select(.profiles == null)] | length == 2'
ok "node 1 is as node 0, but for its number" has '(.services.node0.environment | del(.NODE_ID)) == (.services.node1.environment | del(.NODE_ID)) and .services.node1.environment.NODE_ID == "1"'
ok "they agree on how many there are" has '[.services[] | select(.profiles == null)] | length == (.[0].environment.N_NODES | tonumber)'
ok "node 0 is where they look for it" has '.services.node0.environment.MASTER_ADDR == "node0" and .services.node0.environment.NODE_ID == "0"'
ok "all are locked up" has 'all(.services[]; .read_only and .cap_drop == ["ALL"] and .security_opt == ["no-new-privileges:true"])'
ok "time for the last checkpoint" has 'all(.services[]; .stop_grace_period == "2m0s" or .stop_grace_period == "2m")'
ok "the GPU node has the machine's network, memory to lock, its shared memory" has '.services.gpu | .network_mode == "host" and .ipc == "host" and (.ulimits.memlock == -1 or .ulimits.memlock.soft == -1)'
ok "no device in the common file" has 'all(.services[]; .devices == null)'
ok "all train on a text that is in the image, not on random numbers" has 'all(.services[]; .environment.DATA == "/usr/share/convoy/alice.txt")'
settings=$("$convoy" config JSON=1 2>/dev/null | jq -c keys)
ok "every setting is known" has "[.services[].environment | keys[]] - $settings == []"
ok "pages can be reached from this machine only" has '[.services.node0.ports[0], .services.node1.ports[0]] | map(if type == "object" then "\(.host_ip):\(.published):\(.target)" else . end | sub("/tcp$"; "")) == ["127.0.0.1:8080:8080", "127.0.0.1:8081:8080"]'
ok "a token is a secret file, never a variable" has '(.services.gpu | (.secrets | map(.source? // .)) == ["job_token"] and .environment.JOB_TOKEN_FILE == "/run/secrets/job_token") and .secrets.job_token.file == "/dev/null" and all(.services[]; .environment.JOB_TOKEN == null or .environment.JOB_TOKEN == "none")'
ok "the token of the environment is in nothing that is resolved" is "$(grep -c a-secret-for yaml)" 0
JOB_TOKEN_FILE=$tmp/job.token resolve compose.yaml
ok "JOB_TOKEN_FILE names the secret's file" has ".secrets.job_token.file == \"$tmp/job.token\""
resolve compose.yaml compose.infiniband.yaml
ok "with InfiniBand: the device and the one capability" has '.services.gpu.devices == ["/dev/infiniband:/dev/infiniband"] and .services.gpu.cap_add == ["IPC_LOCK"]'
export RENDER_GID=110
resolve compose.amd.yaml
ok "AMD GPUs: the image rocm with its devices and groups" has '.services.amd | .build.target == "rocm" and .devices == ["/dev/kfd:/dev/kfd", "/dev/dri:/dev/dri"] and .group_add == ["video", "110"]'
cp out amd
resolve compose.yaml
ok "else it is as the service gpu" is "$(jq -cS '.services.amd | del(.build, .image, .devices, .group_add, .environment.DEVICE)' amd)" \
    "$(jq -cS '.services.gpu | del(.build, .image, .deploy, .profiles, .environment.DEVICE)' out)"
ok "the runtime is an argument of the image" is "$(jq -cS .services.amd.build.args amd)" '{"ROCM_BASE":"debian:bookworm","ROCM_PACKAGES":"libamdhip64-5"}'
block "docker run of rocm" >command
jq -r '.services.amd | (.devices[] | "--device " + split(":")[0]), "--group-add " + .group_add[0], "--network " + .network_mode, "--ipc " + .ipc,
    "--ulimit memlock=" + (.ulimits.memlock | tostring), (select(.read_only) | "--read-only"), "--tmpfs " + .tmpfs[0], "--cap-drop " + (.cap_drop[0] | ascii_downcase)' amd >flags
ok "the command of docs/deploy.md has the same flags: $(xargs <flags)" is "$(wc -l <flags) $(while read -r flag; do grep -qF -e "$flag " command || echo "$flag"; done <flags)" "9 "
unset RENDER_GID
resolve compose.amd.yaml
ok "without the number of the group it is refused, with the command that shows it" is "$((rc > 0)) $(grep -c 'stat -c %g' err)" "1 1"
done_testing
