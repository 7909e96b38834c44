/* check_container — the restrictions of a container that no other check detects, and whether
 * Slurm's list of GPUs agrees with the node. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "check/host/file.h"
#include "check/host/static.h"
#include "check/report/text.h"

/* ---- the container ---- */

static bool has_hardware(const struct check_static *s)
{
    struct check_file_names *found = memory_new(1, sizeof *found);
    bool has = false;
    check_file_list(s->root, found, "/sys/class/net");
    for (int i = 0; i < found->n; i++)
        has = has || check_file_is(s->root, "/sys/class/net/%s/device", found->name[i]);
    free(found);
    return has;
}

/* ---- Slurm ---- */

struct gres {
    struct check_static *s;
    int files, missing;
    char first[64];
};

static void look_at(struct gres *g, const char *path)
{
    g->files++;
    if (check_file_is(g->s->root, "%s", path))
        return;
    if (g->missing++ == 0)
        text_copy(g->first, sizeof g->first, path);
}

/* Reads "/dev/nvidia[0-3,6]" or "/dev/nvidia0". */
static void read_files(struct gres *g, const char *value)
{
    char copy[256], path[300], *rest = copy, *range;
    int64_t first, last;
    text_copy(copy, sizeof copy, value);
    char *open = strchr(copy, '['), *close = open ? strchr(open, ']') : NULL;
    if (close == NULL) {
        look_at(g, copy);
        return;
    }
    *open = *close = 0;
    for (rest = open + 1; (range = strsep(&rest, ",")) != NULL;) {
        char *dash = strchr(range, '-');
        if (dash)
            *dash++ = 0;
        if (text_parse_i64(range, 0, 255, &first) != TEXT_OK ||
            text_parse_i64(dash ? dash : range, first, 255, &last) != TEXT_OK)
            return;
        for (; first <= last; first++) {
            text_format(path, sizeof path, "%s%lld%s", copy, (long long)first, close + 1);
            look_at(g, path);
        }
    }
}

/* Reads "NodeName=n1 Name=gpu Type=h100 File=/dev/nvidia[0-7]"; lines of other nodes are
 * ignored. */
static void gres_line(void *arg, char *line)
{
    struct gres *g = arg;
    char *rest = line, *word;
    const char *file = NULL;
    bool is_gpu = false, is_other = false;
    while ((word = check_file_word(&rest)) != NULL && word[0] != '#') {
        is_gpu = is_gpu || strcasecmp(word, "Name=gpu") == 0;
        if (strncasecmp(word, "NodeName=", 9) == 0)
            is_other = strcmp(word + 9, check_static_host(g->s)) != 0;
        if (strncasecmp(word, "File=", 5) == 0)
            file = word + 5;
    }
    if (!is_gpu || is_other)
        return;
    if (file)
        read_files(g, file);
}

/* Judges the GPU files that gres.conf lists. Returns true if it added the row. */
static bool judge_files(struct check_static *s, const struct gres *g)
{
    char remedy[192], host[CHECK_TEXT_WORD];
    if (g->missing == 0)
        return false;
    text_format(remedy, sizeof remedy,
                "scontrol reconfigure; scontrol show node %s # correct gres.conf first",
                check_text_word(host, sizeof host, check_static_host(s), "NODE"));
    check_static_add(s,
                     check_static_found(s, CHECK_POINT_GRES, "slurm gres", CHECK_VERDICT_FAIL,
                                        "gres.conf names %d GPU files, %d do not exist: %s",
                                        g->files, g->missing, g->first),
                     "", remedy);
    return true;
}

static int count_withheld(const struct check_static *s)
{
    int n = 0;
    for (int i = 0; i < s->gpus.gpus_n; i++)
        n += s->gpus.gpu[i].withheld == 1;
    return n;
}

/* Returns the verdict on the number of visible GPUs. A GPU that is withheld from this process may
 * belong to one of the job's other tasks. */
static enum check_verdict judge_seen(const struct check_static *s)
{
    int allotted = s->config->gpus_allotted, seen = check_static_gpus(s);
    if (seen >= allotted)
        return CHECK_VERDICT_PASS;
    return seen + count_withheld(s) >= allotted ? CHECK_VERDICT_WARN : CHECK_VERDICT_FAIL;
}

/* Judges the GPUs that Slurm allotted to this job. Without ConstrainDevices the job sees all GPUs
 * of the node. */
static bool judge_allotted(struct check_static *s)
{
    int allotted = s->config->gpus_allotted, seen = check_static_gpus(s);
    enum check_verdict verdict = judge_seen(s);
    char remedy[192];
    if (allotted == 0 || check_static_has_mig(s))
        return false;
    check_static_drain(s, remedy, sizeof remedy, "fewer GPUs than Slurm has allotted");
    check_static_add(s,
                     check_static_found(s, CHECK_POINT_GRES, "slurm gres", verdict,
                                        "Slurm has allotted %d GPUs of this node, %s reports %d",
                                        allotted, s->is_amd ? "KFD" : "NVML", seen),
                     "", verdict == CHECK_VERDICT_PASS ? "" : remedy);
    return true;
}

void check_container_rows(struct check_static *s)
{
    bool is_apart = s->container != CHECK_CONTAINER_NONE && s->has_rdma && !has_hardware(s);
    const char *kind = s->container == CHECK_CONTAINER_NONE     ? "no container"
                       : s->container == CHECK_CONTAINER_DOCKER ? "a Docker or podman container"
                                                                : "a Kubernetes pod";
    check_static_add(
        s,
        check_static_found(s, CHECK_POINT_LAUNCH, "container",
                           is_apart ? CHECK_VERDICT_WARN : CHECK_VERDICT_PASS, "%s%s", kind,
                           is_apart ? " with a network of its own: RDMA needs the host's" : ""),
        "",
        is_apart ? check_static_flag(s, "", "docker run --network host", "hostNetwork: true") : "");
    /* The GPUs that Slurm counts. */
    struct gres g = {.s = s};
    bool is_read = check_file_lines(s->root, "/etc/slurm/gres.conf", 1 << 20, gres_line, &g) ||
                   check_file_lines(s->root, "/etc/slurm-llnl/gres.conf", 1 << 20, gres_line, &g);
    if (!judge_files(s, &g) && !judge_allotted(s)) {
        if (g.files > 0)
            check_static_add(s,
                             check_static_found(s, CHECK_POINT_GRES, "slurm gres",
                                                CHECK_VERDICT_PASS,
                                                "all %d GPU files of gres.conf exist", g.files),
                             "", "");
        else
            check_static_add(s,
                             check_static_found(
                                 s, CHECK_POINT_GRES, "slurm gres", CHECK_VERDICT_SKIPPED, "%s",
                                 is_read ? "gres.conf names no GPU file of this node"
                                 : s->config->gpus_allotted > 0 && s->is_amd
                                     ? "Slurm counts partitions of GPUs, and KFD counts GPUs"
                                 : s->config->gpus_allotted > 0
                                     ? "Slurm counts instances of GPUs (MIG), and NVML counts GPUs"
                                 : s->is_slurm ? "a Slurm job, but no gres.conf here"
                                               : "no Slurm job, and no gres.conf"),
                             "", "");
    }
}
