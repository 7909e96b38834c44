#!/bin/bash
# test_hardening — what the compiler and linker have against overflows is in the program and in every object of its library.
set -u
export LC_ALL=C
build=${BUILD:-build}
n=0
ok() {
    local name=$1
    shift
    n=$((n + 1))
    if "$@"; then echo "ok $n - $name"; else echo "not ok $n - $name"; fi
}
skip() { n=$((n + 1)); echo "ok $n - $1 # SKIP $2"; }
work=$(mktemp -d "${TMPDIR:-/tmp}/convoy-hardening-XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT

headers() { readelf -lW "$build/convoy" >"$work/headers" && readelf -dW "$build/convoy" >"$work/dynamic"; }
is_pie() { headers && grep -q 'DYN' "$work/headers" && grep -q 'PIE' "$work/dynamic"; }
is_relro() { grep -q 'GNU_RELRO' "$work/headers" && grep -Eq 'BIND_NOW|FLAGS.*NOW' "$work/dynamic"; }
# No memory is both written and executed, the stack is never executed.
is_wx_free() { grep -Eq 'GNU_STACK.* RW ' "$work/headers" && ! grep -Eq ' RWE ' "$work/headers"; }
ok 'the program is loaded at any address (PIE)' is_pie
ok 'what the loader has filled in is read-only (full RELRO)' is_relro
ok 'no memory is both written and executed' is_wx_free

# What each object's debug data tells of how it was made: "OBJECT … FLAGS".
for object in "$build"/src/*/*.o "$build"/src/*/*/*.o "$build"/kernels/*.o; do
    case $object in *_cu.o | */merges.o | */page_html.o | */clusters.o) continue ;; esac
    echo "$object $(readelf --debug-dump=info --dwarf-depth=1 "$object" 2>/dev/null | grep -m1 'DW_AT_producer')"
done >"$work/producers"
told() { [ -s "$work/producers" ] && ! grep -v -- " $1" "$work/producers" | head -n 3 | sed 's/^/# /' | grep .; }
flags=$(make -s --no-print-directory -pn BUILD="$build" 2>/dev/null | sed -n 's/^HARDEN := //p')
for flag in -fstack-protector-strong -fstack-clash-protection -fcf-protection; do
    case " $flags " in
    *" $flag "*) ok "every object is made with $flag" told "$flag" ;;
    *) skip "every object is made with $flag" 'this compiler has it not' ;;
    esac
done
# checked — copies whose room the compiler knows go by glibc's checking functions.
checked() { nm -u "$build/libconvoy.a" 2>/dev/null >"$work/names"; grep -q '__vsnprintf_chk' "$work/names" && grep -Eq '__mem(cpy|move|set)_chk' "$work/names"; }
case $build in
*build-*) skip 'copies are checked (FORTIFY_SOURCE)' 'not with sanitizers' ;;
*) ok 'copies are checked (FORTIFY_SOURCE)' checked ;;
esac
echo "1..$n"
