#!/bin/bash
# test_tokenizers — the ids of tokenizers from files are those of the packages tokenizers, sentencepiece and tiktoken, on texts drawn
# from all categories of Unicode: small tokenizers of every kind are trained here, by these packages. TEXTS: of each kind (make
# tokenizers: 100,000). Skipped where the packages are not: test-all has them.
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build} texts=${TEXTS:-1000}
python=$build/tokenizers/bin/python
[ ! -x "$python" ] && python=python3
if ! "$python" -c 'import tokenizers, sentencepiece, tiktoken' 2>/dev/null; then
    echo "1..0 # SKIP the packages tokenizers, sentencepiece and tiktoken are not there (test-all installs them in $build/tokenizers)"
    exit 0
fi
make -s BUILD="$build" SAN="${SAN:-}" "$build/convoy" "$build/tests/tokenizers/tokenizer_ids" >&2 || exit 1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
"$python" tests/tokenizers/oracle.py "$build/tests/tokenizers/tokenizer_ids" "$folder" "$texts"
