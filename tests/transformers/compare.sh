#!/bin/bash
# compare.sh — compare.py for each of VERSIONS of transformers, with the PyTorch in BUILD/torch. Fails if one is missing (`make
# transformers-check` fetches them), or if a comparison fails.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build} failed=0
torch=$(echo "$PWD/$build"/torch/lib/python3*/site-packages)
case $build in /*) torch=$(echo "$build"/torch/lib/python3*/site-packages) ;; esac
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
for version in ${VERSIONS:?versions of transformers}; do
    python=$build/transformers-$version/bin/python
    mkdir "$folder/$version"
    if [ -d "$torch/torch" ] && [ -x "$python" ]; then
        HF_HUB_OFFLINE=1 PYTHONPATH=$torch "$python" tests/transformers/compare.py "$build/convoy" "$build/tests/golden/test_hf_export" \
            "$build/tests/transformers/split_folder" "$folder/$version" || failed=1
    else
        echo "compare.sh: $torch/torch or $python is not there; \`make transformers-check\` fetches both" >&2
        failed=1
    fi
done
exit $failed
