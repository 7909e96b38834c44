#!/bin/bash
# test_release — `make release`: one file that needs only the C library, and trains as the ordinary build does.
# RELEASE_TWICE=1 builds the commit again in another folder, libraries too, and compares the bytes (about two minutes).
. "$(dirname "$0")/lib.sh"
build=${BUILD:-build}
case $build in /*) ;; *) build=$root/$build ;; esac
release=$build/release/convoy
common=$convoy

[ "${SAN:-}" = "" ] || give_up "release" "a build with a sanitizer is none"
[ -f "$build/static/done" ] || give_up "release" "libcurl and cJSON are not built as archives here; \`make test-all\` and \`make release\` do it"
make -C "$root" -s BUILD="$build" release >out 2>err
ok "make release" is $? 0

# 1. The gates, and that they notice.
gate() { "$root/.ci/gates" "$@" 2>err && echo good || echo bad; }
ok "it needs libc, libm and the loader, of glibc 2.34 or before" is "$(gate "$release" 2.34)" good
ok "the gates refuse an older floor" is "$(gate "$release" 2.17) $(grep -c 'needs glibc 2' err)" "bad 1"
ok "the gates refuse names" is "$(gate "$build/release/linked") $(grep -c 'not stripped' err)" "bad 1"
ok "the gates refuse shared libraries" is "$(gate "$common") $(grep -c 'libevent' err)" "bad 1"
size=$(stat -c %s "$release")
ok "it has less than 45 MB ($size bytes)" test "$size" -lt 45000000

# 2. It lists what is inside.
"$release" version >out 2>err
missing=
for lib in libevent libcurl tls cjson utf8proc pcre2 xxhash zstd ucx ibverbs libnl numa; do
    grep -qE "^$lib +[^ ]*[0-9][^ ]* +[A-Za-z]" out || missing="$missing $lib"
done
ok "version lists every library inside, with its licence" is "$missing" ""
said=$(sed -n 's/^commit //p' out)
ok "version names the commit" is "$said" "$(git -C "$root" rev-parse --short=12 HEAD 2>/dev/null || echo unknown)"
ok "the licences are there in full" is "$(grep -cE '^==== (lib[a-z0-9-]+|cjson|LGPL-2.1|Apache-2.0) ?' "$build/release/licences.txt")" 14
ok "transports of InfiniBand are inside" is "$(strings "$release" | grep -xE 'rc_verbs|ud_mlx5|dc_mlx5|rc_mlx5' | sort -u | wc -l)" 4

# 3. A root folder of three files.
mkdir -p jail/lib64 jail/lib/x86_64-linux-gnu jail/tmp
for lib in $(ldd "$release" | grep -oE '/[^ ]+'); do cp "$lib" "jail$lib"; done
cp "$release" jail/convoy
ok "three files beside it" is "$(find jail -type f | wc -l)" 4
if [ "$(id -u)" = 0 ]; then
    jail() { rc=0; env -i "$(PATH=$PATH:/usr/sbin command -v chroot)" jail /convoy "$@" >out 2>err || rc=$?; }
    jail version
    ok "it starts there" is $rc 0
    jail train $tiny DATA=synthetic STATUS_PORT=0 STEPS=5 METRICS_FILE=/tmp/m.jsonl CHECKPOINT_DIR=/tmp/c
    ok "it trains there, without /proc, /dev and /etc" is "$rc $(steps_of jail/tmp/m.jsonl)" "0 5"
    jail train $tiny DATA=synthetic STATUS_PORT=0 STEPS=5 N_GPU_EACH_NODE=2 METRICS_FILE=/tmp/2.jsonl
    ok "two workers there, too" is "$rc $(steps_of jail/tmp/2.jsonl) $(grep -c -- ' -1 B' err)" "0 5 0"
else
    skip "a root folder of three files" "chroot needs root"
fi

# 4. The same losses as the ordinary build, by several nodes over TCP too.
run $tiny STEPS=20 METRICS_FILE=common.jsonl
convoy=$release
run $tiny STEPS=20 METRICS_FILE=release.jsonl
ok "the same losses as the ordinary build" is "$(losses release.jsonl)" "$(losses common.jsonl)"
. "$root/tests/e2e/nodes_lib.sh"
export UCX_TLS=tcp,self
train_nodes 2 $tiny BATCH_SIZE=1 GLOBAL_BATCH=2 STEPS=20 METRICS_FILE=two.jsonl
convoy=$common
begin_nodes 2 $tiny BATCH_SIZE=1 GLOBAL_BATCH=2 STEPS=20 METRICS_FILE=two-common.jsonl
first=$codes
finish_nodes 2
ok "two nodes over UCX's TCP: done, the same losses as the ordinary build" is "$first $codes $(losses two.jsonl)" "0 0 0 0 $(losses two-common.jsonl)"
unset UCX_TLS
convoy=$release
train_nodes 2 $tiny BATCH_SIZE=1 GLOBAL_BATCH=2 STEPS=20 METRICS_FILE=two-tcp.jsonl
convoy=$common
ok "two nodes over TCP of our own: done, the same losses" is "$codes $(losses two-tcp.jsonl)" "0 0 $(losses two-common.jsonl)"

# 5. The same bytes.
if [ "${RELEASE_TWICE:-0}" = 1 ]; then
    git -C "$root" diff --quiet HEAD && git clone -q "$root" again 2>err
    make -C again -s release >out 2>err
    ok "built anew elsewhere: the same bytes" cmp "$release" again/build/release/convoy
else
    skip "built anew elsewhere: the same bytes" "takes two minutes; RELEASE_TWICE=1 asks for it"
fi
done_testing
