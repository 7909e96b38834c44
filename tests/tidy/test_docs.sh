#!/bin/sh
# test_docs — README.md's table of settings is the one that the program prints; `make docs` writes it.
build=${BUILD:-build}
printf '1..2\n'

if [ "$(grep -cx '<!-- settings -->' README.md)" = 1 ] && [ "$(grep -cx '<!-- /settings -->' README.md)" = 1 ]; then
    printf 'ok 1 - README.md has one block of settings\n'
else
    printf 'not ok 1 - README.md has one block of settings\n# lines <!-- settings --> and <!-- /settings --> must each be there once\n'
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/convoy-docs-XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
sed -n '/^<!-- settings -->$/,/^<!-- \/settings -->$/{//!p}' README.md >"$work/committed"
if "$build/convoy" help settings-markdown >"$work/made" && diff "$work/committed" "$work/made" >"$work/diff"; then
    printf 'ok 2 - README.md tells the settings as they are\n'
else
    printf 'not ok 2 - README.md tells the settings as they are\n'
    printf '# run `make docs` and commit README.md; first differences (< committed, > made):\n'
    head -n 20 "$work/diff" | sed 's/^/# /'
fi
