#!/bin/bash
# test_readme — the commands of README.md and docs: `make run` with fewer steps; every marked block is run by a test; every
# convoy command names settings that exist.
. "$(dirname "$0")/lib.sh"
build=$(dirname "$convoy")
unset DATA # `make run` has a text of its own
if [ -n "${SAN:-}" ] || [ ! -f "$build/libconvoy.a" ]; then
    skip "make run" "it makes the ordinary build"
else
    block bare | grep '^make run' >commands
    more="RUN=$tmp/run"
    grep -qx none "$build/cuda.txt" 2>/dev/null && more="$more CUDA=0" # as it was built
    rc=0
    (cd "$root" && unset MAKELEVEL && MAKEFLAGS="$more" STEPS=3 BUILD="$build" limit 200 bash -e "$tmp/commands") >out 2>err || rc=$?
    ok "make run: trains, keeps a checkpoint, prints a sample" is \
        "$rc $(wc -l <commands) $(grep -c '^step 3/3 ' out) $(newest_step run) $(grep -c '^Alice' out)" "0 1 1 3 1"
    grep -v '^installing' out >said
    ok "it says what it does, not how" is "$(sed -n 1p said) $(grep -cE 'WARMUP_STEPS|BATCH_SIZE=' out)" "building $build/convoy 0"
    ok "training opens with the page's address" grep -qE '^page http://127.0.0.1:[0-9]+/$' said
fi
sed -n 's/^<!-- \([a-z0-9 ]*\) -->$/\1/p' "$root/README.md" "$root"/docs/*.md | while read -r name; do
    grep -qF -e "block $name" -e "block \"$name\"" "$root"/tests/e2e/test_*.sh || [ "${name% *}" = node ] || echo "$name"
done >unread
ok "every marked block of commands is read by a test" is "$(xargs <unread) $(grep -c 'block "node \$1"' "$root/tests/e2e/test_netns.sh")" " 1"
grep -oE '^(export [A-Z_0-9= .a-z]*; )?build/convoy [^#]*' "$root/README.md" "$root"/docs/*.md | sed 's/^[^:]*://' >lines
while read -r line; do
    eval "set -- ${line#build/convoy }"
    "$convoy" help "$1" >/dev/null 2>&1 || echo "$line: no command $1"
    settings=()
    for word in "${@:2}"; do [[ $word == *=* ]] && settings+=("$word"); done
    "$convoy" config ${settings[@]+"${settings[@]}"} >/dev/null 2>said || echo "$line: $(tail -n 1 said)"
done <lines >refused
ok "$(wc -l <lines) lines of convoy: commands and settings are known" is "$(cat refused)" ""
ok "and there are some" test "$(wc -l <lines)" -ge 15
done_testing
