/* check_nvlink — the NVLink or XGMI connections of a node's GPUs, compared with one another, and
 * the fabric manager if there are NVSwitches. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "check/host/file.h"
#include "check/host/static.h"

#define REMEDY_BYTES 192
#define FABRIC_DONE 3
#define NVLINK_ERRORS_MAX 1000 /* replays and CRC errors that were corrected by retransmission */

/* Returns the links of chips whose boards connect all links. A rented share of such a board may
 * have fewer links, and a single GPU none. */
static int64_t links_of(const char *name)
{
    static const struct {
        const char *prefix;
        int64_t links;
    } boards[] = {{"NVIDIA A100-SXM", 12},
                  {"NVIDIA H100 80GB HBM3", 18},
                  {"NVIDIA H200", 18},
                  {"NVIDIA B200", 18},
                  {"AMD Instinct MI300X", 7}};
    for (size_t i = 0; i < sizeof boards / sizeof *boards; i++)
        if (text_starts(name, boards[i].prefix) && !strstr(name, "NVL"))
            return boards[i].links;
    return 0;
}

static const char *link_kind(const struct check_static *s) { return s->is_amd ? "XGMI" : "NVLink"; }

#define LINK_ROW(s) ((s)->is_amd ? "xgmi" : "nvlink")

static void bad_link(struct check_static *s, int i, enum check_verdict verdict, const char *why)
{
    char subject[64], remedy[REMEDY_BYTES], drain[REMEDY_BYTES], reset[64];
    text_format(subject, sizeof subject, "GPU %d, %s", i, s->gpus.gpu[i].bus);
    text_format(remedy, sizeof remedy, "%s # if it stays: %s",
                check_static_reset(s, i, reset, sizeof reset),
                check_static_drain(s, drain, sizeof drain, link_kind(s)));
    check_static_add(s,
                     check_static_found(s, CHECK_POINT_TOPOLOGY, LINK_ROW(s), verdict, "%s", why),
                     subject, remedy);
}

/* Judges the number of links. On a board all GPUs have all links. Some cards have a bridge and
 * others none, so only one end of a bridge is an error. A GPU in instances (MIG) uses no link. */
static enum check_verdict judge_count(const struct nvml_health_gpu *gpu, int64_t most, int64_t want)
{
    int64_t active = gpu->nvlinks_active;
    bool is_board = links_of(gpu->name) > 0;
    if (active < 0 || active >= want || gpu->mig == 1 || (active == 0 && !is_board))
        return CHECK_VERDICT_PASS;
    return is_board && most > active ? CHECK_VERDICT_FAIL : CHECK_VERDICT_WARN;
}

/* Judges the links of a GPU. Returns true if it added the GPU's row. */
static bool judge_links(struct check_static *s, int i, int64_t most)
{
    const struct nvml_health_gpu *gpu = &s->gpus.gpu[i];
    int64_t board = s->gpus.gpus_n > 1 ? links_of(gpu->name) : 0;
    int64_t want = most > board ? most : board;
    enum check_verdict verdict = judge_count(gpu, most, want);
    char why[256];
    if (gpu->error[0])
        return false;
    if (verdict != CHECK_VERDICT_PASS) {
        text_format(why, sizeof why, "%lld of %lld %s connections are up%s",
                    (long long)gpu->nvlinks_active, (long long)want, link_kind(s),
                    most > gpu->nvlinks_active ? "; another GPU of this node has more" : "");
        bad_link(s, i, verdict, why);
        return true;
    }
    if (gpu->nvlink_errors <= NVLINK_ERRORS_MAX)
        return false;
    text_format(why, sizeof why, "%lld errors on its %lld %s connections (limit %d)",
                (long long)gpu->nvlink_errors, (long long)gpu->nvlinks_active, link_kind(s),
                NVLINK_ERRORS_MAX);
    bad_link(s, i, CHECK_VERDICT_WARN, why);
    return true;
}

/* ---- NVSwitch ---- */

static bool is_manager(const struct check_static *s)
{
    char name[32];
    int64_t pid = check_file_number(s->root, "/run/nvidia-fabricmanager/nv-fabricmanager.pid");
    return pid > 0 &&
           check_file_read(s->root, name, sizeof name, "/proc/%lld/comm", (long long)pid) &&
           text_starts(name, "nv-fabricmanage"); /* the kernel cuts names after 15 bytes */
}

static int count_switches(const struct check_static *s)
{
    struct check_file_names *found = memory_new(1, sizeof *found);
    int n = 0;
    check_file_list_with(s->root, "nvidia-nvswitch", found, "/dev");
    for (int i = 0; i < found->n; i++)
        n += isdigit((unsigned char)found->name[i][strlen("nvidia-nvswitch")]) != 0;
    free(found);
    return n;
}

/* Returns the number of the first GPU that did not join the fabric; -1: all have joined, or none
 * reports it. */
static int fabric_missing(const struct check_static *s, bool *is_known)
{
    *is_known = false;
    for (int i = 0; i < s->gpus.gpus_n; i++) {
        const struct nvml_health_gpu *gpu = &s->gpus.gpu[i];
        *is_known = *is_known || gpu->fabric_state > 0;
        if (gpu->mig != 1 && gpu->fabric_state > 0 &&
            (gpu->fabric_state != FABRIC_DONE || gpu->fabric_error > 0))
            return i;
    }
    return -1;
}

static void add_fabric(struct check_static *s)
{
    bool is_known;
    int missing = fabric_missing(s, &is_known), n = count_switches(s);
    bool is_visible = s->container == CHECK_CONTAINER_NONE && n > 0;
    if (missing >= 0 || (!is_known && is_visible && !is_manager(s))) {
        char subject[64] = "";
        const char *remedy =
            check_static_flag(s, "systemctl enable --now nvidia-fabricmanager",
                              "systemctl enable --now nvidia-fabricmanager # on the host",
                              "systemctl enable --now nvidia-fabricmanager # on the host");
        if (missing >= 0)
            text_format(subject, sizeof subject, "GPU %d, %s", missing, s->gpus.gpu[missing].bus);
        check_static_add(
            s,
            check_static_found(
                s, CHECK_POINT_TOPOLOGY, "fabric manager", CHECK_VERDICT_FAIL,
                missing >= 0
                    ? "the GPU has not joined the NVLink fabric: state %d (3: done), error %d"
                    : "%d NVSwitches, but no nvidia-fabricmanager runs%.0d",
                missing >= 0 ? (int)s->gpus.gpu[missing].fabric_state : n,
                missing >= 0 ? (int)s->gpus.gpu[missing].fabric_error : 0),
            subject, remedy);
        return;
    }
    if (n == 0 && !is_known)
        return;
    check_static_add(
        s,
        check_static_found(s, CHECK_POINT_TOPOLOGY, "fabric manager",
                           is_known || is_visible ? CHECK_VERDICT_PASS : CHECK_VERDICT_SKIPPED,
                           is_known || is_visible
                               ? "the GPUs have joined the NVLink fabric"
                               : "a container does not see the host's processes, and "
                                 "this driver does not report the fabric"),
        "", "");
}

void check_nvlink_rows(struct check_static *s)
{
    if (s->gpus.gpus_n == 0)
        return;
    int64_t most = 0;
    for (int i = 0; i < s->gpus.gpus_n; i++)
        if (s->gpus.gpu[i].nvlinks_active > most && s->gpus.gpu[i].mig != 1)
            most = s->gpus.gpu[i].nvlinks_active;
    bool is_bad = false;
    for (int i = 0; i < s->gpus.gpus_n; i++)
        is_bad = judge_links(s, i, most) || is_bad;
    if (!is_bad)
        check_static_add(
            s,
            check_static_found(s, CHECK_POINT_TOPOLOGY, LINK_ROW(s),
                               most ? CHECK_VERDICT_PASS : CHECK_VERDICT_SKIPPED,
                               "%lld %s connections are up, at most, on each of %d GPUs",
                               (long long)most, link_kind(s), s->gpus.gpus_n),
            "", "");
    add_fabric(s);
}
