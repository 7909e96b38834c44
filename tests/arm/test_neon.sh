#!/bin/bash
# test_neon — the NEON kernels against the plain ones, made by a cross compiler and run under qemu-user: on a Cortex-A57, which has
# nothing beyond NEON, and on `max`, which has SVE too. Attention takes minutes there: NEON_ALL=1 runs its tests as well.
. "$(dirname "$0")/../e2e/lib.sh"
build=$(dirname "$convoy")
[ "${SAN:-}" = "" ] || give_up NEON "tried without sanitizers"
cc=aarch64-linux-gnu-gcc
there $cc && [ -d /usr/aarch64-linux-gnu/include ] || give_up NEON "gcc-aarch64-linux-gnu is not installed here; \`make test-all\` installs it"
there qemu-aarch64 || give_up NEON "qemu-user is not installed here; \`make test-all\` installs it"

# In a folder of its own: tests/suite/test_compilers.sh makes build/aarch64 at the same time.
make -C "$root" -s -j2 CC="$cc -idirafter /usr/include/$(gcc -dumpmachine)" WERROR=1 DEBUG_INFO= CUDA=0 BUILD="$build/arm" arm-tests >out 2>err
ok "the kernels and their tests are made for aarch64, without a warning" is $? 0
ok "the kernels of products multiply by a lane" test \
    "$(LC_ALL=C aarch64-linux-gnu-objdump -d --disassemble=gemm_tile_8_3_packed_a "$build/arm/kernels/matmul_cpu_neon.o" | grep -c 'fmla.*\.s\[')" -gt 24

ok "no kernels of x86-64 are made" is "$(find "$build/arm" -name '*_v[234].o' -o -name '*_amx.o' | wc -l)" 0
tests=$(cd "$build/arm/arm" && find comm kernels unit -type f ! -name '*.d' | sort)
ok "every test of the kernels and the one of sums is among them" is "$(echo "$tests" | wc -l)" \
    "$(find "$root"/tests/kernels "$root"/tests/unit/kernels -name '*.c' | wc -l | awk '{ print $1 + 1 }')"

# run_one CPU TEST — its TAP goes to CPU-TEST, with its exit status as the last line. Two at a time, the long ones first.
[ -n "${NEON_ALL:-}" ] || tests=$(echo "$tests" | grep -v attention)
run_one() {
    local to=$tmp/$1-${2##*/}
    limit 120 qemu-aarch64 -cpu "$1" "$build/arm/arm/$2" >"$to" 2>&1
    echo "exit $?" >>"$to"
}
export -f run_one limit slow processor_ticks
export build tmp processors ticks_at_start
{
    printf 'cortex-a57 %s\n' kernels/test_matmul comm/test_sum $tests
    printf 'max %s\n' unit/kernels/norm unit/kernels/gelu
} | awk '!seen[$0]++' | xargs -P 2 -L 1 bash -c 'run_one "$@"' run_one

# passed CPU TEST — some point passed, none failed, and the program ended by itself.
passed() {
    local from=$tmp/$1-${2##*/}
    is "$(grep -c '^not ok' "$from") $(($(grep -c '^ok' "$from") > 0)) $(tail -n 1 "$from")" "0 1 exit 0" || { cat "$from"; false; }
}
for test in $tests; do ok "$test on cortex-a57" passed cortex-a57 "$test"; done
for test in unit/kernels/norm unit/kernels/gelu; do ok "$test on max, which has SVE" passed max "$test"; done
ok "the level is neon" grep -q 'level neon: error' cortex-a57-test_matmul
done_testing
