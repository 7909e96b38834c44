#!/bin/bash
# remedy_tool — stands in for the tool that it is called as: takes what the tool's manual has of the forms that remedies use, and
# refuses all else (64). Changes the tree $TREE where the tool would change what `convoy check` reads of a node.
tool=$(basename "$0") all="$*"
takes() { [[ $all =~ ^($1)$ ]]; }
host='[A-Za-z0-9][A-Za-z0-9._-]*'
gpu='([0-9]+|[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.0)'
kinds='(MEMORY|UTILIZATION|ECC|TEMPERATURE|POWER|CLOCK|COMPUTE|PIDS|PERFORMANCE|ROW_REMAPPER|RESET_STATUS)'
case $tool in
    nvidia-smi)
        # nvidia-smi(1): -i ID or bus; -r/--gpu-reset; -pm 0|1; -pl watts; -e 0|1; -q -d list
        takes "-i $gpu (--gpu-reset|-pm [01]|-pl [0-9]+|-e [01])|(-i $gpu )?-q -d $kinds(,$kinds)*" || exit 64
        [[ $all =~ ^-i\ ([0-9]+)\ -pm\ 1$ ]] && sed -i 's/^persistence 0$/persistence 1/' "$TREE/nvml.txt" ;;
    amd-smi) takes "reset -g $gpu --gpureset|set -g $gpu --power-cap [0-9]+" || exit 64 ;; # -g: ID, bus or UUID
    dmesg) takes '' || exit 64; echo 'NVRM: Xid (PCI:0000:5d:00): 79' ;;
    dcgmi) takes 'diag -r [1-4]' || exit 64 ;;
    kubectl) takes "cordon $host|get pod $host -o jsonpath=\{\.spec\.nodeName\}" || exit 64; [[ $all != get* ]] || echo gpu-17 ;;
    scontrol) takes "update NodeName=$host State=(DRAIN|RESUME) Reason=.+|reconfigure|show node $host" || exit 64 ;;
    systemctl) takes "reboot|poweroff|(start|restart|enable --now) $host" || exit 64 ;;
    reboot) takes '' || exit 64 ;;
    docker) takes 'run( --(gpus|ulimit|device|cap-add|network|shm-size|pids-limit|cpus)[ =][^ ]+)+' || exit 64 ;;
    mlxlink) takes "-d $host --port_state (UP|DN|TG)" || exit 64 ;;
    perfquery) takes '-R' || exit 64 ;;
    ipmitool) takes 'chassis power cycle|sdr type (Fan|Power Supply|Temperature)' || exit 64 ;;
    swapoff) takes '-a' || exit 64 ;;
    modprobe) takes '[a-z0-9_]+' || exit 64; mkdir -p "$TREE/sys/module/$1" ;;
    ip) takes "link|link set $host (up|mtu [0-9]+)" || exit 64 ;;
    ethtool)
        takes "(-S )?$host|-s $host autoneg on" || exit 64
        case $1 in
            -s) echo full >"$TREE/sys/class/net/$2/duplex" ;;
            -S) echo 'rx_errors: 4' ;;
            *) echo 'Speed: 10000Mb/s' ;;
        esac ;;
    cpupower)
        takes 'frequency-set -g performance|frequency-set -u [0-9]+|-c [0-9]+ frequency-info' || exit 64
        for cpu in "$TREE"/sys/devices/system/cpu/cpu*/cpufreq; do
            case $all in
                *' -g '*) echo performance >"$cpu/scaling_governor" ;;
                *' -u '*) echo "$3" >"$cpu/scaling_max_freq" ;;
            esac
        done ;;
    sysctl)
        [[ $all =~ ^([a-z0-9_.]+)=([0-9]+)$ ]] || exit 64
        file=$TREE/proc/sys/${BASH_REMATCH[1]//.//}
        mkdir -p "${file%/*}" && echo "${BASH_REMATCH[2]}" >"$file"
        [ "${BASH_REMATCH[1]}" != vm.nr_hugepages ] || sed -i 's/^\(HugePages_\(Free\|Total\): *\).*/\10/' "$TREE/proc/meminfo" ;;
    chronyc)
        takes 'makestep|tracking' || exit 64
        [ "$all" != makestep ] || echo 0 >"$CLOCK_SHIFT_FILE" ;;
    *) exit 64 ;;
esac
exit 0
