#!/bin/bash
# test_soak — a minute of what `make soak` does.
KILLS=${KILLS:-8} STOPS=${STOPS:-1} CUTS=${CUTS:-1} exec "$(dirname "$0")/soak.sh"
