/* cgroup: quotas and memory limits of both versions, in trees made for the test. */
#include "harness.h"

#include "base/cgroup.h"

static char root[600], proc_file[640];

static void write_in(const char *dir, const char *name, const char *text)
{
    char path[1400];
    text_format(path, sizeof(path), "%s%s", root, dir);
    assert_int_equal(file_make_dirs(path), ST_OK);
    text_format(path, sizeof(path), "%s%s/%s", root, dir, name);
    assert_int_equal(file_replace(path, text, strlen(text)), ST_OK);
}

static void fresh(const char *proc_text)
{
    text_format(root, sizeof(root), "%s/sys", harness_tmpdir());
    text_format(proc_file, sizeof(proc_file), "%s/cgroup", harness_tmpdir());
    assert_int_equal(file_remove_tree(root), ST_OK);
    assert_int_equal(file_make_dirs(root), ST_OK);
    assert_int_equal(file_replace(proc_file, proc_text, strlen(proc_text)), ST_OK);
}

TEST(no_quota)
{
    fresh("0::/user.slice\n");
    assert_int_equal(cgroup_cpus(proc_file, root), 0);
    assert_int_equal(cgroup_cpus("/nonexistent/cgroup", root), 0);
    write_in("/user.slice", "cpu.max", "max 100000\n");
    assert_int_equal(cgroup_cpus(proc_file, root), 0);
}

TEST(v2_takes_the_tightest_on_the_way)
{
    fresh("0::/pod/box\n");
    write_in("/pod/box", "cpu.max", "250000 100000\n");
    assert_int_equal(cgroup_cpus(proc_file, root), 3); /* 2.5 rounded up */
    write_in("/pod", "cpu.max", "150000 100000\n");
    assert_int_equal(cgroup_cpus(proc_file, root), 2);
    write_in("", "cpu.max", "10000 100000\n");
    assert_int_equal(cgroup_cpus(proc_file, root), 1);
}

/* A container: the path is the host's, the files are at the root. */
TEST(v2_in_a_namespace)
{
    fresh("0::/kubepods/pod1/c1\n");
    write_in("", "cpu.max", "400000 100000\n");
    assert_int_equal(cgroup_cpus(proc_file, root), 4);
}

TEST(v1)
{
    fresh("11:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n1:name=systemd:/y\n0::/\n");
    write_in("/cpu/docker/x", "cpu.cfs_quota_us", "-1\n");
    write_in("/cpu/docker/x", "cpu.cfs_period_us", "100000\n");
    assert_int_equal(cgroup_cpus(proc_file, root), 0);
    write_in("/cpu/docker/x", "cpu.cfs_quota_us", "200001\n");
    assert_int_equal(cgroup_cpus(proc_file, root), 3);
    write_in("/cpu", "cpu.cfs_quota_us", "50000\n");
    write_in("/cpu", "cpu.cfs_period_us", "100000\n");
    assert_int_equal(cgroup_cpus(proc_file, root), 1);
}

TEST(nonsense_is_no_quota)
{
    static const char *const texts[] = {"",
                                        "\n",
                                        "max\n",
                                        "x y\n",
                                        "-5 100000\n",
                                        "0 100000\n",
                                        "100000 0\n",
                                        "100000\n",
                                        "99999999999999999999 1\n",
                                        "9000000000000000000 1\n"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        fresh("0::/a\nno colons\n:\n::\n5:cpu\n");
        write_in("/a", "cpu.max", texts[i]);
        assert_int_equal(cgroup_cpus(proc_file, root), 0);
    }
}

TEST(memory_v2)
{
    fresh("0::/pod/box\n");
    assert_int_equal(cgroup_memory_free(proc_file, root), -1);
    write_in("/pod/box", "memory.max", "max\n");
    write_in("/pod/box", "memory.current", "500\n");
    assert_int_equal(cgroup_memory_free(proc_file, root), -1);
    write_in("/pod", "memory.max", "10000\n");
    write_in("/pod", "memory.current", "9000\n");
    assert_int_equal(cgroup_memory_free(proc_file, root), 1000);
    write_in("/pod", "memory.stat", "anon 5\nfile 700\ninactive_file 300\nactive_file 400\n");
    assert_int_equal(cgroup_memory_free(proc_file, root), 1700);
    write_in("/pod/box", "memory.max", "400\n"); /* less than it holds */
    assert_int_equal(cgroup_memory_limit(proc_file, root), 400);
    assert_int_equal(cgroup_memory_free(proc_file, root), 0);
    write_in("/pod/box", "memory.max", "99999999999999999999\n");
    assert_int_equal(cgroup_memory_free(proc_file, root), 1700);
    assert_int_equal(cgroup_memory_limit(proc_file, root), 10000);
}

TEST(memory_v1)
{
    fresh("11:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n");
    write_in("/memory/docker/x", "memory.limit_in_bytes", "9223372036854771712\n");
    write_in("/memory/docker/x", "memory.usage_in_bytes", "500\n");
    assert_int_equal(cgroup_memory_free(proc_file, root), -1);
    assert_int_equal(cgroup_memory_limit(proc_file, root), -1);
    write_in("/memory/docker/x", "memory.limit_in_bytes", "4000\n");
    assert_int_equal(cgroup_memory_limit(proc_file, root), 4000);
    write_in("/memory/docker/x", "memory.stat", "inactive_file 7\ntotal_inactive_file 100\n");
    assert_int_equal(cgroup_memory_free(proc_file, root), 3600);
    write_in("/memory/docker/x", "memory.stat",
             "active_file 7\ntotal_inactive_file 100\ntotal_active_file 40\n");
    assert_int_equal(cgroup_memory_free(proc_file, root), 3640);
}

TEST(the_quota_is_not_rounded)
{
    fresh("0::/pod/box\n");
    assert_true(cgroup_quota(proc_file, root) == 0);
    write_in("/pod", "cpu.max", "250000 100000\n");
    assert_true(cgroup_quota(proc_file, root) == 2.5);
    write_in("/pod/box", "cpu.max", "40000 100000\n");
    assert_true(cgroup_quota(proc_file, root) == 0.4);
}

TEST(the_group_that_was_stopped_longest_counts)
{
    fresh("0::/pod/box\n");
    assert_int_equal(cgroup_stopped_us(proc_file, root), -1);
    write_in("/pod/box", "cpu.stat", "usage_usec 12\nnr_periods 4\n");
    assert_int_equal(cgroup_stopped_us(proc_file, root), -1);
    write_in("/pod/box", "cpu.stat", "nr_throttled 1\nthrottled_usec 700\nnr_bursts 0\n");
    assert_int_equal(cgroup_stopped_us(proc_file, root), 700);
    write_in("/pod", "cpu.stat", "throttled_usec 90000\n");
    assert_int_equal(cgroup_stopped_us(proc_file, root), 90000);
    write_in("/pod/box", "cpu.stat", "throttled_usec x\n");
    assert_int_equal(cgroup_stopped_us(proc_file, root), 90000);
    fresh("4:cpu,cpuacct:/docker/x\n"); /* v1 counts nanoseconds */
    write_in("/cpu/docker/x", "cpu.stat", "nr_periods 9\nnr_throttled 3\nthrottled_time 5000\n");
    assert_int_equal(cgroup_stopped_us(proc_file, root), 5);
}

HARNESS_RUN_ALL()
