#!/bin/bash
# test_prometheus — what Prometheus and Grafana get: metrics that promtool accepts, alerts that fire when they should (by
# promtool's clock, and in a real Prometheus beside runs that fail and finish), a dashboard whose metrics exist, and the cost
# of a scrape. Both programs are the system's, or those that `make test-all` unpacked into $BUILD.
. "$(dirname "$0")/lib.sh"
PATH=$PATH:$(dirname "$convoy")/prometheus/usr/bin
extra Prometheus there prometheus promtool
promtool=promtool
port=$(free_port)
url=http://127.0.0.1:$port
quiet="STATUS_ADDR=127.0.0.1 STATUS_PORT=$port"
tool() { "$promtool" "$@" >said 2>&1 || { sed 's/^/# /' said; false; }; }
silent() { "$promtool" check metrics <"$1" >said 2>&1 && [ ! -s said ] || { sed 's/^/# /' said; false; }; }

# ---- rules ----
examples=$root/examples
ok "alert rules: promtool check" tool check rules "$examples/prometheus/convoy.rules.yml"
ok "the scrape configuration too" tool check config "$examples/prometheus/prometheus.yml"
ok "each alert fires for what it is for, none in a healthy run" tool test rules "$examples/prometheus/convoy.rules.test.yml"
for alert in $(sed -n 's/.*- alert: //p' "$examples/prometheus/convoy.rules.yml"); do
    grep -q "alertname=\"$alert\"" "$examples/prometheus/convoy.rules.test.yml" || echo "$alert"
done >untested
ok "no alert without a test" is "$(cat untested)" ""

# ---- metrics of a node, and of node 0 of two while it waits for the other ----
begin $tiny STEPS=100000000 N_GPU_EACH_NODE=2 CHECKPOINT_DIR=ck CHECKPOINT_EVERY=500
is_up() { curl -s --max-time 2 "$url/metrics" >metrics && grep -q '^convoy_checkpoint_step' metrics; }
wait_for 30 is_up
ok "promtool check metrics: silent" silent metrics
grep -v '^#' metrics | sed 's/[ {].*//' | sort -u >names
node0=$pid
port0=$port
port=$(free_port)
quiet="STATUS_ADDR=127.0.0.1 STATUS_PORT=$port"
export JOB_TOKEN=a-secret-for-these-tests-only
begin $tiny STEPS=100 N_NODES=2 NODE_ID=0 MASTER_ADDR=127.0.0.1 MASTER_PORT="$(free_port)"
is_waiting() { curl -s --max-time 2 "http://127.0.0.1:$port/metrics" >metrics2 && grep -q '^convoy_node_up{node="1"} 0' metrics2; }
ok "node 0 says who is missing" wait_for 20 is_waiting
ok "promtool check metrics: silent there too" silent metrics2
disown "$pid" # no word of the shell when it is killed
kill -KILL "$pid"
# ---- a real Prometheus: one run fails, another finishes; both are watched to their end and beyond ----
failing=$(free_port)
finishing=$(free_port)
web=$(free_port)
mkdir watch
sed -e 's/scrape_interval: .*/scrape_interval: 500ms/' -e 's/evaluation_interval: .*/evaluation_interval: 500ms/' \
    -e "s/targets: .*/targets: [\"127.0.0.1:$failing\", \"127.0.0.1:$finishing\"]/" "$examples/prometheus/prometheus.yml" >watch/prometheus.yml
cp "$examples/prometheus/convoy.rules.yml" watch/
prometheus --config.file=watch/prometheus.yml --storage.tsdb.path=watch/data --web.listen-address="127.0.0.1:$web" --log.level=error >watch/log 2>&1 &
watcher=$!
disown
started+=("$watcher")
asks() { curl -s --max-time 2 "http://127.0.0.1:$web/api/v1/$1"; }
alerts_of() { asks alerts | jq -r --arg at "127.0.0.1:$1" '[.data.alerts[] | select(.labels.instance == $at) | .labels.alertname + " " + .state] | unique | join(", ")'; }
has_seen() { asks "query?query=convoy_phase" | jq -e --arg at "127.0.0.1:$1" --arg phase "$2" '.data.result | any(.metric.instance == $at and .metric.phase == $phase and .value[1] == "1")' >/dev/null; }
port=$failing quiet="STATUS_ADDR=127.0.0.1 STATUS_PORT=$failing"
begin $tiny STEPS=1000000 LINGER=1h FAULT=kill@step=1000 MAX_RESTARTS=0
run_failing=$pid
quiet="STATUS_ADDR=127.0.0.1 STATUS_PORT=$finishing"
cp err err.failing
"$convoy" train $quiet $tiny STEPS=1000 LINGER=1h >out2 2>err2 &
run_finishing=$!
started+=("$run_finishing")
pid=$watcher
is_firing() { [ "$(alerts_of "$failing")" = "ConvoyFailed firing" ]; }
ok "a run that has really failed: ConvoyFailed fires, and no other" wait_for 40 is_firing
wait_for 20 has_seen "$finishing" done
ok "a run that is done is seen as done, and no alert is even pending" is "$(has_seen "$finishing" done && alerts_of "$finishing")" ""
curl -s --max-time 5 "http://127.0.0.1:$failing/metrics" >metrics3
ok "promtool check metrics: silent after the end" silent metrics3
kill -TERM "$run_failing" "$run_finishing"
wait "$run_failing"
codes=$?
wait "$run_finishing"
ok "a signal ends the wait of both, with their own exit codes" is "$codes $?" "75 0"
is_down() { asks "query?query=up" | jq -e '.data.result | length == 2 and all(.value[1] == "0")' >/dev/null; }
ok "both have gone" wait_for 20 is_down
sleep 1.5 # some evaluations
ok "the one that failed still calls, with one alert" is "$(alerts_of "$failing")" "ConvoyFailed firing"
ok "of the one that is done there is no alert, pending or firing" is "$(alerts_of "$finishing")" ""
kill -TERM "$watcher"

sed -n 's/^| `\(convoy_[^`]*\)`.*/\1/p' "$root/docs/status.md" | sort >types
ok "each metric has a row in docs/status.md" is "$(grep -h '^# TYPE' metrics metrics2 metrics3 | cut -d' ' -f3 | sort -u | comm -23 - types)" ""

# ---- all that is asked for exists ----
asked() { grep -oE '\bconvoy_[a-z0-9_]+' | sort -u; }
ok "the alerts ask for metrics that exist" is "$(sed -n '/expr:/,/for:\|labels:/p' "$examples/prometheus/convoy.rules.yml" | asked | comm -23 - types)" ""
ok "the dashboard too" is "$(jq -r '.. | .expr? // empty' "$examples/grafana/convoy.json" | asked | comm -23 - types)" ""
jq -r '.panels[].targets[].expr' "$examples/grafana/convoy.json" | sed 's/\$job/convoy/g; s/\$node/.*/g; s/\$run/.*/g' |
    awk 'BEGIN { print "groups: [{name: dashboard, rules: [" } { gsub(/\\/, "\\\\"); gsub(/"/, "\\\""); printf "{record: a%d, expr: \"%s\"},\n", NR, $0 } END { print "]}]" }' >dashboard.yml
ok "and in PromQL that parses" tool check rules dashboard.yml
holds_panels() {
    jq -e '[.panels[] | .gridPos as $g | range($g.x; $g.x + $g.w) as $x | range($g.y; $g.y + $g.h) as $y | [$x, $y]] as $cells |
        ([.panels[].id] | length == (unique | length)) and ($cells | length == (unique | length)) and ([$cells[][0]] | max) < 24' "$1" >/dev/null
}
ok "its panels: each of its own number, within 24 columns, in no other's place" holds_panels "$examples/grafana/convoy.json"

# ---- what a scrape costs: the processor time of the process that answers, which no other load lengthens much; in nanoseconds ----
spent() { cat "/proc/$node0"/task/*/schedstat | awk '{ s += $1 } END { printf "%.0f", s }'; }
idle=$(spent)
sleep 3
before=$(spent)
: >urls
for i in $(seq 1 500); do printf 'url = "http://127.0.0.1:%s/metrics"\noutput = "/dev/null"\nwrite-out = "%%{http_code}\\n"\n' "$port0" >>urls; done
began=$(now_ms)
curl -s -K urls >codes
took=$(($(now_ms) - began))
after=$(spent)
# The time that passed had its own share of idle work: 500 scrapes cost what is beyond that.
cost=$(awk -v i="$idle" -v b="$before" -v a="$after" -v t="$took" 'BEGIN { c = ((a - b) - (b - i) * t / 3000) / 1e6 / 500; printf "%.3f", c < 0 ? 0 : c }')
ok "500 scrapes: 500 answers" is "$(grep -c 200 codes)" 500
echo "# a scrape: $cost ms of one processor; 500 took $took ms"
ok "scraped each second: at most 1 % of a processor's time" awk -v c="$cost" 'BEGIN { exit !(c <= 10) }'
disown "$node0"
kill -KILL "$node0"
done_testing
