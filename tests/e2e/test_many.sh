#!/bin/bash
# test_many — twelve nodes train, and a whole node is killed and started again: `make train-64` in small.
NODES=${NODES:-12} STEPS=${STEPS:-200} FAULTS=${FAULTS:-node} exec "$(dirname "$0")/train_many.sh"
