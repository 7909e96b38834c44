/* check_gpu_amd — see host/static.h. The GPUs are the nodes of KFD, the part of the driver amdgpu
 * for computing, because HIP numbers GPUs in that order. Written from the documentation and source
 * of Linux; no AMD GPU has been read with it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "check/host/file.h"
#include "check/host/static.h"
#include "dev/amd/amd_sysfs.h"

#define NODES "/sys/class/kfd/kfd/topology/nodes"
#define DEVICES "/sys/bus/pci/devices"
#define VENDOR 0x1002
#define LINK_XGMI 11 /* type of an io_link, as in the HSA specification */
#define TEXT_BYTES 4096

/* Returns true for an accelerator of AMD: of the class "processing accelerator", or an MI200, whose
 * class may be "display controller". Graphics cards and graphics of processors are not counted,
 * because Convoy has no code for them. */
static bool is_accelerator(const char *root, const char *bus)
{
    char vendor[16], class[16], device[16];
    check_file_read(root, vendor, sizeof vendor, DEVICES "/%s/vendor", bus);
    check_file_read(root, class, sizeof class, DEVICES "/%s/class", bus);
    check_file_read(root, device, sizeof device, DEVICES "/%s/device", bus);
    return strcmp(vendor, "0x1002") == 0 &&
           (text_starts(class, "0x1200") || text_starts(device, "0x740"));
}

void check_gpu_amd_list(const char *root, struct check_file_names *out)
{
    struct check_file_names *all = memory_new(1, sizeof *all);
    check_file_list(root, all, DEVICES);
    out->n = 0;
    for (int i = 0; i < all->n; i++)
        if (is_accelerator(root, all->name[i]))
            text_copy(out->name[out->n++], sizeof out->name[0], all->name[i]);
    free(all);
}

/* Returns the number after `key`, such as "simd_count "; -1: there is none. */
static int64_t find_property(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    char word[24];
    int64_t value;
    text_format(word, sizeof word, "%.20s", at ? at + strlen(key) : "");
    word[strcspn(word, "\n")] = 0;
    return text_parse_i64(word, 0, INT64_MAX, &value) == TEXT_OK ? value : -1;
}

/* Returns the XGMI links of a node: to other GPUs, and on some machines to a processor. */
static int64_t count_links(const char *root, const char *node)
{
    struct check_file_names *links = memory_new(1, sizeof *links);
    char text[TEXT_BYTES];
    int64_t n = 0;
    check_file_list(root, links, NODES "/%s/io_links", node);
    for (int i = 0; i < links->n; i++) {
        check_file_read(root, text, sizeof text, NODES "/%s/io_links/%s/properties", node,
                        links->name[i]);
        n += find_property(text, "type ") == LINK_XGMI;
    }
    free(links);
    return n;
}

static int64_t round_or_unknown(double value)
{
    return value >= 0 && value < 1e15 ? llround(value) : -1;
}

static void read_gpu(const char *root, const char *bus, const char *node,
                     struct nvml_health_gpu *out)
{
    struct amd_sysfs_reading now;
    char device[16];
    *out = nvml_health_unknown();
    text_copy(out->bus, sizeof out->bus, bus);
    check_file_read(root, device, sizeof device, DEVICES "/%s/device", bus);
    if (strcmp(device, "0x74a1") == 0)
        text_copy(out->name, sizeof out->name, "AMD Instinct MI300X");
    amd_sysfs_read(root, bus, &now);
    out->ecc_corrected = now.gpu.ecc_corrected;
    out->ecc_uncorrected = now.gpu.ecc_uncorrected;
    out->ecc_default = out->ecc_enabled =
        check_file_is(root, DEVICES "/%s/ras/umc_err_count", bus) ? 1 : -1;
    out->temperature = round_or_unknown(now.gpu.temperature);
    out->throttle = now.hot > 0 ? NVML_THROTTLE_HW_THERMAL : now.hot;
    out->power_limit_mw = round_or_unknown(now.gpu.power_limit * 1e3);
    out->power_default_mw = round_or_unknown(now.power_default * 1e3);
    if (out->power_default_mw < 0)
        out->power_default_mw = out->power_limit_mw;
    out->nvlinks = out->nvlinks_active = count_links(root, node);
    out->nvlink_errors = now.link_errors;
}

/* Adds the GPU of a node of KFD, if it is one. A second node of the same GPU is a partition. The
 * kernel refuses to show the properties of a GPU that a control group withholds. */
static void add_node(const char *root, const char *node, struct nvml_health *out)
{
    char text[TEXT_BYTES], bus[24];
    struct nvml_health_gpu *gpu = &out->gpu[out->gpus_n];
    if (out->gpus_n == NVML_HEALTH_GPUS_MAX)
        return;
    if (!check_file_read(root, text, sizeof text, NODES "/%s/properties", node)) {
        *gpu = nvml_health_unknown();
        gpu->withheld = 1;
        text_copy(gpu->error, sizeof gpu->error, "KFD does not show its properties");
        out->gpus_n++;
        return;
    }
    unsigned at = (unsigned)find_property(text, "location_id ");
    int64_t domain = find_property(text, "domain ");
    if (find_property(text, "simd_count ") <= 0 || find_property(text, "vendor_id ") != VENDOR)
        return;
    text_format(bus, sizeof bus, "%04x:%02x:%02x.%x", domain > 0 ? (unsigned)domain & 0xffff : 0,
                at >> 8 & 0xff, at >> 3 & 0x1f, at & 7);
    /* The function may be the number of a partition. */
    if (!is_accelerator(root, bus))
        bus[strlen(bus) - 1] = '0';
    for (int i = 0; i < out->gpus_n; i++) {
        if (strcmp(out->gpu[i].bus, bus) != 0)
            continue;
        out->gpu[i].mig = 1;
        return;
    }
    if (is_accelerator(root, bus)) {
        read_gpu(root, bus, node, gpu);
        out->gpus_n++;
    }
}

enum status check_gpu_amd_read(const char *root, struct nvml_health *out)
{
    struct check_file_names *nodes = memory_new(1, sizeof *nodes);
    int n = 0;
    check_file_list(root, nodes, NODES);
    for (int i = 0; i < nodes->n; i++)
        add_node(root, nodes->name[i], out);
    free(nodes);
    for (int i = 0; i < out->gpus_n; i++)
        n += out->gpu[i].error[0] == 0;
    if (n > 0)
        return ST_OK;
    out->gpus_n = 0;
    return check_file_is(root, "/sys/module/amdgpu")
               ? FAIL(ST_NO_DEVICE, "KFD shows none to this process (" NODES ")")
               : FAIL(ST_NO_DEVICE, "the kernel's module amdgpu is not loaded");
}
