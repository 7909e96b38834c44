#!/bin/sh
# quarantine [NAMESPACE] — taints the machines on which a pod of Convoy ended with 1 (it failed its check), 80 (a fault of the device) or
# 69 (no device), so that the pod that takes its place goes to another. To be run where kubectl may read pods and change nodes: by hand,
# or each minute by cron while jobs run.
# The taint stays until a person has looked: kubectl taint nodes MACHINE convoy/device-fault-
set -eu
namespace=${1:-default}
kubectl get pods -n "$namespace" -l app.kubernetes.io/name=convoy \
    -o 'jsonpath={range .items[*]}{.spec.nodeName}{" "}{.status.containerStatuses[?(@.name=="convoy")].state.terminated.exitCode}{"\n"}{end}' |
    awk '$2 == 1 || $2 == 69 || $2 == 80 { print $1, $2 }' | sort -u -k1,1 | while read -r machine code; do
        kubectl taint nodes "$machine" "convoy/device-fault=$code:NoSchedule" --overwrite
    done
