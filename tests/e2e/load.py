"""load — how busy this machine is: limits of time in tests grow with it, as by lib.sh and harness.h."""
import os

busiest = 1


def ticks():
    """Of all processors since the machine began, in 1/100 s: busy, and of these stolen, which a virtual machine's host gave to others."""
    try:
        with open("/proc/stat", encoding="ascii") as f:
            user, nice, system, _, _, irq, softirq, stolen = map(int, f.readline().split()[1:9])
    except (OSError, ValueError):
        return 0, 0
    return user + nice + system + irq + softirq + stolen, stolen


first_busy, first_stolen = ticks()


def own():
    """Which share of the time that processes wanted since the program began was not stolen: 0.1 to 1."""
    busy, stolen = ticks()
    busy, stolen = busy - first_busy, stolen - first_stolen
    return 1 if busy < 100 else max(0.1, 1 - stolen / busy)


def slow():
    """How many processes want each processor, at least 1, and more where a host takes processors away; the most seen so far."""
    global busiest
    with open("/proc/loadavg", encoding="ascii") as f:
        minute, _, _, now, _ = f.read().split()
    wanted = max(float(minute), int(now.split("/")[0])) / len(os.sched_getaffinity(0))
    busiest = max(busiest, max(1, wanted) / own())
    return busiest
