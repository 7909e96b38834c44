#!/bin/bash
# test_carry — what travels to a machine with a GPU (make gpu-carry): all that gpu.sh first needs is in one archive, it runs from there,
# and its size. The programs are stand-ins but for the size: that of two programs with all CUDA code, as this build has it.
. "$(dirname "$0")/../e2e/lib.sh"
archive() { # makes $tmp/gpu/gpu.tar.gz of what is in $tmp/gpu
    rc=0
    make -s --no-print-directory -C "$root" BUILD="${BUILD:-build}" GPU="$tmp/gpu" "$@" gpu-archive >out 2>err || rc=$?
}
mkdir -p gpu/obj
for program in convoy gpu_tests; do
    printf '#!/bin/sh\necho "convoy 0.1.0"\n' >gpu/$program
    chmod +x gpu/$program
done
cp gpu/convoy gpu/libcmocka.so.0
: >gpu/obj/real.o
: >gpu/dry_tests
archive
ok "an archive is made" is "$rc" 0
ok "it has the programs, the scripts, a text and the golden cases, and nothing else" is "$(tar -tzf gpu/gpu.tar.gz | sort | tr '\n' ' ')" \
    "$(printf '%s\n' assets/alice.txt $(cd "$root" && ls -d tests/golden/{lm,qa}/*) build/gpu/{convoy,gpu_tests,libcmocka.so.0} tests/gpu/gpu{,_bench,_first,_lib,_test}.sh tests/gpu/gpu_results.awk \
        tests/gpu/predicted.tsv tests/gpu/torch_gpt2.py | sort | tr '\n' ' ')"
sum=$(sha256sum <gpu/gpu.tar.gz)
archive
ok "the same programs give the same bytes" is "$(sha256sum <gpu/gpu.tar.gz)" "$sum"
mkdir there
tar -xzf gpu/gpu.tar.gz -C there
rc=0
NVIDIA_CTL=$tmp/gpu/convoy OUT=$tmp/results MOST=20 ONLY=environment limit 60 there/tests/gpu/gpu.sh first >out 2>err || rc=$?
ok "it runs where it was unpacked, without make" is "$rc $(jq -r '.steps[0].outcome' results/first.json)" "0 ok"
archive GPU_CARRY_MAX=1000
ok "an archive that is too large fails, and says what helps" is "$rc $(grep -c 'larger than 1000 bytes; CUDA_ARCHS=90a' err)" "2 1"
if "$convoy" version | grep -q '^cuda .*sm_'; then
    strip -o gpu/convoy "$convoy"
    cp gpu/convoy gpu/gpu_tests
    archive
    ok "with all CUDA code it is under 40 MB" is "$rc" 0
    echo "# $(stat -c %s gpu/gpu.tar.gz) bytes"
else
    skip "with all CUDA code it is under 40 MB" "this build has no CUDA"
fi
done_testing
