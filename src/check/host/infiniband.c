/* check_infiniband — the ports of RDMA devices (InfiniBand, RoCE): state, rate, errors, and whether
 * programs can open them.
 *
 * A single port may be down on purpose: a second port, a storage network. So ports of one chip are
 * compared with one another. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "check/host/file.h"
#include "check/host/static.h"
#include "check/report/text.h"

#define PORTS_MAX 64
#define REMEDY_BYTES 192
#define STATE_INIT 2
#define STATE_ACTIVE 4
#define DOWNED_MAX 10 /* most times that a link may have gone down since the driver was loaded */
#define SYMBOLS_PER_HOUR 10 /* the limit of ibdiagnet and of the InfiniBand Trade Association */

struct port {
    char device[40], chip[32], layer[16], rate_text[40];
    int number;
    int64_t state, rate_gbps; /* CHECK_FILE_NONE: unknown */
    bool is_shadowed;         /* down, but another port of the device is up */
};

struct ports {
    int n;
    struct port port[PORTS_MAX];
};

/* Reads "400 Gb/sec (4X NDR)"; "2.5 Gb/sec (1X SDR)" counts as 2. */
static int64_t rate_of(const char *text)
{
    int64_t gbps;
    char digits[16];
    text_format(digits, sizeof digits, "%.*s", (int)strspn(text, "0123456789"), text);
    return text_parse_i64(digits, 0, 100000, &gbps) == TEXT_OK ? gbps : CHECK_FILE_NONE;
}

static void read_port(const struct check_static *s, const char *device, int number,
                      struct port *out)
{
    char state[40];
    *out = (struct port){.number = number, .state = CHECK_FILE_NONE};
    text_copy(out->device, sizeof out->device, device);
    check_file_read(s->root, out->chip, sizeof out->chip, "/sys/class/infiniband/%s/hca_type",
                    device);
    check_file_read(s->root, out->layer, sizeof out->layer,
                    "/sys/class/infiniband/%s/ports/%d/link_layer", device, number);
    check_file_read(s->root, out->rate_text, sizeof out->rate_text,
                    "/sys/class/infiniband/%s/ports/%d/rate", device, number);
    out->rate_gbps = rate_of(out->rate_text);
    /* "4: ACTIVE" */
    if (check_file_read(s->root, state, sizeof state, "/sys/class/infiniband/%s/ports/%d/state",
                        device, number) &&
        state[0] >= '0' && state[0] <= '9')
        out->state = state[0] - '0';
}

static bool is_kin(const struct port *a, const struct port *b)
{
    return strcmp(a->chip, b->chip) == 0 && strcmp(a->layer, b->layer) == 0;
}

static const char *subject_of(const struct port *port, char *out, size_t cap)
{
    text_format(out, cap, "%s port %d", port->device, port->number);
    return out;
}

/* ---- state ---- */

static bool judge_state(struct check_static *s, const struct ports *ports, const struct port *port)
{
    char subject[64], why[256], remedy[REMEDY_BYTES], drain[REMEDY_BYTES], device[CHECK_TEXT_WORD];
    /* If most other ports of this chip and layer are up, this one should be up too. */
    int up = 0, down = 0;
    for (int i = 0; i < ports->n; i++) {
        if (!is_kin(port, &ports->port[i]) || ports->port[i].is_shadowed)
            continue;
        up += ports->port[i].state == STATE_ACTIVE;
        down += ports->port[i].state != STATE_ACTIVE;
    }
    bool is_alone = up >= 3 * down;
    bool has_no_manager = port->state >= STATE_INIT && port->state < STATE_ACTIVE;
    /* an Ethernet port without a cable is common */
    bool is_ethernet = strcmp(port->layer, "InfiniBand") != 0;
    if (port->state == STATE_ACTIVE || port->is_shadowed || port->state == CHECK_FILE_NONE ||
        (!is_alone && !has_no_manager))
        return false;
    text_format(why, sizeof why,
                has_no_manager
                    ? "the link is up, but no subnet manager has made it active: state %lld of 4"
                    : "the port is down (state %lld), but other ports of its kind are up",
                (long long)port->state);
    text_format(remedy, sizeof remedy,
                "mlxlink -d %s --port_state TG # check cable and switch first; else %s",
                check_text_word(device, sizeof device, port->device, "DEVICE"),
                check_static_drain(s, drain, sizeof drain, "InfiniBand port"));
    if (has_no_manager)
        text_copy(remedy, sizeof remedy, "systemctl start opensm # on one node of the fabric");
    check_static_add(s,
                     check_static_found(s, CHECK_POINT_INTERFACES, "ib state",
                                        is_ethernet ? CHECK_VERDICT_WARN : CHECK_VERDICT_FAIL, "%s",
                                        why),
                     subject_of(port, subject, sizeof subject), remedy);
    return true;
}

static void add_states(struct check_static *s, struct ports *ports)
{
    bool is_bad = false;
    int up = 0;
    for (int i = 0; i < ports->n; i++)
        for (int k = 0; k < ports->n; k++)
            if (strcmp(ports->port[i].device, ports->port[k].device) == 0 &&
                ports->port[i].state != STATE_ACTIVE && ports->port[k].state == STATE_ACTIVE)
                ports->port[i].is_shadowed = true;
    for (int i = 0; i < ports->n; i++) {
        is_bad = judge_state(s, ports, &ports->port[i]) || is_bad;
        up += ports->port[i].state == STATE_ACTIVE;
    }
    if (is_bad)
        return;
    check_static_add(s,
                     check_static_found(s, CHECK_POINT_INTERFACES, "ib state",
                                        up > 0 ? CHECK_VERDICT_PASS : CHECK_VERDICT_WARN,
                                        "%d of %d RDMA ports are active", up, ports->n),
                     "", up > 0 ? "" : "ibstat # connect a cable, or BACKEND=tcp");
}

/* ---- rate ---- */

/* Detects a cable of four lanes that runs on one, or a link that fell back to an older speed. */
static bool judge_rate(struct check_static *s, const struct ports *ports, const struct port *port)
{
    int64_t most = 0;
    char subject[64], remedy[REMEDY_BYTES], drain[REMEDY_BYTES], device[CHECK_TEXT_WORD];
    for (int i = 0; i < ports->n; i++)
        if (is_kin(port, &ports->port[i]) && ports->port[i].state == STATE_ACTIVE &&
            ports->port[i].rate_gbps > most)
            most = ports->port[i].rate_gbps;
    bool is_one_lane = strstr(port->rate_text, "(1X") && strcmp(port->layer, "InfiniBand") == 0;
    if (port->state != STATE_ACTIVE || (port->rate_gbps >= most && !is_one_lane))
        return false;
    text_format(remedy, sizeof remedy,
                "mlxlink -d %s --port_state TG # reseat or replace the cable first; else %s",
                check_text_word(device, sizeof device, port->device, "DEVICE"),
                check_static_drain(s, drain, sizeof drain, "InfiniBand rate"));
    check_static_add(
        s,
        check_static_found(s, CHECK_POINT_INTERFACES, "ib rate", CHECK_VERDICT_FAIL,
                           "the link runs at %s%s", port->rate_text,
                           is_one_lane ? ": on one lane" : "; another port of this kind is faster"),
        subject_of(port, subject, sizeof subject), remedy);
    return true;
}

/* Adds one number for the node, so that nodes whose slow ports are of other kinds stay
 * comparable. */
static void add_rates(struct check_static *s, const struct ports *ports)
{
    bool is_bad = false;
    int64_t sum = 0;
    for (int i = 0; i < ports->n; i++) {
        is_bad = judge_rate(s, ports, &ports->port[i]) || is_bad;
        if (ports->port[i].state == STATE_ACTIVE && ports->port[i].rate_gbps > 0)
            sum += ports->port[i].rate_gbps;
    }
    if (is_bad || sum == 0)
        return;
    struct check_row row = check_static_found(s, CHECK_POINT_INTERFACES, "ib rate",
                                              CHECK_VERDICT_MEASURED, "all active ports together");
    check_static_measured(s, row, (double)sum, "Gb/s", "",
                          "ibstat # compare with a node that has more");
}

/* ---- errors ---- */

static int64_t read_counter(const struct check_static *s, const struct port *port, const char *name)
{
    int64_t n = check_file_number(s->root, "/sys/class/infiniband/%s/ports/%d/counters/%s",
                                  port->device, port->number, name);
    return n > 0 ? n : 0;
}

static bool judge_errors(struct check_static *s, const struct port *port, int64_t hours)
{
    char subject[64];
    int64_t symbols = read_counter(s, port, "symbol_error"),
            downs = read_counter(s, port, "link_downed"),
            recovered = read_counter(s, port, "link_error_recovery"),
            received = read_counter(s, port, "port_rcv_errors");
    int64_t symbols_max = SYMBOLS_PER_HOUR * (hours + 1);
    if (port->state != STATE_ACTIVE || (symbols <= symbols_max && downs <= DOWNED_MAX &&
                                        recovered <= DOWNED_MAX && received <= symbols_max))
        return false;
    check_static_add(s,
                     check_static_found(s, CHECK_POINT_INTERFACES, "ib errors", CHECK_VERDICT_WARN,
                                        "%lld symbol errors (limit %lld), %lld receive errors, "
                                        "%lld times down, %lld recoveries",
                                        (long long)symbols, (long long)symbols_max,
                                        (long long)received, (long long)downs,
                                        (long long)recovered),
                     subject_of(port, subject, sizeof subject),
                     "perfquery -R # clears the counters, when the cable was reseated or replaced");
    return true;
}

static void add_errors(struct check_static *s, const struct ports *ports)
{
    int64_t seconds;
    char text[32];
    bool is_bad = false;
    check_file_read(s->root, text, sizeof text, "/proc/uptime");
    text[strcspn(text, ".")] = 0;
    if (text_parse_i64(text, 0, INT32_MAX, &seconds) != TEXT_OK)
        seconds = 0;
    for (int i = 0; i < ports->n; i++)
        is_bad = judge_errors(s, &ports->port[i], seconds / 3600) || is_bad;
    if (!is_bad)
        check_static_add(s,
                         check_static_found(s, CHECK_POINT_INTERFACES, "ib errors",
                                            CHECK_VERDICT_PASS, "few or none on %d ports",
                                            ports->n),
                         "", "");
}

/* ---- access ---- */

static void add_files(struct check_static *s, const struct ports *ports)
{
    struct check_file_names *found = memory_new(1, sizeof *found);
    check_file_list_with(s->root, "uverbs", found, "/dev/infiniband");
    bool is_open = found->n > 0;
    check_static_add(
        s,
        check_static_found(s, CHECK_POINT_INTERFACES, "ib devices",
                           is_open ? CHECK_VERDICT_PASS : CHECK_VERDICT_FAIL,
                           "%d RDMA ports, %d files /dev/infiniband/uverbs*", ports->n, found->n),
        "",
        is_open
            ? ""
            : check_static_flag(s, "modprobe ib_uverbs",
                                "docker run --device /dev/infiniband --cap-add IPC_LOCK "
                                "--network host",
                                "resources: {limits: {rdma/hca: 1}} (k8s-rdma-shared-dev-plugin)"
                                ", securityContext: {capabilities: {add: [IPC_LOCK]}}"));
    free(found);
}

static bool has_mellanox(const struct ports *ports)
{
    for (int i = 0; i < ports->n; i++)
        if (text_starts(ports->port[i].chip, "MT"))
            return true;
    return false;
}

/* Checks whether the card can access GPU memory: it uses a module of NVIDIA's or, with NVIDIA's
 * open driver and Linux 5.12, dma-buf. */
static void add_peer_memory(struct check_static *s, const struct ports *ports)
{
    char version[256];
    check_file_read(s->root, version, sizeof version, "/proc/driver/nvidia/version");
    bool has_module = check_file_is(s->root, "/sys/module/nvidia_peermem") ||
                      check_file_is(s->root, "/sys/module/nv_peer_mem");
    bool has_dma_buf = strstr(version, "Open Kernel Module") != NULL;
    if (s->gpus.gpus_n == 0 || s->is_amd || !has_mellanox(ports))
        return;
    check_static_add(
        s,
        check_static_found(s, CHECK_POINT_INTERFACES, "gpu direct",
                           has_module || has_dma_buf ? CHECK_VERDICT_PASS : CHECK_VERDICT_WARN,
                           has_module    ? "nvidia_peermem is loaded"
                           : has_dma_buf ? "by dma-buf: the driver is the open one"
                                         : "nvidia_peermem is not loaded: RDMA copies through the "
                                           "host's memory"),
        "",
        has_module || has_dma_buf ? ""
                                  : check_static_flag(s, "modprobe nvidia_peermem",
                                                      "modprobe nvidia_peermem # on the host",
                                                      "modprobe nvidia_peermem # on the host"));
}

void check_infiniband_rows(struct check_static *s)
{
    struct ports ports;
    if (!s->has_rdma) {
        check_static_add(s,
                         check_static_found(s, CHECK_POINT_INTERFACES, "ib state",
                                            CHECK_VERDICT_SKIPPED,
                                            "no device in /sys/class/infiniband"),
                         "", "");
        return;
    }
    struct check_file_names *devices = memory_new(1, sizeof *devices),
                            *numbers = memory_new(1, sizeof *numbers);
    int64_t number;
    ports.n = 0;
    check_file_list(s->root, devices, "/sys/class/infiniband");
    for (int i = 0; i < devices->n; i++) {
        check_file_list(s->root, numbers, "/sys/class/infiniband/%s/ports", devices->name[i]);
        for (int k = 0; k < numbers->n && ports.n < PORTS_MAX; k++)
            if (text_parse_i64(numbers->name[k], 1, 255, &number) == TEXT_OK)
                read_port(s, devices->name[i], (int)number, &ports.port[ports.n++]);
    }
    free(devices);
    free(numbers);
    add_states(s, &ports);
    add_rates(s, &ports);
    add_errors(s, &ports);
    add_files(s, &ports);
    add_peer_memory(s, &ports);
}
