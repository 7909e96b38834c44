/* ucx_setup — opens a context and a worker of UCX. The settings are UCX's own (UCX_* in the
 * environment). Four of its defaults are replaced: no TCP, connecting never blocks, and without
 * InfiniBand two limits of TCP. Must not know peers. */
#include "comm/ucx/inside.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>

#include "base/log.h"
#include "base/text.h"
#include "comm/ucx/env.h"

/* Removes the signal handlers that UCX installs when its library is loaded, before main: this
 * program reports crashes by its own handlers, and SIGHUP is not for a debugger. */
static __attribute__((constructor)) void restore_signals(void)
{
    static const int signals[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGHUP, SIGABRT};
    for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
        struct sigaction now;
        if (sigaction(signals[i], NULL, &now) == 0 && now.sa_handler != SIG_DFL &&
            now.sa_handler != SIG_IGN)
            ucs_debug_disable_signal(signals[i]);
    }
}

enum status ucx_setup_fail(enum status st, const char *what, ucs_status_t status,
                           const char *advice)
{
    return FAIL(st, "UCX cannot %s: %s; %s", what, ucs_status_string(status), advice);
}

/* Returns true if this setting has UCX's default. */
static bool is_default(const ucp_config_t *config, const char *line)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return false;
    ucp_config_print(config, out, NULL, UCS_CONFIG_PRINT_CONFIG);
    fclose(out);
    bool found = text != NULL && strstr(text, line) != NULL;
    free(text);
    return found;
}

/* Changes UCX's settings. Over TCP, UCX uses rendezvous for all but short messages, which costs a
 * round trip: an all_reduce of 64 KiB needed 62 µs and of 256 KiB 175 µs; sent eagerly, 43 and 90.
 * With more ranks, messages from 128 KiB on delay each other (four ranks, 1 MiB: 3.8 ms and more
 * against 3.0). UCX also reads 64 KiB at a time: two ranks needed 92 to 98 µs for 256 KiB; in eager
 * chunks, read 256 KiB at a time, 70 to 72. (bench_ucx, 2 vCPU Intel Xeon, Sapphire Rapids class.)
 * The limit for InfiniBand is right: its messages are written to their destination. */
static void tune_config(ucp_config_t *config, int64_t eager_bytes)
{
    char limit[24];
    /* Otherwise connecting to an address where nothing answers (a cut cable, a firewall that drops)
     * blocks the caller for two minutes. No abort ends that. */
    if (ucx_env_get("UCX_TCP_CONN_NB") == NULL &&
        ucp_config_modify(config, "CONN_NB", "y") != UCS_OK)
        LOG_DEBUG("UCX does not accept CONN_NB");
    /* UCX listens for TCP on every address and trusts all bytes that reach its port: only if the
     * user requests it. */
    if (!ucx_env_has_transports() && ucp_config_modify(config, "TLS", "^tcp") != UCS_OK)
        LOG_WARN("UCX does not accept TLS=^tcp: it listens on TCP");
    if (access("/sys/class/infiniband", F_OK) == 0)
        return;
    text_format(limit, sizeof(limit), "%lld", (long long)eager_bytes);
    if (is_default(config, "UCX_RNDV_THRESH=auto\n") &&
        ucp_config_modify(config, "RNDV_THRESH", limit) != UCS_OK)
        LOG_DEBUG("UCX does not accept RNDV_THRESH");
    if (ucx_env_get("UCX_TCP_RX_SEG_SIZE") == NULL &&
        ucp_config_modify(config, "RX_SEG_SIZE", "256k") != UCS_OK)
        LOG_DEBUG("UCX does not accept RX_SEG_SIZE");
}

enum status ucx_setup(int64_t eager_bytes, ucp_context_h *context, ucp_worker_h *worker,
                      int *event_fd)
{
    static const char advice[] = "check UCX_NET_DEVICES and UCX_TLS, or see UCX_LOG_LEVEL=info";
    ucp_config_t *config;
    /* UCX logs every connection to a dead peer and every unfinished message of an ended call.
     * Important failures reach this program as a status. UCX's own lines are shown if UCX_LOG_LEVEL
     * is set to show them. */
    char level[32];
    if (ucs_global_opts_get_value("LOG_LEVEL", level, sizeof(level)) == UCS_OK &&
        strcasecmp(level, "warn") == 0)
        ucs_global_opts_set_value("LOG_LEVEL", "fatal");
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK)
        return ucx_setup_fail(ST_NO_DEVICE, "read its settings", status,
                              "check the UCX_* variables");
    tune_config(config, eager_bytes);
    ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
        .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
    };
    status = ucp_init(&params, config, context);
    ucp_config_release(config);
    if (status != UCS_OK)
        return ucx_setup_fail(ST_NO_DEVICE, "find a network", status, advice);
    ucp_worker_params_t wanted = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_EVENTS |
                      UCP_WORKER_PARAM_FIELD_FLAGS,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED,
        .events = UCP_WAKEUP_TX | UCP_WAKEUP_RX,
        .flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK,
    };
    status = ucp_worker_create(*context, &wanted, worker);
    if (status != UCS_OK)
        return ucx_setup_fail(ST_NO_DEVICE, "open a worker", status, advice);
    status = ucp_worker_get_efd(*worker, event_fd);
    if (status != UCS_OK)
        return ucx_setup_fail(ST_NO_DEVICE, "report arrivals", status, advice);
    return ST_OK;
}

bool ucx_setup_has_cuda(ucp_context_h context)
{
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};
    return ucp_context_query(context, &attr) == UCS_OK &&
           (attr.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0;
}
