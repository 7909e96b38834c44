#!/bin/bash
# test_dockerfile — hadolint finds nothing wrong with the Dockerfile, and finds a fault that is planted.
. "$(dirname "$0")/lib.sh"
venv=$(dirname "$convoy")/hadolint
extra hadolint test -x "$venv/bin/hadolint"
lint() { "$venv/bin/hadolint" "$@" >out 2>err; }
lint "$root/Dockerfile"
ok "hadolint is silent" is "$? $(cat out err)" "0 "
sed 's/^ENTRYPOINT.*/ENTRYPOINT convoy/; s/^WORKDIR.*/WORKDIR convoy/' "$root/Dockerfile" >Dockerfile
lint Dockerfile
ok "and not, when an entry point without brackets and a relative folder are planted" is \
    "$? $(grep -oE 'DL(3025|3000)' out | sort -u | xargs)" "1 DL3000 DL3025"
done_testing
