#!/bin/bash
# test_gguf_package — the package gguf of llama.cpp reads the files of `convoy export`: its names, its bytes of every type, its
# values. Skipped where the package is not: test-all has it, `make gguf-check` fetches it.
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
python=$build/gguf/bin/python
[ ! -x "$python" ] && python=python3
if ! "$python" -c 'import gguf' 2>/dev/null; then
    echo "1..0 # SKIP the package gguf is not there (test-all installs it in $build/gguf)"
    exit 0
fi
make -s BUILD="$build" SAN="${SAN:-}" "$build/convoy" >&2 || exit 1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
"$python" tests/gguf/compare.py "$(realpath "$build")/convoy" "$PWD/tests/golden" "$PWD/assets/alice.txt" "$folder"
