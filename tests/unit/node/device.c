/* device — DEVICE and BACKEND, with or without a GPU: what is requested is opened, or refused
 * with what is missing. */
#include "harness.h"

#include "dev/cuda/cuda.h"
#include "node/choose/device.h"

static struct conf *conf_of(char *a, char *b, char *c)
{
    char *words[] = {a, b, c}, *environment[] = {(char *)"HOME=/tmp", NULL};
    struct conf *conf = NULL;
    int n = c ? 3 : b ? 2 : a ? 1 : 0;
    enum status st = conf_open(n, words, environment, &conf);
    if (st != ST_OK)
        fail_msg("%s", status_message());
    return conf;
}
#define W(word) ((char *)(word))

TEST(cpu)
{
    struct conf *conf = conf_of(W("DEVICE=cpu"), W("N_GPU_EACH_NODE=2"), NULL);
    struct dev *dev = NULL;
    assert_int_equal(device_open(conf, 1, 1, &dev), ST_OK);
    assert_false(dev_is_discrete(dev));
    assert_int_equal(device_comm(conf, dev, conf_ranks(conf)), COMM_KIND_HOST);
    assert_int_equal(device_workers(conf), 2);
    assert_string_equal(device_kind(conf), "cpu");
    dev_close(dev);
    conf_close(conf);
}

TEST(transports)
{
    static const struct {
        const char *device, *backend, *workers;
        enum comm_kind want;
    } cases[] = {
        {"DEVICE=auto", "BACKEND=auto", "N_GPU_EACH_NODE=1", COMM_KIND_SELF},
        {"DEVICE=auto", "BACKEND=nccl", "N_GPU_EACH_NODE=1", COMM_KIND_SELF},
        {"DEVICE=auto", "BACKEND=nccl", "N_GPU_EACH_NODE=2", COMM_KIND_NCCL},
        {"DEVICE=auto", "BACKEND=auto", "N_GPU_EACH_NODE=2", COMM_KIND_HOST}, /* on a CPU */
        {"DEVICE=hip", "BACKEND=nccl", "N_GPU_EACH_NODE=2", COMM_KIND_NCCL},  /* RCCL */
        {"DEVICE=auto", "BACKEND=ucc", "N_GPU_EACH_NODE=2", COMM_KIND_HOST}};
    struct dev *dev = NULL;
    assert_int_equal(dev_cpu_open(1, 0, &dev), ST_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct conf *conf = conf_of(W(cases[i].device), W(cases[i].backend), W(cases[i].workers));
        assert_int_equal(device_comm(conf, dev, conf_ranks(conf)), cases[i].want);
        conf_close(conf);
    }
    dev_close(dev);
}

TEST(no_gpu)
{
    struct dev *dev = NULL;
    if (access("/dev/nvidiactl", F_OK) == 0)
        HARNESS_SKIP("this machine has a GPU");
    struct conf *conf = conf_of(W("DEVICE=cuda"), W("N_GPU_EACH_NODE=2"), NULL);
    assert_int_equal(device_open(conf, 0, 1, &dev), ST_NO_DEVICE);
    assert_non_null(strstr(status_message(), "DEVICE=cpu"));
    assert_string_equal(device_kind(conf), "cuda");
    conf_close(conf);
    conf = conf_of(W("DEVICE=auto"), NULL, NULL);
    assert_string_equal(device_kind(conf), "cpu");
    assert_int_equal(device_workers(conf), 1);
    conf_close(conf);
}

/* ATTENTION=cudnn where no shape of a step could help. */
TEST(attention_by_cudnn)
{
    static const struct {
        const char *device, *precision;
        enum status want;
        const char *words;
    } cases[] = {{"DEVICE=cpu", "PRECISION=fp32", ST_NO_DEVICE, "needs a GPU"},
                 {"DEVICE=cuda", "PRECISION=fp32", ST_BAD_SETTING, "16 bits only"},
                 {"DEVICE=cuda", "PRECISION=tf32", ST_BAD_SETTING, "16 bits only"}};
    struct dev *dev = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct conf *conf =
            conf_of(W("ATTENTION=cudnn"), W(cases[i].device), W(cases[i].precision));
        assert_int_equal(device_open(conf, 0, 1, &dev), cases[i].want);
        assert_non_null(strstr(status_message(), "ATTENTION=cudnn"));
        assert_non_null(strstr(status_message(), cases[i].words));
        conf_close(conf);
    }
}

HARNESS_RUN_ALL()
