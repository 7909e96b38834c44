#!/bin/sh
# MIT ORCD's course on fully sharded training under Slurm, with this program's model, on random tokens unless DATA is set. With the same secret for both nodes:
#   JOB_TOKEN_FILE=job.token srun --nodes=2 --ntasks-per-node=1 examples/mit-fsdp.sh
exec "${CONVOY:-convoy}" train MODEL="${MODEL:-gpt2}" DATA="${DATA:-synthetic}" N_GPU_EACH_NODE="${N_GPU_EACH_NODE:-2}" SHARD=full BATCH_SIZE="${BATCH_SIZE:-8}" SEQ_LEN=256 STEPS="${STEPS:-10}" LR=3e-3 LR_SCHEDULE=constant
