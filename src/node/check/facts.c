/* check_facts — see check/facts.h. */
#include "node/check/facts.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <ucp/api/ucp.h>
#include <xxhash.h>

#include "base/isa.h"
#include "base/log.h"
#include "base/text.h"
#include "base/version.h"
#include "comm/nccl/lib.h"
#include "data/data_file.h"
#include "data/mix.h"
#include "dev/cuda/cuda.h"
#include "dev/nvidia/driver.h"
#include "node/choose/config_map.h"

#define END_BYTES (64 * 1024)
/* number of files whose contents are read; of further files only the sizes are used */
#define FILES_READ 64

static const char same_program[] = "install one release on all nodes";
static const char same_settings[] =
    "give all nodes the same settings; `convoy config` prints the settings of a node";
static const char same_libraries[] = "install one image, or one set of packages, on all nodes; "
                                     "`convoy version gpu` lists the libraries of a node";

static void add_fact(struct check_facts *facts, struct check_fact fact)
{
    if (facts->n < CHECK_FACTS_MAX)
        facts->fact[facts->n++] = fact;
}

/* copy_value — returns a copy of a value for a fact. */
static const char *copy_value(struct check_facts *facts, const char *value)
{
    char *room = facts->values[facts->values_n++ % 16];
    text_copy(room, sizeof facts->values[0], value);
    return room;
}

static void add_settings(struct check_facts *facts, const struct conf *conf)
{
    /* The settings that must be equal before a run, as JSON; NULL: memory is short. */
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
    facts->settings = settings;
    for (const cJSON *at = facts->settings ? facts->settings->child : NULL; at; at = at->next)
        if (cJSON_IsString(at) && strcmp(at->string, "version") != 0)
            add_fact(facts, (struct check_fact){.group = "settings",
                                                .point = CHECK_POINT_LAUNCH,
                                                .name = at->string,
                                                .value = at->valuestring,
                                                .remedy = same_settings});
}

static void add_library(struct check_facts *facts, const char *name, const char *value,
                        bool is_warning)
{
    add_fact(facts, (struct check_fact){.group = "libraries",
                                        .point = CHECK_POINT_COMMUNICATION,
                                        .name = name,
                                        .value = copy_value(facts, value),
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
    add_library(facts, nccl_lib_name(), text, false);
    text_copy(about, sizeof about, "");
    if (is_gpu && dev_cuda_blas(dev_cuda_chosen(), about, sizeof about) == ST_OK)
        about[strcspn(about, " ")] = 0; /* "13.0.2 from /usr/…" */
    add_library(facts, dev_cuda_blas_name(), about, true);
    status_clear();
    nvidia_driver_release(conf_text(conf, CONF_CHECK_ROOT), driver);
    add_library(facts, "NVIDIA driver", driver, true);
}

struct print {
    int64_t files, bytes;
    uint64_t hash;
};

/* add_end — adds the bytes of a file from offset on, at most END_BYTES. */
static void add_end(struct print *p, int fd, int64_t offset)
{
    char bytes[END_BYTES / 8];
    ssize_t n = 1;
    for (int64_t at = 0; at < END_BYTES && n > 0; at += n) {
        n = pread(fd, bytes, sizeof bytes, offset + at);
        p->hash = XXH3_64bits_withSeed(bytes, n > 0 ? (size_t)n : 0, p->hash);
    }
}

static void add_file(struct print *p, const struct data_file *file)
{
    int fd = p->files < FILES_READ ? open(file->path, O_RDONLY | O_CLOEXEC) : -1;
    int64_t size = data_file_bytes(file);
    p->files++;
    p->bytes += size;
    p->hash = XXH3_64bits_withSeed(&size, sizeof size, p->hash);
    if (fd < 0)
        return;
    add_end(p, fd, 0);
    if (file->bytes > END_BYTES)
        add_end(p, fd, file->bytes - END_BYTES);
    close(fd);
}

/* print_data — writes a fingerprint of DATA or VAL_DATA within milliseconds: names are not
 * compared, only the ends of contents are compared, and nothing is downloaded. The result is "3
 * files, 1048576 bytes, 8f3a…", "synthetic", "not readable here: …", or "" for no data or for
 * addresses. */
static void print_data(const char *data, char *out, size_t cap)
{
    struct print p = {0};
    text_copy(out, cap, strcmp(data, "synthetic") == 0 ? data : "");
    if (!data[0] || out[0] || strstr(data, "://"))
        return;
    struct mix mix;
    enum status st = mix_parse(data, &mix);
    for (int i = 0; st == ST_OK && i < mix.n; i++) {
        const struct data_file_config config = {.data = mix.item[i].data, .cache_dir = ""};
        struct data_file_list list = {0};
        st = data_file_find(&config, &list);
        for (int64_t k = 0; st == ST_OK && k < list.n; k++)
            add_file(&p, &list.item[k]);
        if (st == ST_OK)
            data_file_free(&list);
    }
    if (st == ST_OK)
        mix_free(&mix);
    if (st == ST_OK)
        text_format(out, cap, "%lld file%s, %lld bytes, %016llx", (long long)p.files,
                    p.files == 1 ? "" : "s", (long long)p.bytes, (unsigned long long)p.hash);
    else
        text_format(out, cap, "not readable here: %s", status_message());
    status_clear();
}

/* add_data — adds the data of nodes that have some; the other nodes copy node 0's data. */
static void add_data(struct check_facts *facts, const struct conf *conf)
{
    static const enum conf_key keys[] = {CONF_DATA, CONF_VAL_DATA};
    static const char *const names[] = {"DATA", "VAL_DATA"};
    char text[128];
    if (!conf_text(conf, CONF_DATA)[0] && conf_i64(conf, CONF_NODE_ID) == 0)
        return;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        print_data(conf_text(conf, keys[i]), text, sizeof text);
        add_fact(facts, (struct check_fact){.group = "data",
                                            .point = CHECK_POINT_PARTITIONING,
                                            .name = names[i],
                                            .value = copy_value(facts, text),
                                            .remedy = "give every node the same data, or only node "
                                                      "0: the other nodes then copy its files"});
    }
}

static void add_machine(struct check_facts *facts, const struct dev *dev)
{
    struct dev_info info;
    char text[64];
    dev_info(dev, &info);
    if (isa_level() > 0)
        text_format(text, sizeof text, "x86-64-v%d%s", isa_level(),
                    isa_has_amx_bf16() ? " with AMX" : "");
    else
        text_format(text, sizeof text, "%s",
                    isa_has_neon() ? "aarch64 with NEON" : "without fast kernels");
    add_fact(facts, (struct check_fact){
                        .group = "processor",
                        .point = CHECK_POINT_HOST,
                        .name = "instruction set",
                        .value = copy_value(facts, text),
                        .is_warning = true,
                        .remedy = "use machines of one kind: sums of different CPUs differ in "
                                  "their last bits, and all nodes wait for the slowest"});
    add_fact(facts, (struct check_fact){
                        .group = "device",
                        .point = CHECK_POINT_GPUS,
                        .name = "device",
                        .value = copy_value(facts, info.name),
                        .is_warning = true,
                        .remedy = "use machines of one kind: all nodes wait for the slowest"});
}

void check_facts_make(const struct conf *conf, const struct dev *dev, struct check_facts *out)
{
    *out = (struct check_facts){.n = 0};
    char text[128];
    text_format(text, sizeof text, "%s %s", version_text(), version_commit());
    add_fact(out, (struct check_fact){.group = "version",
                                      .point = CHECK_POINT_LAUNCH,
                                      .name = "convoy",
                                      .value = copy_value(out, text),
                                      .remedy = same_program});
    add_fact(out, (struct check_fact){.group = "version",
                                      .point = CHECK_POINT_LAUNCH,
                                      .name = "compiler",
                                      .value = version_compiler(),
                                      .remedy = same_program});
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
    return out->overflow ? FAIL(ST_RETRY, "out of memory: the settings that the nodes compare")
                         : ST_OK;
}
