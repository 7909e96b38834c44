/* fake_cudnn_run — computes a graph, one head after the other (fake_cudnn.h). */
#include "fake_cudnn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float read_16(int type, const void *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    if (type == DNN_DATA_BFLOAT16) {
        uint32_t bits = (uint32_t)half << 16;
        float x;
        memcpy(&x, &bits, sizeof x);
        return x;
    }
    _Float16 x;
    memcpy(&x, &half, sizeof x);
    return (float)x;
}

static uint16_t write_16(int type, float x)
{
    uint32_t bits;
    uint16_t half;
    memcpy(&bits, &x, sizeof bits);
    _Float16 f16 = (_Float16)x;
    memcpy(&half, &f16, sizeof half);
    if (type != DNN_DATA_BFLOAT16)
        return half;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* round_to — x as the tensor's type keeps it. */
static float round_to(int type, float x)
{
    if (type != DNN_DATA_HALF && type != DNN_DATA_BFLOAT16)
        return x;
    uint16_t half = write_16(type, x);
    return read_16(type, &half);
}

/* The matrix of one head of a tensor: rows·cols numbers. */
struct matrix {
    float *x;
    int64_t rows, cols;
};

static void load(const struct tensor *t, struct matrix *p, int64_t b, int64_t h)
{
    for (int64_t i = 0; i < p->rows * p->cols; i++) {
        int64_t at = b * t->strides[0] + h * t->strides[1] + i / p->cols * t->strides[2] +
                     i % p->cols * t->strides[3];
        if (t->is_host)
            p->x[i] = t->value;
        else if (t->type == DNN_DATA_FLOAT)
            memcpy(&p->x[i], t->at + 4 * at, 4);
        else
            p->x[i] = read_16(t->type, t->at + 2 * at);
    }
}

static void store(const struct tensor *t, const struct matrix *p, int64_t b, int64_t h)
{
    for (int64_t i = 0; i < p->rows * p->cols; i++) {
        int64_t at = b * t->strides[0] + h * t->strides[1] + i / p->cols * t->strides[2] +
                     i % p->cols * t->strides[3];
        uint16_t half = write_16(t->type, p->x[i]);
        if (t->type == DNN_DATA_FLOAT)
            memcpy(t->at + 4 * at, &p->x[i], 4);
        else
            memcpy(t->at + 2 * at, &half, 2);
    }
}

static float value(const struct matrix *p, int64_t row, int64_t col)
{
    return p->x[(p->rows == 1 ? 0 : row) * p->cols + (p->cols == 1 ? 0 : col)];
}

static float pointwise(const struct step *s, const struct matrix *const *in, int64_t row,
                       int64_t col)
{
    float x = value(in[0], row, col), y = s->in_n > 1 ? value(in[1], row, col) : 0;
    switch (s->mode) {
    case DNN_POINTWISE_ADD:
        return x + y;
    case DNN_POINTWISE_MUL:
        return x * y;
    case DNN_POINTWISE_SUB:
        return x - y;
    case DNN_POINTWISE_DIV:
        return x / y;
    case DNN_POINTWISE_EXP:
        return expf(x);
    case DNN_POINTWISE_LOG:
        return logf(x);
    case DNN_POINTWISE_IDENTITY:
        return x;
    case DNN_POINTWISE_CMP_GE:
        return x >= y;
    case DNN_POINTWISE_GEN_INDEX:
        return (float)(s->axis == 2 ? row : col);
    case DNN_POINTWISE_BINARY_SELECT:
        return value(in[2], row, col) != 0 ? x : y;
    default:
        return NAN;
    }
}

static float reduced(const struct step *s, const struct matrix *in, int64_t row)
{
    float sum = s->mode == DNN_REDUCE_TENSOR_MAX ? -INFINITY : 0;
    for (int64_t i = 0; i < in->cols; i++) {
        float x = in->x[row * in->cols + i];
        sum = s->mode == DNN_REDUCE_TENSOR_MAX ? fmaxf(sum, x) : sum + x;
    }
    return sum;
}

static float product(const struct matrix *a, const struct matrix *b, int64_t row, int64_t col,
                     int type)
{
    float sum = 0;
    for (int64_t i = 0; i < a->cols; i++)
        sum += round_to(type, a->x[row * a->cols + i]) * b->x[i * b->cols + col];
    return sum;
}

/* Adds a head to the sum of its group. The sum is rounded when it is stored. */
static void add_head(const struct job *j, const struct step *s, struct matrix *matrices, int64_t h)
{
    struct matrix *out = &matrices[s->out];
    int64_t group = j->tensor[s->in[0]].dims[1] / j->tensor[s->out].dims[1];
    for (int64_t i = 0; i < out->rows * out->cols; i++)
        out->x[i] = (h % group == 0 ? 0 : out->x[i]) + matrices[s->in[0]].x[i];
}

static bool is_of_heads(const struct job *j, const struct step *s)
{
    return s->type == OR && j->tensor[s->out].dims[1] < j->tensor[s->in[0]].dims[1];
}

static void do_step(const struct job *j, const struct step *s, struct matrix *matrices)
{
    struct matrix *out = &matrices[s->out];
    const struct matrix *in[3];
    for (int i = 0; i < s->in_n; i++)
        in[i] = &matrices[s->in[i]];
    for (int64_t i = 0; i < out->rows * out->cols; i++) {
        int64_t row = i / out->cols, col = i % out->cols;
        float x = s->type == OM   ? product(in[0], in[1], row, col, j->tensor[s->in[1]].type)
                  : s->type == OR ? reduced(s, in[0], row)
                  : s->type == OV ? value(in[0], col, row)
                                  : pointwise(s, in, row, col);
        out->x[i] = round_to(j->tensor[s->out].type, x);
    }
}

/* A tensor with fewer heads than heads_n is read, or written, for a group of heads that follow each
 * other. */
static void do_head(const struct job *j, struct matrix *matrices, int64_t b, int64_t h,
                    int64_t heads_n)
{
    for (int i = 0; i < j->tensors_n; i++)
        if (!j->tensor[i].is_out && !j->tensor[i].is_virtual)
            load(&j->tensor[i], &matrices[i], b, h * j->tensor[i].dims[1] / heads_n);
    for (int i = 0; i < j->steps_n; i++)
        if (is_of_heads(j, &j->step[i]))
            add_head(j, &j->step[i], matrices, h);
        else
            do_step(j, &j->step[i], matrices);
    for (int i = 0; i < j->tensors_n; i++)
        if (j->tensor[i].is_out && !j->tensor[i].is_virtual)
            store(&j->tensor[i], &matrices[i], b, h * j->tensor[i].dims[1] / heads_n);
}

/* Notes the stored elements of a tensor: whole rows where they are dense. */
static void touch(const struct tensor *t)
{
    const int64_t *n = t->dims, *by = t->strides, bytes = t->type == DNN_DATA_FLOAT ? 4 : 2;
    const int64_t run = by[3] == 1 ? n[3] : 1;
    for (int64_t i = 0; i < n[0] * n[1] * n[2] * n[3]; i += run) {
        int64_t at = i / (n[1] * n[2] * n[3]) * by[0] + i / (n[2] * n[3]) % n[1] * by[1] +
                     i / n[3] % n[2] * by[2] + i % n[3] * by[3];
        fake_cudnn_touch("cudnnBackendExecute", t->at + at * bytes, (size_t)(run * bytes),
                         t->is_out);
    }
}

static void touch_all(const struct job *j)
{
    for (int i = 0; i < j->tensors_n; i++)
        if (!j->tensor[i].is_virtual && !j->tensor[i].is_host)
            touch(&j->tensor[i]);
    fake_cudnn_touch("cudnnBackendExecute", j->workspace, (size_t)j->workspace_bytes, 1);
}

int fake_cudnn_run(void *arg)
{
    const struct job *j = arg;
    if (fake_cudnn_touch)
        touch_all(j);
    struct matrix matrices[TENSORS_MAX];
    const int64_t *all = j->tensor[j->step[j->steps_n - 1].out].dims;
    memset(j->workspace, 0xff, (size_t)j->workspace_bytes); /* it is all the plan's */
    for (int i = 0; i < j->tensors_n; i++) {
        matrices[i] = (struct matrix){.rows = j->tensor[i].dims[2], .cols = j->tensor[i].dims[3]};
        matrices[i].x = malloc((size_t)(matrices[i].rows * matrices[i].cols) * sizeof(float));
    }
    for (int64_t bh = 0; bh < all[0] * all[1]; bh++)
        do_head(j, matrices, bh / all[1], bh % all[1], all[1]);
    for (int i = 0; i < j->tensors_n; i++)
        free(matrices[i].x);
    return 0;
}
