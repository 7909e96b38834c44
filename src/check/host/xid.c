/* check_xid — hardware errors in the kernel's log since the machine started: NVIDIA's Xid and SXid
 * messages, machine checks, PCIe and disk errors.
 *
 * Only errors of the last day are failures, because the log keeps errors that a reset has repaired
 * since. The log does not record a reset, so the remedy writes a line into it. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "check/host/file.h"
#include "check/host/static.h"

#define LOG_BYTES_MAX (64 << 20)
#define RECENT_S 86400
#define REMEDY_BYTES 192
#define RESET "convoy: reset of " /* followed by the GPU's address: its earlier Xids are repaired */

/* Xid errors, by NVIDIA's catalogue ("XID Errors"). HARD: the GPU, its memory or its link is in
 * trouble. SOFT: mostly a program's fault, or repaired. Xids that are not in the table are SOFT.
 * Some are HARD by their text: see is_hard_text. */
static const struct {
    int code;
    bool is_hard;
    const char *text;
} xids[] = {
    {13, false, "a program's fault in a kernel"},
    {31, false, "a program's memory fault"},
    {43, false, "a program's fault"},
    {45, false, "a program was ended"},
    {48, true, "double bit ECC error"},
    {61, true, "microcontroller breakpoint"},
    {62, true, "microcontroller halt"},
    {63, false, "a row of memory was replaced"},
    {64, true, "a row of memory could not be replaced"},
    {74, true, "NVLink error"},
    {79, true, "the GPU has fallen off the bus"},
    {92, false, "many single bit ECC errors"},
    {94, false, "contained memory error"},
    {95, true, "uncontained memory error"},
    {119, true, "the GPU's system processor does not answer"},
    {120, true, "fault of the GPU's system processor"},
    {136, true, "link training failed"},
    {140, true, "unrecovered ECC error"},
    {143, true, "GPU initialisation failed"},
    {144, false, "NVLink error"},
    {145, false, "NVLink error"},
    {146, false, "NVLink error"},
    {147, false, "NVLink error"},
    {148, false, "NVLink error"},
    {149, false, "NVLink error"},
    {150, false, "NVLink error"},
    {154, false, "the action that the driver advises has changed"},
    {156, false, "a resource was retired"},
    {157, true, "a resource could not be retired"},
    {158, true, "fatal timeout"},
};

/* The last hard Xid of a GPU in the last day, else its last Xid. */
struct xid_gpu {
    char bus[24];
    int code, order; /* code 0: none, or repaired; order: a later Xid has a higher number */
    bool is_hard;
};

/* The messages of each GPU and of the other hardware, and their numbers. */
struct log {
    struct check_static *s;
    double now_s;   /* seconds since the machine started */
    bool is_record; /* lines are records of /dev/kmsg: "level,number,microseconds,flags;text" */
    int lines, xids, others;
    struct xid_gpu gpu[NVML_HEALTH_GPUS_MAX];
    int gpus_n;
    char other[160];
};

/* Returns the seconds since the start, from a record's third number or from "[ 123.456]" in a line;
 * NAN: none. */
static double parse_timestamp(const struct log *l, const char *line)
{
    char digits[32];
    double value;
    const char *from = line;
    if (l->is_record)
        for (int commas = 0; *from && commas < 2; from++)
            commas += *from == ',';
    else if ((from = strchr(line, '[')) == NULL)
        return NAN;
    from += strspn(from, "[ ");
    size_t n = strspn(from, "0123456789.");
    text_format(digits, sizeof digits, "%.*s", n < 31 ? (int)n : 31, from);
    if (text_parse_f64(digits, 0, 1e18, &value) != TEXT_OK)
        return NAN;
    return l->is_record ? value * 1e-6 : value;
}

static int index_of(int code)
{
    for (size_t i = 0; i < sizeof xids / sizeof *xids; i++)
        if (xids[i].code == code)
            return (int)i;
    return -1;
}

static int gpu_at(const struct check_static *s, const char *bus)
{
    for (int i = 0; i < s->gpus.gpus_n; i++)
        if (strcmp(s->gpus.gpu[i].bus, bus) == 0)
            return i;
    return -1;
}

static struct xid_gpu *xid_gpu(struct log *l, const char *bus)
{
    for (int i = 0; i < l->gpus_n; i++)
        if (strcmp(l->gpu[i].bus, bus) == 0)
            return &l->gpu[i];
    if (l->gpus_n == NVML_HEALTH_GPUS_MAX)
        return &l->gpu[NVML_HEALTH_GPUS_MAX - 1];
    text_copy(l->gpu[l->gpus_n].bus, sizeof l->gpu[0].bus, bus);
    return &l->gpu[l->gpus_n++];
}

/* Returns true if the text makes an Xid hard, although its number does not: "154, GPU recovery
 * action changed from 0x0 (None) to 0x1 (GPU Reset Required)", or "145, RLW_CTRL Nonfatal XC0" with
 * "Fatal". */
static bool is_hard_text(int code, const char *text)
{
    const char *to = strstr(text, ") to 0x");
    if (code == 154)
        return to && !text_starts(to, ") to 0x0 ") && strstr(to, "Drain P2P") == NULL;
    return code >= 144 && code <= 150 && strstr(text, " Fatal ");
}

static void clear_xid(struct log *l, const char *bus)
{
    struct xid_gpu *gpu = xid_gpu(l, bus);
    gpu->code = 0;
    gpu->is_hard = false;
}

/* Reads the address at the beginning of `from`: "0000:5d:00", before ")" or before " GPU-I:05" of
 * an instance. */
static bool read_address(const char *from, char *out)
{
    char word[24];
    size_t n = strcspn(from, " );");
    if (n == 0 || n >= sizeof word)
        return false;
    text_format(word, sizeof word, "%.*s", (int)n, from);
    nvml_health_bus(out, word);
    return true;
}

/* Reads "NVRM: Xid (PCI:0000:5d:00): 79, pid=…". */
static void read_xid(struct log *l, const char *text, bool is_recent)
{
    const char *bus = strstr(text, "PCI:"), *end = bus ? strstr(bus, "): ") : NULL;
    char word[24], address[24];
    int64_t code;
    if (end == NULL || end - bus > 48)
        return;
    text_format(word, sizeof word, "%.*s", (int)strspn(end + 3, "0123456789"), end + 3);
    if (text_parse_i64(word, 1, 9999, &code) != TEXT_OK || !read_address(bus + 4, address) ||
        !(l->s->container == CHECK_CONTAINER_NONE || gpu_at(l->s, address) >= 0 ||
          check_file_is(l->s->root, "/proc/driver/nvidia/gpus/%s", address)))
        return;
    int at = index_of((int)code);
    bool is_hard = (at >= 0 && xids[at].is_hard) || is_hard_text((int)code, end);
    /* A recovery repairs all earlier errors. The last hard Xid of a GPU is kept, else the last
     * Xid. */
    if (code == 154 && strstr(end, ") to 0x0 ") != NULL) {
        clear_xid(l, address);
        return;
    }
    struct xid_gpu *gpu = xid_gpu(l, address);
    l->xids++;
    if (gpu->is_hard && !(is_recent && is_hard))
        return;
    gpu->is_hard = is_recent && is_hard;
    gpu->code = (int)code;
    gpu->order = l->lines;
}

static void read_line(void *arg, char *text)
{
    struct log *l = arg;
    /* a file also has the messages of earlier starts of the machine */
    if (!l->is_record && strstr(text, "Linux version "))
        *l = (struct log){.s = l->s, .now_s = l->now_s};
    l->lines++;
    double at = parse_timestamp(l, text);
    bool is_recent = isnan(at) || isnan(l->now_s) || l->now_s - at < RECENT_S;
    if (strstr(text, "NVRM: Xid (PCI:"))
        read_xid(l, text, is_recent);
    else if (strstr(text, RESET)) {
        /* "convoy: reset of 0000:5d:00.0", which the remedy of an Xid writes. */
        char address[24];
        if (read_address(strstr(text, RESET) + strlen(RESET), address))
            clear_xid(l, address);
    } else if (is_recent) {
        /* "SXid (PCI:0000:86:00.0): 20034, Fatal, …" and errors of other hardware, only from the
         * last day. */
        static const char *const signs[] = {"[Hardware Error]: Uncorrected",
                                            "Uncorrected hardware memory error",
                                            " UE memory ",
                                            "Uncorrected (Fatal)",
                                            "Uncorrectable (Fatal)",
                                            "Memory failure:",
                                            "critical medium error",
                                            "Remounting filesystem read-only"};
        bool is_found = strstr(text, "SXid (PCI:") && strstr(text, ", Fatal");
        for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
            is_found = is_found || strstr(text, signs[i]);
        if (is_found) {
            l->others++;
            const char *from = l->is_record ? strchr(text, ';') : strstr(text, "] ");
            text_copy(l->other, sizeof l->other, from ? from + 1 + !l->is_record : text);
        }
    }
}

/* Reads the first of these files that can be read. */
static bool read_log(struct log *l, char *reason, size_t cap)
{
    static const char *const paths[] = {"/dev/kmsg", "/var/log/kern.log", "/var/log/messages"};
    text_copy(reason, cap, "");
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        l->is_record = i == 0;
        if (check_file_lines(l->s->root, paths[i], LOG_BYTES_MAX, read_line, l))
            return true;
        size_t n = strlen(reason);
        text_format(reason + n, cap - n, "%s%s: %s", n ? ", " : "", paths[i], strerror(errno));
    }
    return false;
}

static void add_xid(struct check_static *s, const struct log *l, const struct xid_gpu *x)
{
    char subject[64], remedy[REMEDY_BYTES], drain[REMEDY_BYTES];
    int at = index_of(x->code), gpu = gpu_at(s, x->bus);
    text_format(subject, sizeof subject, "GPU %d, %s", gpu, x->bus);
    text_format(remedy, sizeof remedy,
                "nvidia-smi -i %s --gpu-reset && echo '" RESET
                "%s' >/dev/kmsg # if it comes again: %s",
                x->bus, x->bus, check_static_drain(s, drain, sizeof drain, "Xid of a GPU"));
    check_static_add(s,
                     check_static_found(s, CHECK_POINT_GPUS, "xid",
                                        x->is_hard ? CHECK_VERDICT_FAIL : CHECK_VERDICT_WARN,
                                        "Xid %d in the kernel's log: %s (%d Xid since the start)",
                                        x->code, at >= 0 ? xids[at].text : "see NVIDIA's catalogue",
                                        l->xids),
                     gpu >= 0 ? subject : x->bus, x->is_hard ? remedy : "dmesg | grep Xid");
}

void check_xid_rows(struct check_static *s)
{
    char text[64], *rest = text, reason[192];
    struct log l = {.s = s, .now_s = NAN};
    check_file_read(s->root, text, sizeof text, "/proc/uptime");
    const char *word = check_file_word(&rest);
    if (word == NULL || text_parse_f64(word, 0, 1e12, &l.now_s) != TEXT_OK)
        l.now_s = NAN;
    bool is_read = read_log(&l, reason, sizeof reason);
    /* The last hard Xid of all GPUs, else the last Xid; NULL: there is none that is not
     * repaired. */
    const struct xid_gpu *worst = NULL;
    for (int i = 0; i < l.gpus_n; i++) {
        const struct xid_gpu *gpu = &l.gpu[i];
        bool is_worse = worst == NULL || (gpu->is_hard && !worst->is_hard) ||
                        (gpu->is_hard == worst->is_hard && gpu->order > worst->order);
        if (gpu->code > 0 && is_worse)
            worst = gpu;
    }
    if (worst)
        add_xid(s, &l, worst);
    if (l.others > 0) {
        char remedy[REMEDY_BYTES];
        check_static_drain(s, remedy, sizeof remedy, "hardware errors in the kernel's log");
        check_static_add(s,
                         check_static_found(s, CHECK_POINT_HOST, "kernel log", CHECK_VERDICT_FAIL,
                                            "%d hardware errors in the last day: %s", l.others,
                                            l.other),
                         "", remedy);
    }
    if (worst || l.others > 0)
        return;
    check_static_add(
        s,
        is_read ? check_static_found(s, CHECK_POINT_HOST, "kernel log", CHECK_VERDICT_PASS,
                                     "%d lines, no Xid since a reset, no hardware error", l.lines)
                : check_static_found(s, CHECK_POINT_HOST, "kernel log", CHECK_VERDICT_SKIPPED,
                                     "cannot be read: %s", reason),
        "", "");
}
