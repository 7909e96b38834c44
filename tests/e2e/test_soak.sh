#!/bin/bash
# test_soak — a minute of `make soak` beside other tests, so with more time for the next step.
SCALED=1 KILLS=${KILLS:-8} STOPS=${STOPS:-1} CUTS=${CUTS:-1} BACK_MS=${BACK_MS:-10000} exec "$(dirname "$0")/soak.sh"
