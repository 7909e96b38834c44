/* check_gpu — the GPUs of a node: the number found and expected, whether each worker has one, and
 * the health of each. A property has one row if all GPUs are healthy, else one row for each GPU
 * that is not. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "check/host/file.h"
#include "check/host/static.h"

#define WHY_BYTES 256
#define REMEDY_BYTES 192
#define K8S_GPUS(vendor, n) "resources: {limits: {" vendor ".com/gpu: " n "}}"
#define PERF_STATE_BUSY 2 /* P0 to P2: the GPU's links run at full speed */

/* ---- number ---- */

/* Numbers of GPUs in each source; for AMD's, KFD stands for NVML, and `files` is 0. A container
 * sees the whole PCI bus, but only its own GPUs in the other sources. */
struct seen {
    int driver, files, nvml, lost, withheld;
    char missing[64]; /* address or number of the first GPU that NVML lacks */
};

static bool nvml_has(const struct check_static *s, const char *bus)
{
    for (int i = 0; i < s->gpus.gpus_n; i++)
        if (strcmp(s->gpus.gpu[i].bus, bus) == 0 && s->gpus.gpu[i].error[0] == 0)
            return true;
    return false;
}

static void look_for(struct check_static *s, struct seen *seen)
{
    struct check_file_names *found = memory_new(1, sizeof *found);
    int64_t number;
    check_file_list_with(s->root, "nvidia", found, "/dev");
    for (int i = 0; i < found->n && !s->is_amd; i++)
        seen->files +=
            text_parse_i64(found->name[i] + strlen("nvidia"), 0, 4095, &number) == TEXT_OK;
    if (s->is_amd)
        check_gpu_amd_list(s->root, found);
    else
        check_file_list(s->root, found, "/proc/driver/nvidia/gpus");
    for (int i = 0; i < found->n; i++)
        seen->driver +=
            !s->is_amd || check_file_is(s->root, "/sys/bus/pci/devices/%s/drm", found->name[i]);
    for (int i = 0; i < s->gpus.gpus_n; i++) {
        const struct nvml_health_gpu *gpu = &s->gpus.gpu[i];
        bool is_withheld = gpu->withheld == 1, is_lost = gpu->error[0] && !is_withheld;
        seen->nvml += gpu->error[0] == 0;
        seen->withheld += is_withheld;
        seen->lost += is_lost;
        if (is_lost && seen->missing[0] == 0)
            text_format(seen->missing, sizeof seen->missing, "GPU %d (%s)", i, gpu->error);
    }
    /* The address is more useful than NVML's reason. If GPUs are withheld, the missing one is
     * unknown, because it may be among them. */
    for (int i = found->n - 1; i >= 0 && seen->withheld == 0; i--)
        if (!nvml_has(s, found->name[i]))
            text_copy(seen->missing, sizeof seen->missing, found->name[i]);
    free(found);
}

static int max_of(int a, int b) { return a > b ? a : b; }

/* Returns the expected number of GPUs. Without a number from the user it is the number of GPUs that
 * the driver has, and on a machine the number on the PCI bus. A container may see the driver's list
 * of the whole node. In a Slurm job the driver and /dev may list more GPUs than the job was
 * allotted; the row "slurm gres" compares with that number. */
static int count_expected_gpus(const struct check_static *s, const struct seen *seen)
{
    bool is_apart = s->container != CHECK_CONTAINER_NONE;
    int reported = seen->nvml + seen->lost;
    if (s->config->gpus_expected >= 0)
        return s->config->gpus_expected;
    if (s->config->gpus_allotted > 0)
        return reported;
    int driver = is_apart ? 0 : max_of(seen->driver, s->gpus_pci);
    return max_of(max_of(driver, seen->files) - seen->withheld, reported);
}

static const char *docker_flags(const struct check_static *s)
{
    return s->is_amd ? "docker run --device /dev/kfd --device /dev/dri" : "docker run --gpus all";
}

static void too_few(struct check_static *s, const struct seen *seen, int want)
{
    char remedy[REMEDY_BYTES];
    char drain[REMEDY_BYTES], files[40] = "";
    if (!s->is_amd)
        text_format(files, sizeof files, ", /dev/nvidia* are %d", seen->files);
    bool is_withheld =
        s->container != CHECK_CONTAINER_NONE && s->gpus_pci > seen->nvml && seen->missing[0] == 0;
    if (is_withheld)
        text_copy(remedy, REMEDY_BYTES,
                  check_static_flag(s, "", docker_flags(s),
                                    s->is_amd ? K8S_GPUS("amd", "<all of the node>")
                                              : K8S_GPUS("nvidia", "<all of the node>")));
    else
        text_format(remedy, REMEDY_BYTES, "systemctl reboot # if it stays: %s",
                    check_static_drain(s, drain, sizeof drain, "a GPU is missing"));
    check_static_add(
        s,
        check_static_found(
            s, CHECK_POINT_GPUS, "gpus", CHECK_VERDICT_FAIL,
            "%d of %d GPUs: %s reports %d, the driver has %d%s, the PCI bus has %d%s%s", seen->nvml,
            want, s->is_amd ? "KFD" : "NVML", seen->nvml, seen->driver, files, s->gpus_pci,
            seen->missing[0] ? "; missing: " : "", seen->missing),
        "", remedy);
}

/* ---- without NVML ---- */

static void no_driver(struct check_static *s)
{
    const char *module = s->is_amd ? "amdgpu" : "nvidia";
    char load[32];
    bool is_loaded = check_file_is(s->root, "/sys/module/%s", module);
    bool is_needed = s->config->gpus_expected > 0 ||
                     (is_loaded && s->gpus_pci > 0 && s->container == CHECK_CONTAINER_NONE);
    text_format(load, sizeof load, "modprobe %s", module);
    const char *remedy =
        check_static_flag(s, is_loaded ? "systemctl reboot" : load, docker_flags(s),
                          s->is_amd ? K8S_GPUS("amd", "1") : K8S_GPUS("nvidia", "1"));
    if (s->gpus_pci == 0 && !is_needed)
        check_static_add(s,
                         check_static_found(s, CHECK_POINT_GPUS, "gpus", CHECK_VERDICT_SKIPPED,
                                            "no NVIDIA GPU and no AMD accelerator on the PCI bus"),
                         "", "");
    else
        check_static_add(s,
                         check_static_found(s, CHECK_POINT_GPUS, "gpus",
                                            is_needed ? CHECK_VERDICT_FAIL : CHECK_VERDICT_WARN,
                                            "0 of %d GPUs: the PCI bus has %d, but %s",
                                            s->config->gpus_expected > 0 ? s->config->gpus_expected
                                                                         : s->gpus_pci,
                                            s->gpus_pci, s->nvml_reason),
                         "", remedy);
}

static void count_gpus(struct check_static *s)
{
    struct seen seen = {0};
    if (s->is_nvml_stuck) {
        char remedy[REMEDY_BYTES], drain[REMEDY_BYTES];
        text_format(remedy, sizeof remedy, "systemctl reboot # if it stays: %s",
                    check_static_drain(s, drain, sizeof drain, "the GPU driver hangs"));
        check_static_add(s,
                         check_static_found(s, CHECK_POINT_GPUS, "gpus", CHECK_VERDICT_FAIL,
                                            "the driver of the GPUs hangs: %s", s->nvml_reason),
                         "", remedy);
        return;
    }
    if (!s->has_nvml) {
        no_driver(s);
        return;
    }
    look_for(s, &seen);
    int want = count_expected_gpus(s, &seen);
    if (seen.nvml < want)
        too_few(s, &seen, want);
    else {
        /* A number from the user is reliable; otherwise other nodes of the job may have more. */
        char drain[REMEDY_BYTES];
        if (s->config->gpus_expected >= 0)
            check_static_add(s,
                             check_static_found(s, CHECK_POINT_GPUS, "gpus", CHECK_VERDICT_PASS,
                                                "%d GPUs, %d expected", seen.nvml,
                                                s->config->gpus_expected),
                             "", "");
        else
            check_static_measured(
                s,
                check_static_found(s, CHECK_POINT_GPUS, "gpus", CHECK_VERDICT_MEASURED,
                                   "driver and %s agree; GPUS_EXPECTED is not set",
                                   s->is_amd ? "KFD" : "device files"),
                seen.nvml, "", "",
                check_static_drain(s, drain, sizeof drain, "fewer GPUs than peers"));
    }
}

/* ---- health of each GPU ---- */

/* A finding about one GPU. PASS: it is healthy; SKIPPED: it does not report this property. */
struct finding {
    enum check_verdict verdict;
    char why[WHY_BYTES], remedy[REMEDY_BYTES];
};

/* Returns the verdict for a serious problem: on a desktop the user decides; a server's GPU is there
 * to compute. */
static enum check_verdict judge_serious_problem(const struct check_static *s,
                                                const struct nvml_health_gpu *gpu)
{
    return s->is_server && gpu->display != 1 ? CHECK_VERDICT_FAIL : CHECK_VERDICT_WARN;
}

static void find_ecc(const struct check_static *s, int i, struct finding *f)
{
    const struct nvml_health_gpu *gpu = &s->gpus.gpu[i];
    if (gpu->ecc_uncorrected > 0) {
        f->verdict = CHECK_VERDICT_FAIL;
        text_format(f->why, WHY_BYTES,
                    "%lld uncorrected memory errors since the driver was loaded (%lld corrected)",
                    (long long)gpu->ecc_uncorrected, (long long)gpu->ecc_corrected);
        check_static_reset(s, i, f->remedy, REMEDY_BYTES);
    } else if (gpu->ecc_default == 1 && gpu->ecc_enabled == 0) {
        f->verdict = CHECK_VERDICT_WARN;
        text_format(f->why, WHY_BYTES, "ECC is off, but on by default: errors stay undetected");
        text_format(f->remedy, REMEDY_BYTES, "nvidia-smi -i %d -e 1 && reboot", i);
    } else if (gpu->ecc_enabled < 0 && gpu->ecc_uncorrected < 0) {
        f->verdict = CHECK_VERDICT_SKIPPED;
    }
}

static void find_rows(const struct check_static *s, int i, struct finding *f)
{
    const struct nvml_health_gpu *gpu = &s->gpus.gpu[i];
    char drain[REMEDY_BYTES];
    if (gpu->remap_failed > 0) {
        f->verdict = CHECK_VERDICT_FAIL;
        text_format(f->why, WHY_BYTES,
                    "a row of memory could not be replaced: no spare row is left (%lld replaced)",
                    (long long)(gpu->remapped_uncorrected + gpu->remapped_corrected));
        check_static_drain(s, drain, sizeof drain, "GPU has no spare memory rows");
        text_copy(f->remedy, REMEDY_BYTES, drain);
    } else if (gpu->remap_pending > 0) {
        f->verdict = CHECK_VERDICT_FAIL;
        text_format(f->why, WHY_BYTES,
                    "a row of memory waits to be replaced: %lld uncorrected, %lld corrected so far",
                    (long long)gpu->remapped_uncorrected, (long long)gpu->remapped_corrected);
        check_static_reset(s, i, f->remedy, REMEDY_BYTES);
    } else if (gpu->remap_failed < 0) {
        f->verdict = CHECK_VERDICT_SKIPPED;
    }
}

/* Judges the PCIe link. An idle GPU lowers the generation of its link, never its width. */
static void find_pcie(const struct check_static *s, int i, struct finding *f)
{
    const struct nvml_health_gpu *gpu = &s->gpus.gpu[i];
    char drain[REMEDY_BYTES];
    bool is_awake = gpu->perf_state >= 0 && gpu->perf_state <= PERF_STATE_BUSY;
    bool is_narrow = gpu->pcie_width > 0 && gpu->pcie_width < gpu->pcie_width_max;
    bool is_slow = is_awake && gpu->pcie_gen > 0 && gpu->pcie_gen < gpu->pcie_gen_max;
    if (gpu->pcie_width <= 0 || gpu->pcie_width_max <= 0)
        f->verdict = CHECK_VERDICT_SKIPPED;
    if (!is_narrow && !is_slow)
        return;
    f->verdict = judge_serious_problem(s, gpu);
    text_format(f->why, WHY_BYTES,
                "PCIe generation %lld x%lld instead of generation %lld x%lld (state P%lld)",
                (long long)gpu->pcie_gen, (long long)gpu->pcie_width, (long long)gpu->pcie_gen_max,
                (long long)gpu->pcie_width_max, (long long)gpu->perf_state);
    text_format(f->remedy, REMEDY_BYTES, "%s # if it stays: %s",
                s->is_server ? "ipmitool chassis power cycle"
                             : "systemctl poweroff # seat the card",
                check_static_drain(s, drain, sizeof drain, "PCIe link of a GPU"));
}

static const char *throttle_reason(int64_t bits)
{
    return bits & NVML_THROTTLE_HW_THERMAL ? "clocks are held down: hardware slowdown: too hot"
           : bits & NVML_THROTTLE_POWER_BRAKE
               ? "clocks are held down: power brake: the power supply requests less power"
           : bits & NVML_THROTTLE_HW_SLOWDOWN ? "clocks are held down: hardware slowdown"
                                              : "clocks are held down: software slowdown: too hot";
}

static void find_throttle(const struct check_static *s, int i, struct finding *f)
{
    const struct nvml_health_gpu *gpu = &s->gpus.gpu[i];
    const int64_t hard =
        NVML_THROTTLE_HW_THERMAL | NVML_THROTTLE_POWER_BRAKE | NVML_THROTTLE_HW_SLOWDOWN;
    if (gpu->throttle < 0)
        f->verdict = CHECK_VERDICT_SKIPPED;
    if (gpu->throttle < 0 || (gpu->throttle & (hard | NVML_THROTTLE_SW_THERMAL)) == 0)
        return;
    f->verdict = gpu->throttle & hard ? judge_serious_problem(s, gpu) : CHECK_VERDICT_WARN;
    text_format(f->why, WHY_BYTES, "%s (reasons 0x%llx, %lld degrees)",
                s->is_amd ? "a sensor is at its critical temperature"
                          : throttle_reason(gpu->throttle),
                (unsigned long long)gpu->throttle, (long long)gpu->temperature);
    text_copy(f->remedy, REMEDY_BYTES,
              gpu->throttle & NVML_THROTTLE_POWER_BRAKE
                  ? "ipmitool sdr type \"Power Supply\" # replace the failed one"
                  : "ipmitool sdr type Fan # clean filters, replace failed fans");
}

static void find_persistence(const struct check_static *s, int i, struct finding *f)
{
    const struct nvml_health_gpu *gpu = &s->gpus.gpu[i];
    if (gpu->persistence < 0)
        f->verdict = CHECK_VERDICT_SKIPPED;
    if (gpu->persistence != 0 || !s->is_server || gpu->display == 1)
        return;
    f->verdict = CHECK_VERDICT_WARN;
    text_format(f->why, WHY_BYTES,
                "persistence mode is off: each start of a job initialises the GPU anew");
    text_format(f->remedy, REMEDY_BYTES, "nvidia-smi -i %d -pm 1", i);
}

/* A property, and the text of its row if all GPUs are healthy. */
struct concern {
    const char *name, *good;
    void (*find)(const struct check_static *s, int i, struct finding *f);
};

static void add_concern(struct check_static *s, const struct concern *concern)
{
    int known = 0, bad = 0;
    for (int i = 0; i < s->gpus.gpus_n; i++) {
        struct finding f = {.verdict = CHECK_VERDICT_PASS};
        char subject[64];
        if (s->gpus.gpu[i].error[0])
            continue;
        concern->find(s, i, &f);
        known += f.verdict != CHECK_VERDICT_SKIPPED;
        if (f.verdict == CHECK_VERDICT_PASS || f.verdict == CHECK_VERDICT_SKIPPED)
            continue;
        bad++;
        text_format(subject, sizeof subject, "GPU %d, %s", i, s->gpus.gpu[i].bus);
        struct check_row row =
            check_static_found(s, CHECK_POINT_GPUS, concern->name, f.verdict, "%s", f.why);
        check_static_add(s, row, subject, f.remedy);
    }
    if (bad > 0)
        return;
    check_static_add(s,
                     check_static_found(s, CHECK_POINT_GPUS, concern->name,
                                        known ? CHECK_VERDICT_PASS : CHECK_VERDICT_SKIPPED,
                                        known ? "%d GPUs: %s" : "%d GPUs do not report it%.0s",
                                        known ? known : s->gpus.gpus_n, concern->good),
                     "", "");
}

/* Adds one number for the node: the power limit of the GPU with the lowest one. */
static void add_power(struct check_static *s)
{
    int64_t least = -1;
    int at = 0;
    char subject[64], remedy[REMEDY_BYTES];
    for (int i = 0; i < s->gpus.gpus_n; i++) {
        int64_t limit = s->gpus.gpu[i].power_limit_mw;
        if (limit <= 0 || (least >= 0 && limit >= least))
            continue;
        least = limit;
        at = i;
    }
    if (least < 0)
        return;
    text_format(subject, sizeof subject, "GPU %d, %s", at, s->gpus.gpu[at].bus);
    if (s->is_amd)
        text_format(remedy, sizeof remedy, "amd-smi set -g %s --power-cap %lld",
                    s->gpus.gpu[at].bus, (long long)s->gpus.gpu[at].power_default_mw / 1000);
    else
        text_format(remedy, sizeof remedy, "nvidia-smi -i %d -pl %lld", at,
                    (long long)s->gpus.gpu[at].power_default_mw / 1000);
    check_static_measured(
        s,
        check_static_found(s, CHECK_POINT_GPUS, "gpu power limit", CHECK_VERDICT_MEASURED,
                           "the lowest of %d GPUs; %lld W by default", s->gpus.gpus_n,
                           (long long)s->gpus.gpu[at].power_default_mw / 1000),
        (double)least * 1e-3, "W", subject, remedy);
}

void check_gpu_rows(struct check_static *s)
{
    static const struct concern concerns[] = {
        {"gpu ecc", "no uncorrected memory error", find_ecc},
        {"gpu remapped rows", "no row waits, spare rows are left", find_rows},
        {"gpu pcie", "full width, and generation where they are awake", find_pcie},
        {"gpu throttle", "clocks are not held down", find_throttle},
        {"gpu persistence", "on, or not needed", find_persistence},
    };
    static const struct concern amd[] = {
        {"gpu ecc", "no uncorrected memory error", find_ecc},
        {"gpu throttle", "no sensor is at its critical temperature", find_throttle},
    };
    const struct concern *list = s->is_amd ? amd : concerns;
    const size_t list_n = s->is_amd ? sizeof amd / sizeof *amd : sizeof concerns / sizeof *concerns;
    count_gpus(s);
    int used = s->config->gpus_used, workers = s->config->place.locals;
    int gpus = check_static_gpus(s);
    /* Workers may use GPUs that are not counted here, such as an emulation's. */
    bool is_unlike = used > 0 && gpus > 0 && used != gpus && !check_static_has_mig(s);
    enum check_verdict verdict = is_unlike ? CHECK_VERDICT_WARN : CHECK_VERDICT_PASS;
    char remedy[REMEDY_BYTES] = "";
    if (verdict == CHECK_VERDICT_WARN)
        text_format(remedy, sizeof remedy, "N_GPU_EACH_NODE=%d", gpus);
    check_static_add(s,
                     check_static_found(s, CHECK_POINT_WORKERS, "workers", verdict,
                                        "%d workers, %d of them with a GPU; the node has %d GPUs",
                                        workers, used, gpus),
                     "", remedy);
    for (size_t i = 0; s->gpus.gpus_n > 0 && i < list_n; i++)
        add_concern(s, &list[i]);
    add_power(s);
}
