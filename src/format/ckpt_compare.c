/* ckpt_compare — see ckpt_compare.h. */
#include "format/ckpt_compare.h"

#include <string.h>

#include "base/text.h"
#include "format/ckpt_inside.h"

static const struct ckpt_file *find_part(const struct ckpt *ckpt, const char *name)
{
    for (int i = 0; i < ckpt->parts_n; i++)
        if (strcmp(ckpt->part[i].name, name) == 0)
            return &ckpt->part[i];
    return NULL;
}

static bool has_shape(const struct safetensors_entry *a, const struct safetensors_entry *b)
{
    return a->dtype == b->dtype && a->dims_n == b->dims_n &&
           memcmp(a->dim, b->dim, (size_t)a->dims_n * sizeof *a->dim) == 0;
}

/* count — the elements that differ; the first one goes to out. */
static void count(const struct safetensors_entry *a, const struct safetensors_entry *b,
                  struct ckpt_compare_result *out)
{
    const size_t bytes = dtype_bytes(a->dtype);
    out->elems = a->elems;
    for (int64_t i = 0; i < a->elems; i++) {
        const size_t at = (size_t)i * bytes;
        if (memcmp(a->data + at, b->data + at, bytes) != 0 && out->differ_n++ == 0)
            out->elem = i;
    }
    safetensors_to_f32(a, out->elem, 1, &out->left);
    safetensors_to_f32(b, out->elem, 1, &out->right);
}

/* compare_tensor — b NULL: there is none. */
static bool compare_tensor(const struct safetensors_entry *a, const struct safetensors_entry *b,
                           struct ckpt_compare_result *out)
{
    out->tensors_n++;
    const bool is_there = b && has_shape(a, b);
    if (is_there && memcmp(a->data, b->data, a->bytes) == 0)
        return true;
    text_copy(out->tensor, sizeof out->tensor, a->name);
    if (is_there)
        count(a, b, out);
    return false;
}

/* compare_part — true: equal. */
static bool compare_part(const struct ckpt *left, const struct ckpt_file *a,
                         const struct ckpt *right, struct ckpt_compare_result *out)
{
    const struct ckpt_file *b = find_part(right, a->name);
    if (!b)
        return false;
    for (int i = 0; i < a->tensors.entries_n; i++) {
        const struct safetensors_entry *x = &a->tensors.entry[i],
                                       *y = safetensors_find(&b->tensors, x->name);
        if (!compare_tensor(x, y, out))
            return false;
        ckpt_release(left, x);
        ckpt_release(right, y);
    }
    return a->tensors.entries_n == b->tensors.entries_n;
}

void ckpt_compare(const struct ckpt *left, const struct ckpt *right,
                  struct ckpt_compare_result *out)
{
    *out = (struct ckpt_compare_result){.elem = -1};
    for (int i = 0; i < left->parts_n; i++)
        if (!compare_part(left, &left->part[i], right, out)) {
            text_copy(out->part, sizeof out->part, left->part[i].name);
            return;
        }
    for (int i = 0; i < right->parts_n; i++)
        if (!find_part(left, right->part[i].name))
            text_copy(out->part, sizeof out->part, right->part[i].name);
}
