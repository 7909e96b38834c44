#!/bin/bash
# test_many — twelve nodes train, and whole nodes are killed and started again: `make train-64` in small.
NODES=${NODES:-12} DURATION=${DURATION:-9} FAULTS=${FAULTS:-node} EVERY=${EVERY:-10} exec "$(dirname "$0")/train_many.sh"
