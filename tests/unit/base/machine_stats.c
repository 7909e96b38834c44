/* machine_stats — load, memory, disks and network, from files made for the test. */
#include "harness.h"

#include <time.h>

#include "base/machine_stats.h"

static char proc[600], sys[600];
static struct machine_counters counters;
static struct machine_stats stats;

static void put(const char *root, const char *name, const char *text)
{
    char path[1400];
    text_format(path, sizeof(path), "%s/%s", root, name);
    char *slash = strrchr(path, '/');
    *slash = 0;
    assert_int_equal(file_make_dirs(path), ST_OK);
    *slash = '/';
    assert_int_equal(file_replace(path, text, strlen(text)), ST_OK);
}

static int fresh(void **state)
{
    text_format(proc, sizeof(proc), "%s/proc", harness_tmpdir());
    text_format(sys, sizeof(sys), "%s/sys", harness_tmpdir());
    memset(&counters, 0, sizeof(counters));
    return file_remove_tree(proc) == ST_OK && file_remove_tree(sys) == ST_OK ? 0 : -1;
}

static void look(int64_t now_ms) { machine_stats_read(&counters, proc, sys, now_ms, &stats); }

static void put_disks(long long read, long long written)
{
    char text[600];
    text_format(text, sizeof(text),
                "   8       0 sda 9 9 %lld 9 9 9 %lld 9 0 9 9 0 0 0 0 0 0\n"
                "   8       1 sda1 9 9 %lld 9 9 9 %lld 9 0 9 9\n"
                " 253       0 dm-0 9 9 %lld 9 9 9 %lld 9 0 9 9\n"
                " 259       0 nvme0n1 9 9 8 9 9 9 4 9 0 9 9\n",
                read, written, read, written, read, written);
    put(proc, "diskstats", text);
}

static void put_net(long long received, long long sent)
{
    char text[800];
    text_format(text, sizeof(text),
                "Inter-|   Receive          |  Transmit\n face |bytes    packets errs\n"
                "    lo: 999999 1 0 0 0 0 0 0 999999 1 0 0 0 0 0 0\n"
                "  eth0:%lld 1 0 0 0 0 0 0 %lld 1 0 0 0 0 0 0\n"
                "docker0: 50000 1 0 0 0 0 0 0 70000 1 0 0 0 0 0 0\n",
                received, sent);
    put(proc, "net/dev", text);
}

TEST_WITH(rates_are_changes_since_the_reading_before, fresh, NULL)
{
    put(proc, "stat", "cpu  100 0 100 700 100 0 0 0 50 0\ncpu0 1 2 3 4\n");
    put(proc, "meminfo",
        "MemTotal:  1000 kB\nMemFree:  1 kB\nMemAvailable:  250 kB\nBuffers: 3 kB\n");
    put(sys, "block/sda/device/x", "");
    put(sys, "block/nvme0n1/device/x", "");
    put(sys, "class/net/eth0/device/x", "");
    put_disks(1000, 2000);
    put_net(4000, 6000);
    look(1000);
    assert_true(isnan(stats.cpu_busy) && isnan(stats.disk_read) && isnan(stats.net_sent));
    assert_true(stats.memory_total == 1024000 && stats.memory_used == 768000);
    put(proc, "stat", "cpu  130 0 120 740 105 3 2 0 80 0\n"); /* 55 of 100 ticks */
    put_disks(1000 + 100, 2000 + 300);
    put_net(4000 + 5000, 6000 + 700);
    look(3000);
    assert_true(fabs(stats.cpu_busy - 0.55) < 1e-9);
    assert_true(stats.disk_read == 100 * 512 / 2.0 && stats.disk_written == 300 * 512 / 2.0);
    assert_true(stats.net_received == 2500 && stats.net_sent == 350);
}

TEST_WITH(without_hardware_every_interface_counts, fresh, NULL)
{
    put_net(100, 200);
    look(1000);
    put_net(1100, 1200);
    look(2000);
    assert_true(stats.net_received == 1000 && stats.net_sent == 1000);
    assert_true(isnan(stats.disk_read) && isnan(stats.cpu_busy) && stats.memory_total == -1);
}

TEST_WITH(what_goes_back_or_is_nonsense_is_not_known, fresh, NULL)
{
    look(1000); /* no file at all */
    put_net(5000, 5000);
    look(2000);
    put_net(10, 6000); /* an interface is gone */
    look(3000);
    assert_true(isnan(stats.net_received) && stats.net_sent == 1000);
    look(3000); /* no time has passed */
    assert_true(isnan(stats.net_received) && isnan(stats.net_sent));
    put(proc, "stat", "intr 1 2 3\n");
    put(proc, "meminfo", "MemTotal: x kB\nMemAvailable: 9999999999999999999999 kB\n");
    put(proc, "diskstats", "nonsense\n\n8 0 ../../etc 1 1 1 1 1 1 1 1 1 1 1\n");
    put(proc, "net/dev", "eth0 5\n:::\n");
    look(4000);
    look(5000);
    assert_true(isnan(stats.cpu_busy) && isnan(stats.disk_read) && isnan(stats.net_received) &&
                stats.memory_total == -1 && stats.memory_used == -1);
}

TEST_WITH(this_machine, fresh, NULL)
{
    machine_stats_read(&counters, "/proc", "/sys", 1000, &stats);
    const int64_t begin_ns = clock_thread_ns();
    for (int i = 1; i <= 20; i++) {
        clock_sleep_ms(10);
        machine_stats_read(&counters, "/proc", "/sys", 1000 + 10 * i, &stats);
    }
    print_message("# %.0f us of processor time for a reading\n",
                  (double)(clock_thread_ns() - begin_ns) / 20e3);
    assert_true(stats.memory_total > 1 << 20 && stats.memory_used > 0 &&
                stats.memory_used < stats.memory_total);
    assert_true(isnan(stats.cpu_busy) || (stats.cpu_busy >= 0 && stats.cpu_busy <= 1));
}

HARNESS_RUN_ALL()
