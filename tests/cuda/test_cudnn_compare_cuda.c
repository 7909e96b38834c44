/* `gpu_tests cudnn` (tests/gpu/real_cudnn.c) with small sizes, without a GPU: cuDNN's
 * results agree with the program's own, and each result that does not is named. */
#include "kernel_test.h"

#include "tests/cuda/guarded.h"

#define CUDNN_DRY
#include "tests/gpu/real_cudnn.c"

/* output_of — Returns what a call prints; valid until the next call. */
static const char *output_of(void (*call)(void))
{
    static char text[4096];
    FILE *file = tmpfile();
    fflush(stdout);
    int saved = dup(STDOUT_FILENO);
    assert_true(file != NULL && saved >= 0);
    dup2(fileno(file), STDOUT_FILENO);
    call();
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    ssize_t n = pread(fileno(file), text, sizeof text - 1, 0);
    fclose(file);
    text[n > 0 ? n : 0] = 0;
    return text;
}

/* use_fake_cudnn — The tests' cuDNN (fake_cudnn.c) runs its plans on the tests' device. */
static void use_fake_cudnn(void)
{
    void *library = dlopen(here("/libcudnn_graph.so.9"), RTLD_NOW);
    assert_non_null(library);
    guarded_through(library, "fake_cudnn_device");
}

static int status;
static void compare_sides(void) { status = real_cudnn(); }

TEST(both_agree)
{
    dev_close(open_device()); /* the launchers of the emulation, and the tests' libraries */
    use_fake_cudnn();
    const char *text = output_of(compare_sides);
    if (status != 0 || strstr(text, "not ok") || !strstr(text, "ok 5 - attention_bwd dv"))
        fail_msg("status %d: %s", status, text);
    assert_int_equal(runtime.blocks_n + runtime.streams_n, 0);
}

/* One head of one sample is left out of the keys' gradients. */
static void leave_a_head_out(void)
{
    static struct numbers want, got;
    fill(want.dqkv, ROWS * 3 * C, 3);
    memcpy(got.dqkv, want.dqkv, sizeof got.dqkv);
    for (int i = 0; i < T; i++)
        memset(&got.dqkv[i * 3 * C + C], 0, D * sizeof(uint16_t));
    compare_16("attention_bwd dq", got.dqkv, want.dqkv, 3 * C, 0, C);
    compare_16("attention_bwd dk", got.dqkv, want.dqkv, 3 * C, C, C);
}

TEST(a_difference_is_named)
{
    const char *text = output_of(leave_a_head_out), *bad = strstr(text, "not ok");
    assert_non_null(bad);
    assert_non_null(strstr(bad, "attention_bwd dk: nmse 0.2"));
    assert_null(strstr(bad + 1, "not ok"));
}

HARNESS_RUN_ALL()
