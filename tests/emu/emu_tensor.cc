/* emu_tensor — matrix products and loads of a warp, with fragments laid out as in the PTX manual
 * ("Matrix Fragments for mma.m16n8k16", "… mma.m16n8k8", ldmatrix), matrix instructions of AMD's
 * wavefronts (CDNA 2 and 3 ISA manuals), and the rounding of halves. */
#include "tests/emu/emu.h"

float emu_half_to_float(uint16_t bits)
{
    int exponent = bits >> 10 & 31;
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, fraction = bits & 0x3FF;
    if (exponent == 31)
        return __uint_as_float(sign | 0x7F800000u | fraction << 13);
    if (exponent == 0) {
        float small = (float)fraction * 0x1p-24f;
        return sign ? -small : small;
    }
    return __uint_as_float(sign | (uint32_t)(exponent + 112) << 23 | fraction << 13);
}

uint16_t emu_float_to_half(float x)
{
    uint32_t u = __float_as_uint(x), sign = u >> 16 & 0x8000, size = u & 0x7FFFFFFF;
    if (size > 0x7F800000)
        return 0x7FFF;
    if (size >= 0x477FF000) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7C00);
    if (size <
        0x38800000) { /* below 2^-14: a multiple of 2^-24, ties to even as nearbyint makes them */
        float steps = nearbyintf(__uint_as_float(size) * 0x1p24f);
        return (uint16_t)(sign | (uint32_t)steps);
    }
    return (uint16_t)(sign | ((size - 0x38000000 + 0xFFF + (size >> 13 & 1)) >> 13));
}

struct mma_args {
    float *d;
    const uint32_t *a, *b;
};

static float half_of(uint32_t word, int high, bool is_bf16)
{
    uint16_t bits = (uint16_t)(high ? word >> 16 : word);
    return is_bf16 ? __uint_as_float((uint32_t)bits << 16) : emu_half_to_float(bits);
}

/* The sum of a step, as a float: rounded toward zero, as the chips do. */
static float toward_zero(double x)
{
    float y = (float)x;
    return isfinite(y) && fabs((double)y) > fabs(x) ? nextafterf(y, 0) : y;
}

/* d (16,8) += a (16,k) · b (k,8), eight products at a time: these and what is there are added
 * exactly, then rounded toward zero (an A100's way; an H100 takes sixteen at a time). Kernels must
 * not rely on anything better. */
static void mma_add(struct mma_args **lanes, const float (*a)[16], const float (*b)[8], int k)
{
    typedef double row_sums __attribute__((vector_size(64)));
    row_sums sums[16], rows[16];
    for (int i = 0; i < k; i++)
        for (int col = 0; col < 8; col++)
            rows[i][col] = (double)b[i][col];
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++)
            sums[lane / 4 + (i >= 2 ? 8 : 0)][lane % 4 * 2 + (i & 1)] = (double)lanes[lane]->d[i];
    for (int first = 0; first < k; first += 8)
        for (int row = 0; row < 16; row++) {
            for (int i = first; i < first + 8; i++)
                sums[row] += (double)a[row][i] * rows[i];
            for (int col = 0; col < 8; col++)
                sums[row][col] = (double)toward_zero(sums[row][col]);
        }
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++)
            lanes[lane]->d[i] = (float)sums[lane / 4 + (i >= 2 ? 8 : 0)][lane % 4 * 2 + (i & 1)];
}

static void mma_k16(struct mma_args **lanes, bool is_bf16)
{
    float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; lane++) {
        int group = lane / 4, in_group = lane % 4;
        for (int i = 0; i < 8; i++) {
            int row = (i >= 0 && i < 2) || (i >= 4 && i < 6) ? group : group + 8;
            int col = in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);
            a[row][col] = half_of(lanes[lane]->a[i / 2], i & 1, is_bf16);
        }
        for (int i = 0; i < 4; i++)
            b[in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0)][group] =
                half_of(lanes[lane]->b[i / 2], i & 1, is_bf16);
    }
    mma_add(lanes, a, b, 16);
}

static float tf32_of(uint32_t word) { return __uint_as_float(word & 0xFFFFE000u); }

static void mma_k8(struct mma_args **lanes)
{
    float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; lane++) {
        int group = lane / 4, in_group = lane % 4;
        for (int i = 0; i < 4; i++)
            a[i & 1 ? group + 8 : group][in_group + (i >= 2 ? 4 : 0)] = tf32_of(lanes[lane]->a[i]);
        for (int i = 0; i < 2; i++)
            b[in_group + 4 * i][group] = tf32_of(lanes[lane]->b[i]);
    }
    mma_add(lanes, a, b, 8);
}

static void mma_bf16_all(void **args, unsigned mask)
{
    (void)mask, mma_k16((struct mma_args **)args, true);
}
static void mma_f16_all(void **args, unsigned mask)
{
    (void)mask, mma_k16((struct mma_args **)args, false);
}
static void mma_tf32_all(void **args, unsigned mask)
{
    (void)mask, mma_k8((struct mma_args **)args);
}

void emu_mma_bf16(float *d, const uint32_t *a, const uint32_t *b)
{
    struct mma_args args = {d, a, b};
    emu_warp(0xFFFFFFFFu, mma_bf16_all, &args);
}
void emu_mma_f16(float *d, const uint32_t *a, const uint32_t *b)
{
    struct mma_args args = {d, a, b};
    emu_warp(0xFFFFFFFFu, mma_f16_all, &args);
}
void emu_mma_tf32(float *d, const uint32_t *a, const uint32_t *b)
{
    struct mma_args args = {d, a, b};
    emu_warp(0xFFFFFFFFu, mma_tf32_all, &args);
}

#ifdef EMU_HIP
/* The instruction's own order of factors: the first is (16,k), the second (k,16). Lane 16·p + l
 * holds row l of the first and column l of the second, k·p/4 … of both, and of d column l, rows 4p …
 * 4p+3. */
struct mfma_args {
    float *d, first[4], second[4]; /* factors: elements of consecutive k */
};

/* Adds four products at a time to the sum, exactly, and rounds to nearest. */
static void mfma_k16_all(void **args, unsigned)
{
    struct mfma_args **lanes = (struct mfma_args **)args;
    for (int lane = 0; lane < 64; lane++)
        for (int v = 0; v < 4; v++) {
            float *d = &lanes[lane]->d[v];
            for (int p = 0; p < 4; p++) {
                const float *x = lanes[16 * p + lane / 16 * 4 + v]->first,
                            *y = lanes[16 * p + lane % 16]->second;
                double sum = (double)*d;
                for (int k = 0; k < 4; k++)
                    sum += (double)x[k] * (double)y[k];
                *d = (float)sum;
            }
        }
}

/* Adds the products one after the other, each by a fused multiply-add. */
static void mfma_k4_all(void **args, unsigned)
{
    struct mfma_args **lanes = (struct mfma_args **)args;
    for (int lane = 0; lane < 64; lane++)
        for (int v = 0; v < 4; v++)
            for (int p = 0; p < 4; p++)
                lanes[lane]->d[v] = fmaf(lanes[16 * p + lane / 16 * 4 + v]->first[0],
                                         lanes[16 * p + lane % 16]->second[0], lanes[lane]->d[v]);
}

/* Reads subnormal elements as 0, as gfx90a does. */
void emu_mfma_k16(float *d, const uint32_t *first, const uint32_t *second, bool is_bf16)
{
    struct mfma_args args = {d, {}, {}};
    const float least = is_bf16 ? 0x1p-126f : 0x1p-14f;
    for (int k = 0; k < 4; k++) {
        float x = half_of(first[k / 2], k % 2, is_bf16), y = half_of(second[k / 2], k % 2, is_bf16);
        args.first[k] = fabsf(x) < least ? 0 : x;
        args.second[k] = fabsf(y) < least ? 0 : y;
    }
    emu_wave(mfma_k16_all, &args);
}
void emu_mfma_k4(float *d, float first, float second)
{
    struct mfma_args args = {d, {first}, {second}};
    emu_wave(mfma_k4_all, &args);
}
#endif

struct ldmatrix_args {
    uint32_t *r;
    int matrices;
    bool trans;
    const uint16_t *row;
    const void *pc;
};

/* Lane 8m + j brings the address of row j of matrix m; every lane takes two elements of each
 * matrix. */
static void ldmatrix_all(void **args, unsigned mask)
{
    (void)mask;
    struct ldmatrix_args **lanes = (struct ldmatrix_args **)args;
    const void *rows[32];
    for (int lane = 0; lane < 32; lane++)
        rows[lane] = lanes[lane]->row;
    if (emu_watch)
        emu_watch->ldmatrix(rows, lanes[0]->matrices, lanes[0]->pc);
    for (int lane = 0; lane < 32; lane++)
        for (int m = 0; m < lanes[lane]->matrices; m++) {
            uint16_t e[2];
            for (int i = 0; i < 2; i++) {
                int row = lanes[lane]->trans ? lane % 4 * 2 + i : lane / 4;
                int col = lanes[lane]->trans ? lane / 4 : lane % 4 * 2 + i;
                e[i] = lanes[8 * m + row]->row[col];
            }
            lanes[lane]->r[m] = (uint32_t)e[0] | (uint32_t)e[1] << 16;
        }
}

void emu_ldmatrix(uint32_t *r, int matrices, bool trans, const void *row)
{
    if (emu_where.lane < 8 * matrices)
        emu_check_aligned(row, 16, "ldmatrix");
    struct ldmatrix_args args = {r, matrices, trans, (const uint16_t *)row,
                                 __builtin_return_address(0)};
    emu_warp(0xFFFFFFFFu, ldmatrix_all, &args);
}
