#!/bin/bash
# test_chat_ids — the ids and the marks of conversations are those of the families' Jinja templates, rendered as transformers does and
# encoded by the package tokenizers. Templates that trl ships are used where its wheel is; each is either equal or refused. CONVERSATIONS:
# of each template (make chat-ids: 2,000). Skipped where the packages are not: test-all has them.
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
python=$build/tokenizers/bin/python
[ ! -x "$python" ] && python=python3
if ! "$python" -c 'import tokenizers, jinja2' 2>/dev/null; then
    echo "1..0 # SKIP the packages tokenizers and jinja2 are not there (test-all installs them in $build/tokenizers)"
    exit 0
fi
make -s BUILD="$build" SAN="${SAN:-}" "$build/tests/chat/chat_ids" >&2 || exit 1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
"$python" tests/chat/oracle.py "$build/tests/chat/chat_ids" "$folder" "${CONVERSATIONS:-200}" "${TEMPLATES:-}"
