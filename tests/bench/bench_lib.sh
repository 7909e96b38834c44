# bench_lib — what the benchmarks share: the program, a folder that goes with them, gates. Source it first; it enters the folder.
set -eu
export LC_ALL=C NO_COLOR=1 STATUS_PORT=0 LOG_LEVEL=${LOG_LEVEL:-warn}
me=$(basename "$0" .sh) top=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$top" && realpath "${BUILD:-build}")
convoy=$build/convoy failed=0
die() { echo "$me: $*" >&2; tail -n 5 out err ./*.err >&2 2>/dev/null || true; exit 1; }
needs() { local tool; for tool; do command -v "$tool" >/dev/null || die "$tool is missing; install it"; done; }
dir=$(mktemp -d "${TMPDIR:-/tmp}/convoy-$me-XXXXXX")
trap 'rm -rf "$dir"' EXIT
cd "$dir"
now_ms() { echo $(($(date +%s%N) / 1000000)); }
median() { sort -g | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; } # of lines
at_most() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a <= b) }'; } # at_most A B
wants() { case " $2 " in *" $1 "*) return 0 ;; esac; return 1; } # wants WORD WORDS
