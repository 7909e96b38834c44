/* test_ckpt_compare — the first tensor that differs, and how: a bit, a sign of zero, a shape, a
 * missing part. */
#include "harness.h"

#include <math.h>

#include "base/file.h"
#include "base/text.h"
#include "format/ckpt_compare.h"

static struct ckpt *left, *right;
static int made_n;

/* make — a checkpoint of two parts (m: left out where parts_n is 1) with tensors a and b. */
static struct ckpt *make(int parts_n, int64_t elems, float b2)
{
    const float a[4] = {0, 1, 2, 3}, b[4] = {5, 6, b2, 8};
    const struct safetensors_source source[] = {{"a", DTYPE_F32, 1, {4}, .data = a},
                                                {"b", DTYPE_F32, 1, {elems}, .data = b}};
    const struct ckpt_part part[] = {{"model", source, 2}, {"optim_m", source, 2}};
    const struct ckpt_meta meta = {
        .step = 1, .model_json = "{}", .settings_json = "{}", .version = "t"};
    char dir[FILE_PATH_MAX], path[FILE_PATH_MAX], name[16];
    struct ckpt_lock *lock;
    struct ckpt *ckpt;
    text_format(name, sizeof name, "run%d", made_n++);
    assert_int_equal(file_join(dir, sizeof dir, harness_tmpdir(), name), ST_OK);
    assert_int_equal(ckpt_lock(dir, &lock), ST_OK);
    assert_int_equal(ckpt_save(lock, &meta, part, parts_n, 0, NULL, path, sizeof path), ST_OK);
    ckpt_lock_release(lock);
    assert_int_equal(ckpt_open(path, NULL, &ckpt), ST_OK);
    return ckpt;
}

static struct ckpt_compare_result compare(struct ckpt *a, struct ckpt *b)
{
    struct ckpt_compare_result r;
    left = a, right = b;
    ckpt_compare(left, right, &r);
    ckpt_close(left);
    ckpt_close(right);
    return r;
}

static void test_equal(void **state)
{
    (void)state;
    struct ckpt_compare_result r = compare(make(2, 4, 7), make(2, 4, 7));
    assert_string_equal(r.part, "");
    assert_int_equal(r.tensors_n, 4);
    r = compare(make(1, 4, NAN), make(1, 4, NAN)); /* bits, not numbers */
    assert_string_equal(r.part, "");
}

static void test_bits(void **state)
{
    (void)state;
    struct ckpt_compare_result r = compare(make(2, 4, 7), make(2, 4, nextafterf(7, 8)));
    assert_string_equal(r.part, "model");
    assert_string_equal(r.tensor, "b");
    assert_true(r.elem == 2 && r.differ_n == 1 && r.elems == 4 && r.tensors_n == 2);
    assert_true(r.left == 7 && r.right > 7);
    r = compare(make(1, 4, 0.0f), make(1, 4, -0.0f));
    assert_true(r.elem == 2 && r.differ_n == 1);
}

static void test_shapes(void **state)
{
    (void)state;
    struct ckpt_compare_result r = compare(make(1, 4, 7), make(1, 3, 7));
    assert_string_equal(r.tensor, "b");
    assert_true(r.elem == -1 && r.differ_n == 0);
    r = compare(make(2, 4, 7), make(1, 4, 7));
    assert_string_equal(r.part, "optim_m");
    assert_string_equal(r.tensor, "");
    r = compare(make(1, 4, 7), make(2, 4, 7));
    assert_string_equal(r.part, "optim_m");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_equal),
    cmocka_unit_test(test_bits),
    cmocka_unit_test(test_shapes),
};
HARNESS_MAIN(tests)
