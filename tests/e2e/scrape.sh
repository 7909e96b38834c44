#!/bin/bash
# scrape — the cost of /metrics, scraped every second, for a run of gpt2-nano: runs with and without a scraper alternate.
# Prints TAP, the median of the ratios of their mean step times, and the processor time of a scrape. PAIRS=7 RUN_STEPS=60.
# Needs a quiet machine; $QUIET starts each pair, such as "flock -x FILE".
. "$(dirname "$0")/lib.sh"
pairs=${PAIRS:-7} steps=${RUN_STEPS:-60}
scrape() { # each second, by one process that stays: what fetches has another machine to itself
    exec perl -MIO::Socket::INET -MTime::HiRes=sleep -e '
        while (1) {
            my $s = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $ARGV[0]) or (sleep(0.1), next);
            print $s "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            local $/; my $text = <$s>;
            last if $text !~ /^convoy_step /m && $n++ > 20;
            syswrite STDOUT, "1\n" if $text =~ /^HTTP\/1.1 200/;
            sleep(1);
        }' "$1"
}
spent() { cat "/proc/$pid"/task/*/schedstat 2>/dev/null | awk '{ s += $1 } END { printf "%.0f", s }'; }
# one NAME SCRAPED — a run; its mean step time in NAME.step, the supervisor's processor time over some seconds in NAME.spent, scrapes in NAME.n.
one() {
    local from to scraper= port
    port=$(free_port)
    "$convoy" train MODEL=gpt2-nano BATCH_SIZE=4 SEQ_LEN=64 STEPS="$steps" STATUS_ADDR=127.0.0.1 STATUS_PORT="$port" METRICS_FILE="$1.jsonl" >out 2>err &
    track
    wait_for 20 grep -qs '^step ' out
    : >"$1.scrapes"
    if [ "$2" = 1 ]; then
        scrape "$port" >"$1.scrapes" &
        scraper=$!
        started+=("$scraper")
    fi
    from=$(spent)
    sleep "${WINDOW:-3}"
    to=$(spent)
    wc -l <"$1.scrapes" >"$1.n"
    echo $((to - from)) >"$1.spent"
    finish
    [ -z "$scraper" ] || { kill "$scraper"; wait "$scraper" 2>/dev/null; }
    [ "$rc" = 0 ] || echo "# a run ended with $rc"
    jq -s '.[5:] | map(.step_ms) | add / length' "$1.jsonl" >"$1.step"
}
pair() { # PAIR's runs, the one with a scraper first every other time
    if [ $(($1 % 2)) = 0 ]; then one "with$1" 1; one "without$1" 0; else one "without$1" 0; one "with$1" 1; fi
}
if [ -n "${PAIR:-}" ]; then
    cd "$WORK" && pair "$PAIR"
    exit
fi
for i in $(seq "$pairs"); do PAIR=$i WORK=$tmp ${QUIET:-} "$root/tests/e2e/scrape.sh"; done
for i in $(seq "$pairs"); do
    echo "$(cat "with$i.step") $(cat "without$i.step") $(cat "with$i.spent") $(cat "without$i.spent") $(cat "with$i.n")"
done | awk '{ printf "%.5f %.3f %.3f %.4f %d\n", $1 / $2, $1, $2, ($3 - $4) / 1e6 / ($5 ? $5 : 1), $5 }' | sort -n >pairs
sed 's/^\([^ ]*\) \([^ ]*\) \([^ ]*\) \([^ ]*\) \(.*\)/# ratio \1: step \2 ms with, \3 ms without; a scrape \4 ms of a processor (\5 scrapes)/' pairs
median() { cut -d ' ' -f "$1" pairs | sort -n | awk '{ a[NR] = $1 } END { print NR % 2 ? a[(NR + 1) / 2] : (a[NR / 2] + a[NR / 2 + 1]) / 2 }'; }
ratio=$(median 1) cost=$(median 4)
ok "scraped each second: median of $pairs ratios of step time $ratio, at most 1.01" awk -v r="$ratio" 'BEGIN { exit !(r > 0.5 && r <= 1.01) }'
ok "a scrape: $cost ms of one processor, at most 1 % of a second" awk -v c="$cost" 'BEGIN { exit !(c < 10) }'
ok "each run was scraped" is "$(awk '$5 < 3' pairs | wc -l)" 0
done_testing
