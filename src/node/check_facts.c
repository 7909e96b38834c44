/* check_facts — see check_facts.h. */
#include "node/check_facts.h"

#include <string.h>

#include <ucp/api/ucp.h>

#include "base/isa.h"
#include "base/log.h"
#include "base/text.h"
#include "base/version.h"
#include "comm/nccl/nccl_lib.h"
#include "dev/dev_cuda.h"
#include "dev/nvidia_driver.h"
#include "node/check_data.h"
#include "node/config_map.h"

static const char same_program[] = "install one release on all nodes";
static const char same_settings[] = "give all nodes the same settings; `convoy config` shows a "
                                    "node's";
static const char same_libraries[] = "install one image, or one set of packages, on all nodes; "
                                     "`convoy version gpu` shows a node's";

static void add(struct check_facts *facts, struct check_fact fact)
{
    if (facts->n < CHECK_FACTS_MAX)
        facts->fact[facts->n++] = fact;
}

/* keep — a copy of a value, for a fact. */
static const char *keep(struct check_facts *facts, const char *value)
{
    char *room = facts->values[facts->values_n++ % 16];
    text_copy(room, sizeof facts->values[0], value);
    return room;
}

static void add_version(struct check_facts *facts)
{
    char text[128];
    text_format(text, sizeof text, "%s %s", version_text(), version_commit());
    add(facts, (struct check_fact){.group = "version",
                                   .point = CHECK_POINT_LAUNCH,
                                   .name = "convoy",
                                   .value = keep(facts, text),
                                   .remedy = same_program});
    add(facts, (struct check_fact){.group = "version",
                                   .point = CHECK_POINT_LAUNCH,
                                   .name = "compiler",
                                   .value = version_compiler(),
                                   .remedy = same_program});
}

/* read_settings — what must agree before a run, as JSON; NULL: memory is short. */
static cJSON *read_settings(const struct conf *conf)
{
    struct text text = {0};
    if (config_map_agreement(conf, &text) != ST_OK) {
        LOG_WARN("MODEL is not compared: %s", status_message());
        status_clear();
        text_free(&text);
        text_add(&text, "{");
        conf_write_agree(conf, &text);
        text_add(&text, "\"device\":\"\"}");
    }
    cJSON *settings = text.data ? cJSON_Parse(text.data) : NULL;
    text_free(&text);
    return settings;
}

static void add_settings(struct check_facts *facts, const struct conf *conf)
{
    facts->settings = read_settings(conf);
    for (const cJSON *at = facts->settings ? facts->settings->child : NULL; at; at = at->next)
        if (cJSON_IsString(at) && strcmp(at->string, "version") != 0)
            add(facts, (struct check_fact){.group = "settings",
                                           .point = CHECK_POINT_LAUNCH,
                                           .name = at->string,
                                           .value = at->valuestring,
                                           .remedy = same_settings});
}

static void add_library(struct check_facts *facts, const char *name, const char *value,
                        bool is_warning)
{
    add(facts, (struct check_fact){.group = "libraries",
                                   .point = CHECK_POINT_COMMUNICATION,
                                   .name = name,
                                   .value = keep(facts, value),
                                   .is_warning = is_warning,
                                   .remedy = same_libraries});
}

static void add_libraries(struct check_facts *facts, const struct conf *conf, bool is_gpu)
{
    const struct nccl_lib *nccl;
    char text[64] = "", about[512], driver[NVIDIA_DRIVER_RELEASE_MAX];
    add_library(facts, "UCX", ucp_get_version_string(), false);
    add_library(facts, "CUDA", dev_cuda_built() ? dev_cuda_built() : "", false);
    if (is_gpu && nccl_lib_open(&nccl) == ST_OK)
        nccl_lib_version_text(nccl_lib_version(), text, sizeof text);
    add_library(facts, "NCCL", text, false);
    text_copy(about, sizeof about, "");
    if (is_gpu && dev_cuda_blas(about, sizeof about) == ST_OK)
        about[strcspn(about, " ")] = 0; /* "13.0.2 from /usr/…" */
    add_library(facts, "cuBLASLt", about, true);
    status_clear();
    nvidia_driver_release(conf_text(conf, CONF_CHECK_ROOT), driver);
    add_library(facts, "NVIDIA driver", driver, true);
}

/* add_data — of nodes that have some: others copy node 0's. */
static void add_data(struct check_facts *facts, const struct conf *conf)
{
    static const enum conf_key keys[] = {CONF_DATA, CONF_VAL_DATA};
    static const char *const names[] = {"DATA", "VAL_DATA"};
    char text[128];
    if (!conf_text(conf, CONF_DATA)[0] && conf_i64(conf, CONF_NODE_ID) == 0)
        return;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        check_data_print(conf_text(conf, keys[i]), text, sizeof text);
        add(facts, (struct check_fact){.group = "data",
                                       .point = CHECK_POINT_PARTITIONING,
                                       .name = names[i],
                                       .value = keep(facts, text),
                                       .remedy = "give every node the same data, or none to all "
                                                 "but node 0, whose files they copy"});
    }
}

static void name_isa(char *out, size_t cap)
{
    if (isa_level() > 0)
        text_format(out, cap, "x86-64-v%d%s", isa_level(), isa_has_amx_bf16() ? " with AMX" : "");
    else
        text_format(out, cap, "%s", isa_has_neon() ? "aarch64 with NEON" : "without fast kernels");
}

static void add_machine(struct check_facts *facts, const struct dev *dev)
{
    struct dev_info info;
    char text[64];
    dev_info(dev, &info);
    name_isa(text, sizeof text);
    add(facts, (struct check_fact){.group = "processor",
                                   .point = CHECK_POINT_HOST,
                                   .name = "instruction set",
                                   .value = keep(facts, text),
                                   .is_warning = true,
                                   .remedy = "use machines of one kind: sums of CPUs differ in "
                                             "their last bits, and all wait for the slowest"});
    add(facts, (struct check_fact){.group = "device",
                                   .point = CHECK_POINT_GPUS,
                                   .name = "device",
                                   .value = keep(facts, info.name),
                                   .is_warning = true,
                                   .remedy = "use machines of one kind: all wait for the slowest"});
}

void check_facts_make(const struct conf *conf, const struct dev *dev, struct check_facts *out)
{
    *out = (struct check_facts){.n = 0};
    add_version(out);
    add_settings(out, conf);
    add_libraries(out, conf, dev_is_discrete(dev));
    add_machine(out, dev);
    add_data(out, conf);
}

void check_facts_free(struct check_facts *facts)
{
    cJSON_Delete(facts->settings);
    facts->settings = NULL;
}

enum status check_facts_joining(const struct conf *conf, struct text *out)
{
    text_add(out, "{\"version\":\"%s %s\",\"CHECK\":\"%s\",\"BUDGET\":\"%s\",\"SOAK\":\"%s\"}",
             version_text(), version_commit(), conf_text(conf, CONF_CHECK),
             conf_text(conf, CONF_BUDGET), conf_text(conf, CONF_SOAK));
    return out->overflow ? FAIL(ST_RETRY, "out of memory: what nodes agree on") : ST_OK;
}
