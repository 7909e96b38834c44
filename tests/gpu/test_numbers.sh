#!/bin/sh
# test_numbers — the limits of the kernels' tests hold on a device that computes worse than the host does: products and sums contracted
# to one operation, errors of two units in the last place in exp, exp2, log, log2, tanh and rsqrt, and subnormal numbers flushed to zero
# (tests/emu/emu_control.h). Before that: the contraction is there.
build=${BUILD:-build}
numbers=$build/gpu/numbers_tests
skip_all() { echo "1..0 # SKIP $1" && exit 0; }
[ -z "${SAN:-}" ] || skip_all "the frame has memory and a stack of its own, which sanitizers do not know"
grep -q '^flags.* fma ' /proc/cpuinfo || skip_all "this processor has no FMA, which the kernels are compiled for here"
families=$("$numbers" list | sed -n "s/^family //p")
# shellcheck disable=SC2086 # words
set -- $families
[ $# -gt 0 ] || { echo "Bail out! $numbers names no family" && exit 1; }
n=0 failed=0
# check TEXT PROGRAM ARGUMENT... — one result: does the program end with 0? Prints its failures, and the error nearest its limit.
check() {
    text=$1
    shift
    n=$((n + 1)) rc=0
    out=$("$@" 2>&1) || rc=1
    [ $rc = 0 ] && echo "ok $n - $text" || echo "not ok $n - $text"
    printf '%s\n' "$out" | grep -E '^# worst|not ok|Bail out|ERROR|rror:' | sed 's/^/# /'
    failed=$((failed | rc))
}
echo "1..$((1 + 3 * $#))"
check "products are contracted" "$build/emu-fused/test_emu_numbers"
for noise in drawn up down; do
    for family in "$@"; do
        check "$family, errors $noise" env EMU_NOISE=$noise EMU_FLUSH=1 "$numbers" "$family"
    done
done
exit $failed
