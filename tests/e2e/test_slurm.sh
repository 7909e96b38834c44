#!/bin/bash
# test_slurm — examples/slurm.sbatch under a real Slurm: a controller and two nodes on this machine, with folders, ports and
# keys of their own. scancel leaves a checkpoint.
. "$(dirname "$0")/lib.sh"
export PATH=$PATH:/usr/sbin
[ "$(id -u)" = 0 ] || give_up slurm "its daemons want root here"
extra slurm-wlm there slurmctld slurmd sbatch
extra munge there munged
leave() { # jobs first: their processes are Slurm's, not ours
    if [ -n "${SLURM_CONF:-}" ] && [ -n "$(limit 5 squeue -h -o %i 2>/dev/null)" ]; then
        limit 5 scancel $(limit 5 squeue -h -o %i)
        wait_for 3 eval '[ -z "$(limit 2 squeue -h -o %i 2>/dev/null)" ]' >/dev/null || limit 5 scancel --signal=KILL $(limit 5 squeue -h -o %i)
    fi
    for f in ctld n0 n1 munged; do [ -f $f.pid ] && kill "$(cat $f.pid)" 2>/dev/null; done
    sleep 0.5
    for f in ctld n0 n1 munged; do [ -f $f.pid ] && kill -9 "$(cat $f.pid)" 2>/dev/null; done
    cleanup
}
unset SLURM_CONF # of this machine's own
trap leave EXIT
chmod 755 "$tmp"
host=$(hostname -s)
ctl=$(free_port) p0=$(free_port) p1=$(free_port)
mkdir -p state munge spool.n0 spool.n1
chown munge munge
dd if=/dev/urandom of=munge/key bs=1 count=1024 2>/dev/null
chown munge munge/key && chmod 400 munge/key
munge_socket=$tmp/munge/socket
setpriv --reuid munge --regid munge --clear-groups munged --key-file="$tmp/munge/key" --socket="$munge_socket" --pid-file="$tmp/munge/pid" \
    --log-file="$tmp/munge/log" --seed-file="$tmp/munge/seed" --force >out 2>err || give_up slurm "munged does not start: $(tail -n 1 err)"
wait_for 5 test -s munge/pid; cp munge/pid munged.pid
cat >slurm.conf <<EOF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$ctl
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$munge_socket
CredType=cred/munge
StateSaveLocation=$tmp/state
SlurmctldPidFile=$tmp/ctld.pid
SlurmdPidFile=$tmp/%n.pid
SlurmdSpoolDir=$tmp/spool.%n
SlurmctldLogFile=$tmp/ctld.log
SlurmdLogFile=$tmp/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
KillWait=$((20 * $(slow)))
MessageTimeout=100
NodeName=n0 NodeHostname=$host NodeAddr=127.0.0.1 Port=$p0 CPUs=2 Gres=gpu:2 State=UNKNOWN
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$p1 CPUs=2 Gres=gpu:2 State=UNKNOWN
PartitionName=all Nodes=n0,n1 Default=YES MaxTime=10 State=UP
EOF
printf 'NodeName=n[0-1] Name=gpu File=%s\n' /dev/null /dev/zero >gres.conf
export SLURM_CONF=$tmp/slurm.conf
slurmctld -c >out 2>err && slurmd -N n0 >>out 2>>err && slurmd -N n1 >>out 2>>err || give_up slurm "its daemons do not start: $(cat err *.log | tail -n 1)"
pid=$$
idle() { [ "$(sinfo -h -o %D -t idle 2>/dev/null)" = 2 ]; }
wait_for 30 idle || give_up slurm "its nodes do not come up: $(sinfo -h 2>&1 | head -n 1), $(tail -n 1 n0.log)"
# submit SETTING… — $job; both nodes are this machine, so node 0's address is given.
submit() {
    # shellcheck disable=SC2086
    job=$(STATUS_PORT=0 JOB_TOKEN_FILE=$tmp/job.token CONVOY=$tmp/recorder MASTER_ADDR=127.0.0.1 MASTER_PORT=$(free_port) \
        sbatch --parsable --nodes=2 ${gpus:-} --chdir="$tmp" --output="$tmp/job-%j.out" "$root/examples/slurm.sbatch" "$@" 2>err)
}
state() { scontrol -o show job "$job" 2>/dev/null | grep -oE 'JobState=[A-Z]+' | cut -d= -f2; }
is_state() { [ "$(state)" = "$1" ]; }
(umask 077 && head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n' >job.token)

# What a task is given, before the program takes its place.
printf '#!/bin/sh\necho "${SLURM_CPUS_PER_TASK:-1} ${SLURM_GPUS_ON_NODE:-0}" >"%s/given.$SLURM_NODEID"\nexec "%s" "$@"\n' "$tmp" "$convoy" >recorder
chmod +x recorder
gpus=--gpus-per-node=2
submit $tiny STEPS=20 BATCH_SIZE=1 GLOBAL_BATCH=4 CHECKPOINT_DIR=$tmp/c METRICS_FILE=$tmp/m.jsonl
ok "sbatch takes it" test -n "$job"
ok "two nodes of Slurm are two of one job: done" wait_for 60 is_state COMPLETED
gpus=
ok "a task has all processors and GPUs of its node" is "$(cat given.0 given.1 | xargs) $(scontrol -o show job "$job" | grep -oE 'NumCPUs=[0-9]+')" "2 2 2 2 NumCPUs=4"
ok "all steps" is "$(steps_of m.jsonl) $(newest_step c)" "20 20"
run $tiny STEPS=20 BATCH_SIZE=1 GLOBAL_BATCH=4 METRICS_FILE=one.jsonl
ok "the losses of one node" near one.jsonl m.jsonl 2e-6
[ -f m.jsonl ] || sed 's/^/# job: /' job-*.out

# README.md's commands, with a smaller model.
mkdir -p desk/build/release && ln -s "$root/examples" desk/examples && ln -s "$convoy" desk/build/release/convoy
block slurm | sed "s,MODEL=gpt2 DATA=/data STEPS=1000,$tiny STEPS=20," >commands
job=$(cd desk && SBATCH_OUTPUT=$tmp/readme.out STATUS_PORT=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(free_port) bash -e ../commands 2>../err | grep -oE '[0-9]+$')
ok "README.md's sbatch: done" wait_for 60 is_state COMPLETED
ok "its checkpoint; the secret for its owner only" is "$(newest_step desk/run1) $(stat -c %a desk/job.token)" "20 600"
[ -d desk/run1 ] || tail -n 5 readme.out | sed 's/^/# job: /'

# scancel: Slurm sends SIGTERM to both.
trains() { grep -qs '^step ' job-$job.out; }
left() { [ "$(newest_step s)" -gt "${1:-0}" ] 2>/dev/null; }
submit $tiny STEPS=100000000 CHECKPOINT_DIR=$tmp/s
ok "a long job trains" wait_for 30 trains
scancel "$job"
ok "scancel ends it" wait_for 30 is_state CANCELLED
ok "and leaves a checkpoint" wait_for 30 left
before=$(newest_step s)
ended() { [ "$(grep -cE 'task [01]: Exited with exit code 143' job-$job.out)" = 2 ] || grep -qE 'tasks 0-1: Exited with exit code 143' job-$job.out; }
ok "both nodes end with 143" wait_for 30 ended

# The notice before the time limit: a checkpoint, 75, and the job waits in the queue to go on.
submit $tiny STEPS=100000000 CHECKPOINT_DIR=$tmp/s
ok "the same job again goes on from there" wait_for 30 trains
scancel --signal=USR1 "$job"
ok "SIGUSR1, as before the time limit: requeued" wait_for 30 is_state PENDING
ok "behind a newer checkpoint" left "$before"
scancel "$job"
done_testing
