/* library_list — release, commit, compiler and the libraries of this program, for `version`. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "node/command.h"

#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>
#include <curl/curl.h>
#include <event2/event.h>
#include <pcre2.h>
#include <ucp/api/ucp.h>
#include <utf8proc.h>
#include <xxhash.h>
#include <zstd.h>

#include "base/status.h"
#include "base/version.h"
#include "comm/nccl/lib.h"
#include "conf/launcher.h"
#include "dev/cuda/cuda.h"
#include "dev/nvidia/library.h"
#include "dev/nvidia/driver.h"

/* add_library — appends name, version and licence. */
static void add_library(struct text *out, const char *name, const char *version,
                        const char *licence)
{
    text_add(out, "%-10s %-16s %s\n", name, version != NULL ? version : "none", licence);
}

/* add_opened — appends a library that is opened on first use: version and file, or the missing
 * part. */
static void add_opened(struct text *out, const char *name, enum status st, const char *about)
{
    text_add(out, "%-10s %s\n", name, st == ST_OK ? about : status_message());
    status_clear();
}

/* add_driver — appends the installed driver, its GPUs or the missing part, and the driver that this
 * build needs. */
static void add_driver(struct text *out)
{
    char found[NVIDIA_DRIVER_RELEASE_MAX];
    int gpus = 0, least = dev_cuda_driver_least();
    enum status st = dev_cuda_count(&gpus);
    text_add(out, "%-10s %s", "driver", nvidia_driver_release("", found) ? found : "none");
    if (least > 0)
        text_add(out, " (this build needs %d or newer)", least);
    if (st == ST_OK)
        text_add(out, ", %d GPU%s\n", gpus, gpus == 1 ? "" : "s");
    else
        text_add(out, ": %s\n", status_message());
    status_clear();
}

/* add_nvidia — appends NVIDIA's driver and libraries. */
static void add_nvidia(struct text *out)
{
    char about[LIBRARY_PATH_MAX + 32];
    const struct nccl_lib *nccl;
    text_add(out, "NVIDIA libraries, opened if needed:\n");
    add_driver(out);
    enum status st = dev_cuda_blas(DEV_GPU_CUDA, about, sizeof(about));
    add_opened(out, "cublaslt", st, about);
    st = dev_cuda_attention_find(about, sizeof(about));
    add_opened(out, "cudnn", st, about);
    st = nccl_lib_open(&nccl);
    add_opened(out, "nccl", st, nccl_lib_about());
}

/* add_amd — appends the GPUs that AMD's driver has, or the missing part, and AMD's libraries. */
static void add_amd(struct text *out)
{
    char about[LIBRARY_PATH_MAX + 64];
    const struct nccl_lib *nccl;
    int gpus = 0;
    text_add(out, "AMD libraries, opened if needed:\n");
    enum status st = dev_cuda_choose(DEV_GPU_HIP);
    st = st == ST_OK ? dev_cuda_count(&gpus) : st;
    text_format(about, sizeof(about), "%d GPU%s", gpus, gpus == 1 ? "" : "s");
    add_opened(out, "amdgpu", st, about);
    st = dev_hip_find(about, sizeof(about));
    add_opened(out, "amdhip64", st, about);
    st = dev_cuda_blas(DEV_GPU_HIP, about, sizeof(about));
    add_opened(out, "hipblaslt", st, about);
    nccl_lib_choose(true, NULL);
    st = nccl_lib_open(&nccl);
    add_opened(out, "rccl", st, nccl_lib_about());
}

/* add_pcre2 — appends PCRE2, whose version is followed by its date. */
static void add_pcre2(struct text *out)
{
    char version[64] = "";
    (void)pcre2_config(PCRE2_CONFIG_VERSION, version);
    version[strcspn(version, " ")] = 0;
    add_library(out, "pcre2", version, "BSD-3-Clause");
}

void library_list_write(bool is_gpu, struct text *out)
{
    const curl_version_info_data *curl = curl_version_info(CURLVERSION_NOW);
    unsigned xxhash = XXH_versionNumber();
    char xxhash_text[32];
    text_format(xxhash_text, sizeof(xxhash_text), "%u.%u.%u", xxhash / 10000, xxhash / 100 % 100,
                xxhash % 100);
    text_add(out, "convoy %s\ncommit %s\ncompiler %s\nlicence Apache-2.0\n", version_text(),
             version_commit(), version_compiler());
    text_add(out, "libraries, %s:\n", version_linked()[0] != 0 ? "inside" : "of this system");
    add_library(out, "libevent", event_get_version(), "BSD-3-Clause");
    add_library(out, "libcurl", curl->version, "curl");
    add_library(out, "tls", curl->ssl_version, "Apache-2.0");
    add_library(out, "cjson", cJSON_Version(), "MIT");
    add_library(out, "utf8proc", utf8proc_version(), "MIT and Unicode-3.0");
    add_pcre2(out);
    add_library(out, "xxhash", xxhash_text, "BSD-2-Clause");
    add_library(out, "zstd", ZSTD_versionString(), "BSD-3-Clause");
    add_library(out, "ucx", ucp_get_version_string(), "BSD-3-Clause");
    text_add(out, "%s", version_linked());
    add_library(out, "cuda", dev_cuda_built(), dev_cuda_built() != NULL ? "CUDA Toolkit EULA" : "");
    if (dev_hip_built() != NULL)
        add_library(out, "hip", dev_hip_built(), "");
    if (is_gpu) {
        library_dir(launcher_find(environ, "CONVOY_LIB_DIR"));
        if (dev_cuda_built() != NULL || dev_hip_built() == NULL)
            add_nvidia(out);
        if (dev_hip_built() != NULL)
            add_amd(out);
    }
}
