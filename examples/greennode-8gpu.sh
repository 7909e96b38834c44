#!/bin/sh
# GreenNode's stress test of one machine with eight GPUs: GPT-2 for question answering on made-up data, everything sharded.
exec "${CONVOY:-convoy}" train MODEL=gpt2 TASK=qa DATA=synthetic N_GPU_EACH_NODE="${N_GPU_EACH_NODE:-8}" SHARD=full BATCH_SIZE="${BATCH_SIZE:-80}" EPOCHS="${EPOCHS:-5000}" OPTIMIZER=sgd LR=0.01 LR_SCHEDULE=constant MOMENTUM=0.5 GRAD_CLIP=0 DROPOUT=0.1
