#!/bin/bash
# Each planted bug replaces a line that exists: a change of a file of src that moves the line away is found here, not only in the long
# programs that build the bugs.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
n=0 bad=0
for script in $(grep -rlE '^plant_(all|end)' tests --include='test_*.sh'); do
    n=$((n + 1))
    if out=$(ROWS=1 "$script"); then
        echo "ok $n - $script: $(grep -c '^ok' <<<"$out") rows"
    else
        echo "not ok $n - $script"
        grep -A1 '^not ok' <<<"$out" | sed 's/^/# /'
        bad=1
    fi
done
echo "1..$n"
exit $bad
