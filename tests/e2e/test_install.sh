#!/bin/bash
# test_install — what packages contain: make install and uninstall, the man page, completion, the source archive, the Debian
# package, the list of contents (SPDX), checksums; the same bytes twice.
. "$(dirname "$0")/lib.sh"
[ "${SAN:-}" = "" ] || give_up "make install" "it packs the ordinary build"
build=$(dirname "$convoy")
pack() { (cd "$root" && MAKEFLAGS='' make -s -o "$build/convoy" BUILD="$build" PAPERS="$tmp/papers" DIST="$tmp/${dist:-dist}" "$@") >out 2>err; } # GOAL WORD…

pack install DESTDIR="$tmp/d" PREFIX=/opt/c
ok "make install" is "$? $(cd d && find . -type f | sort | tr '\n' ' ')" "0 ./opt/c/bin/convoy ./opt/c/share/bash-completion/completions/convoy \
./opt/c/share/convoy/alice.txt ./opt/c/share/doc/convoy/CHANGELOG.md ./opt/c/share/doc/convoy/LICENSE ./opt/c/share/doc/convoy/NOTICE \
./opt/c/share/doc/convoy/README.md ./opt/c/share/fish/vendor_completions.d/convoy.fish ./opt/c/share/man/man1/convoy.1 \
./opt/c/share/zsh/site-functions/_convoy "
ok "the program runs from there" is "$(d/opt/c/bin/convoy version | head -n 1)" "convoy $(cat "$root/VERSION")"

man=d/opt/c/share/man/man1/convoy.1
"$convoy" config JSON=1 2>err | jq -r 'keys[]' >settings
ok "the man page has every setting" is "$(grep -c . settings) $(while read -r s; do grep -qx "\\\\fB$s\\\\fR" $man && echo "$s"; done <settings | wc -l)" "$(grep -c . settings) $(grep -c . settings)"
# ok_with PROGRAM NAME COMMAND… — a point that needs the program.
ok_with() { if there "$1"; then ok "${@:2}"; else skip "$2" "no $1 here"; fi; }
ok_with man "man reads it without a warning" is "$(there man && man --warnings -l -E UTF-8 -Tutf8 -Z "$tmp/$man" 2>&1 >/dev/null)" ""
ok_with mandoc "mandoc finds no error" is "$(there mandoc && mandoc -T lint -W warning $man 2>&1)" ""

complete_bash() { # LINE — what bash offers at its end
    bash -c '. "$1"; COMP_LINE=$2 COMP_POINT=${#2}; read -ra COMP_WORDS <<<"$2"; [[ $2 != *" " ]] || COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _convoy; echo "${COMPREPLY[@]}"' - d/opt/c/share/bash-completion/completions/convoy "$1"
}
ok "bash completes commands, settings, their values" is \
    "$(complete_bash "convoy tr")/$(complete_bash "convoy train BATCH_SI")/$(complete_bash "convoy train DEVICE=c")/$(complete_bash "convoy help exit")" "train train-tokenizer/BATCH_SIZE=/cuda cpu/exit-codes"
touch a-file
mkdir -p runs/run1
ok "MODEL: presets and files; status: folders and addresses; help: topics" is \
    "$(complete_bash "convoy train MODEL=gpt2-n")/$(complete_bash "convoy train MODEL=a-f")/$(complete_bash "convoy status run")/$(complete_bash "convoy verify runs/r")/$(complete_bash "convoy status http")/$(complete_bash "convoy status http:")/$(complete_bash "convoy help netw")" \
    "gpt2-nano/a-file/runs/runs/run1/http://127.0.0.1:8080///127.0.0.1:8080/network"
complete_fish() { HOME=$tmp fish -c "source $tmp/d/opt/c/share/fish/vendor_completions.d/convoy.fish; complete -C '$1'" 2>/dev/null | cut -f 1 | xargs; }
ok_with fish "fish does so, too" is "$(complete_fish "convoy train MODEL=gpt2-n")/$(complete_fish "convoy status runs/r")/$(complete_fish "convoy status http")/$(complete_fish "convoy help netw")" \
    "MODEL=gpt2-nano/runs/run1//http://127.0.0.1:8080/network"
complete_zsh() { # PREFIX WORD… — what zsh would offer for the last word, by a stand-in of its completion
    zsh -f -c 'compadd() { print -r -- "$@"; }; _files() { print -r -- files "$@"; }; _describe() { : }; compset() { : }
        PREFIX=$1; shift; words=("$@") CURRENT=$#; . d/opt/c/share/zsh/site-functions/_convoy' - "$@" 2>err | xargs
}
ok_with zsh "zsh, too" is "$(complete_zsh MODEL=gpt2 convoy train MODEL=gpt2 | grep -o 'gpt2-nano\|files' | xargs)/$(complete_zsh run convoy status run)/$(complete_zsh run convoy verify run)/$(complete_zsh net convoy help net | grep -o network)" \
    "gpt2-nano files/-S -- http://127.0.0.1:8080 files -//files -//network"
ok "and files" is "$(complete_bash "convoy train DATA=a-f")" "a-file"
for shell in zsh fish; do
    file=d/opt/c/share/zsh/site-functions/_convoy
    [ $shell = zsh ] || file=d/opt/c/share/fish/vendor_completions.d/convoy.fish
    ok_with $shell "$shell reads its completion" $shell -n $file
    ok "$shell: every setting, every command" is \
        "$(while read -r s; do grep -q "$s[:=]" $file && echo "$s"; done <settings | wc -l) $(grep -cE "^ *.?train:|-a train " $file)" "$(grep -c . settings) 1"
done
pack uninstall DESTDIR="$tmp/d" PREFIX=/opt/c
ok "make uninstall leaves no file" is "$? $(find d -type f | wc -l)" "0 0"

pack sbom
sbom=dist/convoy-$(cat "$root/VERSION").spdx.json
ok "SPDX: what it wants of a document" holds $sbom '.[0] | .spdxVersion == "SPDX-2.3" and .dataLicense == "CC0-1.0" and .SPDXID == "SPDXRef-DOCUMENT" and
    (.documentNamespace | length > 0) and (.creationInfo.created | test("^[0-9-]{10}T[0-9:]{8}Z$")) and all(.packages[]; .SPDXID and .name and .versionInfo and
    .downloadLocation and .licenseDeclared) and ([.packages[].SPDXID] | length == (unique | length))'
ok "and every relation leads to a package" holds $sbom '.[0] | ([.packages[].SPDXID] + ["SPDXRef-DOCUMENT"]) as $ids | all(.relationships[];
    (.spdxElementId | IN($ids[])) and (.relatedSpdxElement | IN($ids[]))) and ([.relationships[] | select(.relationshipType == "DEPENDS_ON")] | length) == (.packages | length) - 1'
listed=$(dirname "$convoy")/release/convoy # what is released, where it was made; else the program itself
[ -x "$listed" ] || listed=$convoy
ok "each library that the program lists is in it" is "$(jq -r '.packages[1:][].name' $sbom | sort | xargs)" \
    "$("$listed" version | awk 'on && $2 != "none" { print $1 } /^libraries/ { on = 1 }' | sort | xargs)"

# Archives of what is committed: the same bytes from another folder; the archive knows its commit.
if git -C "$root" rev-parse HEAD >/dev/null 2>&1; then
    pack dist
    ok "make dist: checksums that hold" is "$? $(cd dist && sha256sum --quiet -c SHA256SUMS 2>&1)" "0 "
    ok "of all files there" is "$(ls dist | grep -vx SHA256SUMS | xargs)" "$(awk '{ print $2 }' dist/SHA256SUMS | xargs)"
    if command -v gpg >/dev/null; then
        export GNUPGHOME=$tmp/gnupg
        mkdir -m 700 gnupg
        gpg --batch --quiet --passphrase '' --quick-generate-key test@convoy.example.org ed25519 sign never 2>err
        dist=dist3 pack dist SIGN=test@convoy.example.org
        ok "SIGN=KEY: a signature that holds" gpg --batch --quiet --verify dist3/SHA256SUMS.asc dist3/SHA256SUMS
        gpgconf --kill all
    else
        skip "SIGN=KEY" "no gpg here"
    fi
    name=convoy-$(cat "$root/VERSION")
    git clone -q "$root" again 2>err
    (cd again && git archive --prefix="$name/" --format=tar HEAD | gzip -n9) >again.tar.gz
    ok "the source archive has the same bytes when made again" cmp again.tar.gz "dist/$name.tar.gz"
    tar xzf "dist/$name.tar.gz"
    ok "it has what a build needs, and its commit" is "$(ls $name/Makefile $name/src/main.c $name/assets/alice.txt | wc -l) $(cut -c 1-40 $name/.ci/commit)" "3 $(git -C "$root" rev-parse HEAD)"
    ok "which make takes" is "$(make -sC $name -pn help 2>/dev/null | sed -n 's/^COMMIT := //p')" "$(git -C "$root" rev-parse --short=12 HEAD)"
else
    skip "make dist" "this is no git checkout"
fi
if command -v dpkg-shlibdeps >/dev/null; then
    export DEB_XZ=0 # fast
    pack deb
    ok "make deb" is "$?" 0
    deb=$(ls dist/*.deb)
    dist=dist2 pack deb
    ok "the same bytes when made again" cmp "$deb" "dist2/${deb##*/}"
    ok "it depends on the libraries' packages" is "$(dpkg-deb -f "$deb" Depends | grep -oE 'libc6|libucx0|libcurl4|libevent-core' | sort -u | xargs)" "libc6 libcurl4 libevent-core libucx0"
    if command -v lintian >/dev/null; then
        lintian --allow-root --fail-on error,warning "$deb" >found 2>&1
        ok "lintian finds no error and no warning" is "$? $(grep -c '^[EW]:' found)" "0 0"
        sed 's/^/# /' found
    else
        skip "lintian" "not installed here; \`make test-all\` installs it"
    fi
    dpkg-deb -x "$deb" unpacked
    ok "its program runs" is "$(unpacked/usr/bin/convoy version | head -n 1)" "convoy $(cat "$root/VERSION")"
    ok "files of root, packed man page, copyright" is "$(dpkg-deb -c "$deb" | grep -vc ' root/root ') $(ls unpacked/usr/share/man/man1) $(grep -c '^ assets/alice.txt' unpacked/usr/share/doc/convoy/copyright)" "0 convoy.1.gz 1"
else
    skip "make deb" "no dpkg-shlibdeps here: make deb installs dpkg-dev"
fi
done_testing
