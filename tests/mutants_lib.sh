# mutants_lib — planted bugs (mutation testing): each is one wrong line in a copy of a file of src, which a test must catch. Source
# it, define rows(), which prints `name | file without .c | the edit, a sed expression`, and call plant_all. ROWS=1: nothing is built, and
# each row is only compared with its file (tests/tidy/test_planted.sh).
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${BUILD:-build}
case $build in /*) ;; *) build=$root/$build ;; esac
tmp=$(mktemp -d "${TMPDIR:-/tmp}/convoy-mutants-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
if [ -n "${SAN:-}" ] && [ -z "${ROWS:-}" ]; then
    echo "1..0 # SKIP: the copies are built without sanitizers"
    exit 0
fi
flags="-std=c11 -O1 -D_GNU_SOURCE -I$root/src -I$root -I$root/tests"
modules="libevent libevent_openssl libcurl libcjson openssl libutf8proc libpcre2-8 libxxhash libzstd ucx"
# The changed file comes before the library, which then is not asked for the right one.
# shellcheck disable=SC2086
libs="$build/src/base/version.o $build/libconvoy.a -lcmocka -Wl,--as-needed $(pkg-config --libs $modules) -lm -pthread"

# try SEED COUNT — the changed program ends well: nothing was caught. It ends at the first test that fails.
try() { (ulimit -t 60 -c 0; CMOCKA_TEST_ABORT=1 exec timeout 120 "$tmp/changed" "$1" "$2"); }
# plant FOLDER FILE EDIT SEEDS — what is wrong with this row in $why; "": it was caught. $repeats: the seed that is named fails again.
# $names: words that the program must have printed.
plant() {
    local seed
    why=
    mkdir -p "$(dirname "$tmp/$2")"
    sed -e "$3" "$root/src/$1/$2.c" >"$tmp/$2.c"
    if cmp -s "$tmp/$2.c" "$root/src/$1/$2.c"; then
        why="the line to be replaced is gone from $2.c"
    elif [ -n "${ROWS:-}" ]; then
        : >"$tmp/out"
    # shellcheck disable=SC2086
    elif ! gcc $flags -w -o "$tmp/changed" "$tmp/test.o" "$tmp/$2.c" $libs 2>"$tmp/log"; then
        why="it does not build: $(head -3 "$tmp/log")"
    elif try 1 "$4" >"$tmp/out" 2>&1; then
        why="$4 seeds did not catch it"
    elif [ -n "${names:-}" ] && ! grep -qa "$names" "$tmp/out"; then
        why="it failed without \"$names\": $(grep -av '^ok' "$tmp/out" | head -3)"
    elif [ -n "${repeats:-}" ] && ! grep -qa '^convoy: a bug: ' "$tmp/out"; then # an assertion ends the program before it names a seed
        seed=$(sed -n '1s/^seed \([0-9]*\) .*/\1/p' "$tmp/out")
        [ -n "$seed" ] || why="no seed was named: $(head -1 "$tmp/out")"
        [ -n "$why" ] || try "$seed" 1 >"$tmp/again" 2>&1
        [ -n "$why" ] || cmp -s "$tmp/out" "$tmp/again" || why="seed $seed is another history the second time"
    fi
}
# plant_rows ROWS TEST FOLDER SEEDS — ROWS: the function that prints them; TEST: the source of the test, whose program takes a first seed
# and how many.
tried=0 bad=0
plant_rows() {
    local name file edit
    # shellcheck disable=SC2086
    [ -n "${ROWS:-}" ] || gcc $flags -c -o "$tmp/test.o" "$root/$2" || exit 1
    while IFS='|' read -r name file edit; do
        tried=$((tried + 1))
        plant "$3" "$file" "$edit" "$4"
        if [ -z "$why" ]; then
            echo "ok $tried - $name: $(grep -aoE "${names:-(seed|Assert|assertion|BUG|a bug)}.*" "$tmp/out" | head -1)"
        else
            echo "not ok $tried - $name"
            echo "# $why"
            bad=1
        fi
    done < <("$1")
}
plant_end() {
    echo "1..$tried"
    exit $bad
}
# plant_all TEST FOLDER SEEDS — the rows of rows(), which are all.
plant_all() {
    plant_rows rows "$@"
    plant_end
}
