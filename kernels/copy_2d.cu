/* copy_2d — copies words of 16 bytes if addresses, strides and rows are multiples of 16 bytes, else
 * of the largest size that divides them; with a factor one element after the other (copy_2d.h). */
#include "kernels/stride.cuh"

constexpr int THREADS = 256;

/* In words; a thread's row and column advance without a division. */
struct copy_args {
    int64_t rows, columns, y_stride, x_stride;
};

/* T: the type of the elements that a thread copies; if IS_SCALED, a floating-point type. */
template <typename T, bool IS_SCALED>
__global__ void __launch_bounds__(THREADS)
    copy_2d_each(T *y, const T *x, struct copy_args a, float scale)
{
    int64_t row = thread_first() / a.columns, column = thread_first() % a.columns;
    const int64_t rows = thread_step() / a.columns, columns = thread_step() % a.columns;
    while (row < a.rows) {
        T *to = y + row * a.y_stride + column;
        const T *from = x + row * a.x_stride + column;
        if constexpr (IS_SCALED)
            *to = from_float<T>(scale * to_float(*from));
        else
            *to = *from;
        row += rows;
        column += columns;
        if (column >= a.columns) {
            column -= a.columns;
            row++;
        }
    }
}

/* is_whole — returns true if all bytes that the launch touches are whole words. */
static bool is_whole(const struct copy_2d *a, size_t bytes, size_t word)
{
    const uintptr_t all =
        (uintptr_t)a->y.data | (uintptr_t)a->x.data | (uintptr_t)((size_t)a->columns * bytes) |
        (uintptr_t)((size_t)a->y_stride * bytes) | (uintptr_t)((size_t)a->x_stride * bytes);
    return all % word == 0;
}

template <typename Word> static int copy_words(const struct cuda *cuda, const struct copy_2d *a)
{
    const int64_t bytes = (int64_t)dtype_bytes(a->x.dtype), word = (int64_t)sizeof(Word);
    const struct copy_args args = {a->rows, a->columns * bytes / word, a->y_stride * bytes / word,
                                   a->x_stride * bytes / word};
    return cuda_launch(copy_2d_each<Word, false>,
                       cuda_blocks(cuda, args.rows * args.columns, THREADS), THREADS, 0,
                       cuda->stream, (Word *)a->y.data, (const Word *)a->x.data, args, 0.0f);
}

template <typename T> static int scale_rows(const struct cuda *cuda, const struct copy_2d *a)
{
    const struct copy_args args = {a->rows, a->columns, a->y_stride, a->x_stride};
    return cuda_launch(copy_2d_each<T, true>, cuda_blocks(cuda, a->rows * a->columns, THREADS),
                       THREADS, 0, cuda->stream, (T *)a->y.data, (const T *)a->x.data, args,
                       a->scale);
}

extern "C" int copy_2d_cuda(const struct cuda *cuda, const struct copy_2d *a)
{
    const size_t bytes = dtype_bytes(a->x.dtype);
    if (a->rows == 0)
        return 0;
    if (a->y.dtype != a->x.dtype)
        return CUDA_REFUSAL_DTYPE;
    if (a->scale != 0 && a->x.dtype == DTYPE_F32)
        return scale_rows<float>(cuda, a);
    if (a->scale != 0 && a->x.dtype == DTYPE_BF16)
        return scale_rows<bf16>(cuda, a);
    if (a->scale != 0)
        return a->x.dtype == DTYPE_F16 ? scale_rows<f16>(cuda, a) : CUDA_REFUSAL_DTYPE;
    if (is_whole(a, bytes, sizeof(uint4)))
        return copy_words<uint4>(cuda, a);
    if (is_whole(a, bytes, sizeof(uint32_t)))
        return copy_words<uint32_t>(cuda, a);
    return is_whole(a, bytes, sizeof(uint16_t)) ? copy_words<uint16_t>(cuda, a)
                                                : copy_words<uint8_t>(cuda, a);
}
