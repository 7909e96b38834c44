#!/bin/sh
# test_dry — the frame in which a real GPU runs the tests of the kernels (real.c), on the emulation: every family of them, and that
# none hands a kernel what lies among constants, which a GPU does not reach.
dry=${BUILD:-build}/gpu/dry_tests
if [ -n "${SAN:-}" ]; then
    echo "1..0 # SKIP the frame has memory and a stack of its own, which sanitizers do not know"
    exit 0
fi
families=$("$dry" list | sed -n "s/^family //p")
# shellcheck disable=SC2086 # words
set -- $families
[ $# -gt 0 ] || { echo "Bail out! $dry names no family" && exit 1; }
echo "1..$#"
n=0 failed=0
for family in "$@"; do
    n=$((n + 1))
    if out=$("$dry" "$family" 2>&1); then
        echo "ok $n - $family"
    else
        echo "not ok $n - $family"
        printf '%s\n' "$out" | grep -E 'not ok|Bail out|rror' | sed 's/^/# /'
        failed=1
    fi
done
exit $failed
