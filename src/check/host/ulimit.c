/* check_ulimit — the limits of this process that the shell, the container or Slurm has set. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "check/host/file.h"
#include "check/host/static.h"

#define REMEDY_BYTES 192
#define MEMLOCK_BYTES_MIN (16ll << 30) /* RDMA registers the buffers of all collectives */
#define FILES_MIN 1024
#define FILES_PER_RANK 4
#define PROCESSES_MIN 4096

struct limits {
    int64_t memlock, files, processes; /* INT64_MAX: unlimited; CHECK_FILE_NONE: unknown */
};

static void limit_line(void *arg, char *line)
{
    struct limits *limits = arg;
    const struct {
        const char *name;
        int64_t *out;
    } rows[] = {{"Max locked memory", &limits->memlock},
                {"Max open files", &limits->files},
                {"Max processes", &limits->processes}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *rest = line + strlen(rows[i].name);
        if (!text_starts(line, rows[i].name))
            continue;
        const char *word = check_file_word(&rest);
        if (word && strcmp(word, "unlimited") == 0)
            *rows[i].out = INT64_MAX;
        else if (word)
            (void)text_parse_i64(word, 0, INT64_MAX, rows[i].out);
    }
}

static const char *show_bytes(char *out, size_t cap, int64_t bytes)
{
    if (bytes == INT64_MAX)
        text_copy(out, cap, "unlimited");
    else
        text_format_bytes(out, cap, (double)bytes);
    return out;
}

/* Judges the limit of open files, which the program has raised to the hard limit. */
static void add_files(struct check_static *s, int64_t files)
{
    int64_t want = FILES_MIN + FILES_PER_RANK * (int64_t)s->config->place.ranks;
    char remedy[REMEDY_BYTES], docker[64];
    text_format(docker, sizeof docker, "docker run --ulimit nofile=65536");
    text_copy(remedy, sizeof remedy,
              check_static_flag(s, "ulimit -Hn 65536 # or LimitNOFILE=65536 of the service", docker,
                                "# in containerd.service of the node: LimitNOFILE=65536"));
    if (files == CHECK_FILE_NONE)
        return;
    check_static_add(s,
                     check_static_found(s, CHECK_POINT_HOST, "open files",
                                        files < want ? CHECK_VERDICT_WARN : CHECK_VERDICT_PASS,
                                        files == INT64_MAX ? "unlimited; %d ranks"
                                                           : "%2$lld files may be open; %1$d ranks",
                                        s->config->place.ranks, (long long)files),
                     "", files < want ? remedy : "");
}

static void add_processes(struct check_static *s, int64_t processes)
{
    int64_t group = check_file_number(s->root, "/sys/fs/cgroup/pids.max");
    if (group >= 0 && (processes == CHECK_FILE_NONE || group < processes))
        processes = group;
    bool is_bad = processes < PROCESSES_MIN;
    if (processes == CHECK_FILE_NONE)
        return;
    check_static_add(
        s,
        check_static_found(
            s, CHECK_POINT_HOST, "processes", is_bad ? CHECK_VERDICT_WARN : CHECK_VERDICT_PASS,
            processes == INT64_MAX ? "no limit%.0lld" : "%lld processes and threads may run",
            (long long)processes),
        "",
        is_bad ? check_static_flag(s, "ulimit -u 65536", "docker run --pids-limit=-1",
                                   "podPidsLimit: 65536 # of the kubelet")
               : "");
}

void check_ulimit_rows(struct check_static *s)
{
    struct limits limits = {CHECK_FILE_NONE, CHECK_FILE_NONE, CHECK_FILE_NONE};
    check_file_lines(s->root, "/proc/self/limits", 1 << 16, limit_line, &limits);
    /* This limit applies only to memory that is registered with an RDMA device. */
    const int64_t bytes = limits.memlock;
    char text[24];
    bool is_bad = s->has_rdma && !s->is_locked_free && bytes < MEMLOCK_BYTES_MIN;
    const char *remedy =
        s->is_slurm && s->container == CHECK_CONTAINER_NONE
            ? "# in slurmd.service: LimitMEMLOCK=infinity; in slurm.conf: "
              "PropagateResourceLimitsExcept=MEMLOCK"
            : check_static_flag(s, "ulimit -l unlimited", "docker run --ulimit memlock=-1",
                                "securityContext: {capabilities: {add: [IPC_LOCK]}}");
    if (bytes != CHECK_FILE_NONE)
        check_static_add(s,
                         check_static_found(s, CHECK_POINT_HOST, "memlock",
                                            is_bad ? CHECK_VERDICT_FAIL : CHECK_VERDICT_PASS,
                                            "%s may be locked%s",
                                            show_bytes(text, sizeof text, bytes),
                                            is_bad              ? "; RDMA needs it without a limit"
                                            : !s->has_rdma      ? "; only RDMA needs more"
                                            : s->is_locked_free ? "; CAP_IPC_LOCK lifts the limit"
                                                                : ""),
                         "", is_bad ? remedy : "");
    add_files(s, limits.files);
    add_processes(s, limits.processes);
}
