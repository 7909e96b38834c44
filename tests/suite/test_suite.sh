#!/bin/bash
# test_suite — how tests are run: on a terminal, past their limit, interrupted, on a busy machine; and that nothing ends a package
# manager that installs.
. "$(dirname "$0")/../e2e/lib.sh"
here=$root/tests/suite
unset LIMIT SUITE_MINUTES IN_TEST
write() { cat >"$1" && chmod +x "$1"; } # write NAME: a program
gone() { ! pgrep -f "$1" >/dev/null; }

# 1. A terminal with job control. The tests that the terminal would stop are not stopped; the terminal itself is a real one: with a
# process group of their own in its session, as `timeout` makes one, they are.
write reads.sh <<'END'
#!/bin/bash
echo 1..3
read -r line && echo "not ok 1 - stdin is empty" || echo "ok 1 - stdin is empty"
(: </dev/tty) 2>/dev/null && echo "not ok 2 - no terminal" || echo "ok 2 - no terminal"
script -qec true typed >/dev/null </dev/null && echo "ok 3 - script"
END
on_terminal() { rc=0; script -qec "$1" typescript >/dev/null </dev/null || rc=$?; tr -d '\r' <typescript >out; }
on_terminal "bash -c 'timeout -k 1 1 cat; exit \$?'"
ok "the old way is stopped on a terminal" is $rc 124
on_terminal "$here/all.pl ./reads.sh"
ok "on a terminal tests run through" is "$rc $(grep -c '^All tests successful' <(sed 's/\x1b\[[0-9;]*m//g' out)) $(grep -c '^Result: PASS' out)" "0 1 1"

# 2. A test that passes its limit is named with what runs, and nothing of it is left, not even what took a session of its own.
mark=$((700000 + RANDOM))
write hangs.sh <<END
#!/bin/bash
echo 1..1
setsid sleep $mark.1 &
sleep $mark.2
END
rc=0
LIMIT=1 "$here/one.pl" "$tmp/hangs.sh" >out 2>err || rc=$?
ok "over the limit: 124, and it says what was running" is "$rc $(grep -c 'is over its limit of 1 s; running: .*sleep (.*sleep (' err)" "124 1"
ok "and nothing is left" gone "sleep $mark"
write leaves.sh <<END
#!/bin/bash
echo 1..1
setsid sleep $mark.3 &
echo ok 1
exit 3
END
rc=0
"$here/one.pl" "$tmp/leaves.sh" >out 2>err || rc=$?
ok "what a test leaves is named and ended; its code stays" is "$rc $(grep -c 'left running: sleep (' err) $(gone "sleep $mark" && echo gone)" "3 1 gone"

# 3. Ctrl-C ends the suite with all that runs in it.
setsid "$here/all.pl" "$tmp/hangs.sh" >out 2>err &
pid=$!
started+=("$pid")
wait_for 10 pgrep -f "sleep $mark.2" >/dev/null
kill -INT -- "-$pid"
finish
ok "interrupted: nothing is left" wait_for 10 gone "sleep $mark"

# 4. Time: printed before the result, which is last; a limit of processor time that fails; limits that grow with the load.
write burns.sh <<'END'
#!/bin/bash
echo 1..1
(i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done)
echo ok 1
END
rc=0
"$here/all.pl" --build true ./burns.sh >out 2>err || rc=$?
ok "processor time is printed, the result is last" is "$rc $(grep -cE '^processor time 0 min .* for each of [0-9]+ processors; ' out) $(tail -n 1 out)" "0 1 Result: PASS"
ok "and which programs took longest" grep -qE '^longest \(processor time\): .*burns.sh [0-9]+ s \([0-9]+ s\)$' out
mkdir -p tests/unit tests/e2e
long=$(grep -m 1 '^e2e/' "$here/long" | cut -d ' ' -f 1)
cp burns.sh tests/unit/test_a && cp burns.sh "tests/$long"
JOBS=1 TIMES=$tmp/times "$here/all.pl" tests/unit/test_a >out 2>err
JOBS=1 TIMES=$tmp/times "$here/all.pl" tests/unit/test_a "tests/$long" >out 2>err
ok "programs of the list of long ones are first; TIMES= keeps the times of all, and none of an earlier run" is "$(cut -f 3 times | xargs)" "tests/$long tests/unit/test_a"
missing=$(cat "$here/long" "$here/quick" | grep -v "^#\|%" | while read -r t _; do [ -e "$root/tests/$t" ] || [ -e "$root/tests/$t.c" ] || [ -d "$root/tests/${t/test_/}" ] || echo "$t"; done)
ok "each of the lists is a program" is "$missing" ""
rc=0
SUITE_MINUTES=0.00001 "$here/all.pl" ./burns.sh >out 2>err || rc=$?
ok "more than SUITE_MINUTES for each processor: fails" is "$rc $(grep -c '^processor time .*Failed: 1' out) $(tail -n 1 out)" "1 1 Result: FAIL"
rc=0
"$here/all.pl" --build 'sh -c "exit 7"' ./burns.sh >out 2>err || rc=$?
ok "a build that fails ends it" is "$rc $(wc -c <out)" "7 0"
: >stat
factor() { printf '%s' "$1" >loadavg; perl -I"$here" -Mload -e 'printf "%.1f", load::factor(@ARGV) * load::processors()' loadavg stat; }
many=$((10 * processors))
ok "limits grow with the processes that want a processor" is "$(factor "1.00 1.00 1.00 $many/300 7") $(factor "$many.00 1.00 1.00 1/300 7")" "$many.0 $many.0"
echo "cpu 1000000000000000 0 0 0 0 0 0 3000000000000000 0 0" >stat # since this machine began
ok "and with what a virtual machine's host gives to others" is "$(factor '0.00 0.00 0.00 1/300 7')" "$((4 * processors)).0"
: >stat
ok "and are never shorter" is "$(factor '0.00 0.00 0.00 1/300 7') $(factor nonsense)" "$processors.0 $processors.0"
"$here/busy.pl" 3 bash -c "pgrep -c -P \"\$PPID\" busy; exit 5 # $mark" >out
ok "the load of test-busy ends with it" is "$? $(cat out) $(pgrep -fc "busy.pl 3 bash -c pgrep.*$mark")" "5 3 0"

# 5. The build shows how far it is, in place of its commands; make's exit code and what a compiler reports stay.
mkdir build-line
printf '.PHONY: all\nMAKEFLAGS += -r\nstamps:\n\ttouch stamp\nall: a.o b.o prog\n%%.o:\n\tcp /dev/null $@ && true \\\n\t  -c -o $@\nprog: a.o\n\t@echo "a.c:3: warning: odd" >&2\n\ttrue # cc -o prog\nbad:\n\tfalse # cc -o bad\n' >build-line/Makefile
build() { rc=0; (cd build-line && env -u MAKEFLAGS -u MAKELEVEL "$root/.ci/build" make "$@") >out 2>err </dev/null || rc=$?; }
build all
ok "a build counts its files, and shows warnings but no commands" is "$rc $(tail -n 1 out | sed 's/[0-9]* s$/N s/') $(grep -c ' -o ' out err | xargs) $(grep -c 'warning: odd' err)" \
    "0 compiling 3 of 3 files, N s out:0 err:0 1"
build all
ok "and only those that are not made yet" is "$rc $(tail -n 1 out | sed 's/[0-9]* s$/N s/')" "0 compiling 1 of 1 files, N s"
build bad
ok "it fails as make does" is "$rc $(grep -c 'Error 1' err)" "2 1"
env -u MAKEFLAGS -u MAKELEVEL make -C "$root" -s -n CUDA=0 test ONLY='e2e/test_(bucket|hub)' >out
ok "a script by its name: the programs that it starts are built, too" is "$(sed -n "s/.* all \([^']*\)'.*/\1/p" out | grep -oE 'tests/[^ ]*' | xargs)" \
    "tests/e2e/fake_hub tests/remote/test_s3"

# 6. Packages: a package manager of the test's own writes down what it is asked. What only downloads has a limit; what installs
# ends by itself, whatever comes. In a test nothing is installed.
mkdir bin
write bin/dpkg-query <<'END'
#!/bin/sh
exit 1
END
write bin/sudo <<'END'
#!/bin/sh
[ "$1" = -v ] || exec "$@"
END
write bin/apt-get <<'END'
#!/bin/bash
case " $* " in
*" update "*) what=update ;;
*" --simulate "*) what=look; echo "Inst a (1)"; echo "Inst b (2)" ;;
*" --print-uris "*) what=size; printf 'Need to get 12.3 MB of archives.\nAfter this operation, 45.6 MB of additional disk space will be used.\n' ;;
*" --download-only "*) what=download ;;
*) what=install ;;
esac
echo "$what" >>calls
[ "$what" != "${SLOW:-}" ] || { sleep "${SLOW_SECONDS:-1.5}"; echo "$what ended" >>calls; }
END
need() { PATH=$tmp/bin:$PATH TMPDIR=$tmp sh "$root/.ci/need" "$@" >out 2>err; }
rc=0
need a b || rc=$?
ok "need: looks, says how much, downloads, installs" is "$rc $(xargs <calls)" "0 update look size download install"
ok "what and how large" says "installing a b: 2 packages, 12.3 MB to download, 45.6 MB on disk"
: >calls
rc=0
seconds=$(slow) # what does not wait has to be done in so many
NEED_SECONDS=$seconds SLOW=download SLOW_SECONDS=1000 need a || rc=$?
ok "a download has its limit, and nothing is installed then" is "$rc $(xargs <calls) $(grep -c "more than $seconds s" err)" "75 update look size download 1"
: >calls
rc=0
seconds=$(slow)
NEED_SECONDS=$seconds SLOW=install SLOW_SECONDS=$((seconds + 1)) need a || rc=$?
ok "an installation has none" is "$rc $(tail -n 1 calls)" "0 install ended"
for s in INT TERM HUP; do
    : >calls
    PATH=$tmp/bin:$PATH TMPDIR=$tmp SLOW=install setsid bash -c 'trap - INT; exec sh "$0" a' "$root/.ci/need" >out 2>err &
    pid=$!
    started+=("$pid")
    wait_for 10 grep -q '^install$' calls
    kill -$s -- "-$pid"
    finish
    ok "SIG$s to the terminal's processes does not end it" wait_for 10 grep -q '^install ended' calls
done
: >calls
rc=0
IN_TEST=1 need a || rc=$?
ok "in a test nothing is installed" is "$rc $(cat calls) $(grep -c 'make test-all' err)" "69  1"
done_testing
