#!/bin/sh
# GreenNode's run on two such machines, on made-up data. On each, with its own NODE_ID and the same secret:
#   NODE_ID=0 N_GPU_EACH_NODE=8 N_NODES=2 EPOCHS=100 MASTER_ADDR=10.0.0.1 JOB_TOKEN_FILE=job.token examples/greennode-2nodes.sh
exec "${CONVOY:-convoy}" train MODEL=gpt2 TASK=qa DATA=synthetic N_GPU_EACH_NODE="${N_GPU_EACH_NODE:-8}" N_NODES="${N_NODES:-2}" BATCH_SIZE="${BATCH_SIZE:-80}" EPOCHS="${EPOCHS:-5000}" OPTIMIZER=sgd LR=0.01 LR_SCHEDULE=constant MOMENTUM=0.5 GRAD_CLIP=0 DROPOUT=0.1
