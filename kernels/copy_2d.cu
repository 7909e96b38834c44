/* copy_2d — copies words of 16 bytes if addresses, strides and rows are multiples of 16 bytes, else
 * of the largest size that divides them (copy_2d.h). */
#include "kernels/stride.cuh"

constexpr int THREADS = 256;

/* In words; a thread's row and column advance without a division. */
struct copy_args {
    int64_t rows, columns, y_stride, x_stride;
};

template <typename Word>
__global__ void __launch_bounds__(THREADS) copy_2d_words(Word *y, const Word *x, struct copy_args a)
{
    int64_t row = thread_first() / a.columns, column = thread_first() % a.columns;
    const int64_t rows = thread_step() / a.columns, columns = thread_step() % a.columns;
    while (row < a.rows) {
        y[row * a.y_stride + column] = x[row * a.x_stride + column];
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
    return cuda_launch(copy_2d_words<Word>, cuda_blocks(cuda, args.rows * args.columns, THREADS),
                       THREADS, 0, cuda->stream, (Word *)a->y.data, (const Word *)a->x.data, args);
}

extern "C" int copy_2d_cuda(const struct cuda *cuda, const struct copy_2d *a)
{
    const size_t bytes = dtype_bytes(a->x.dtype);
    if (a->rows == 0)
        return 0;
    if (a->y.dtype != a->x.dtype)
        return CUDA_REFUSAL_DTYPE;
    if (is_whole(a, bytes, sizeof(uint4)))
        return copy_words<uint4>(cuda, a);
    if (is_whole(a, bytes, sizeof(uint32_t)))
        return copy_words<uint32_t>(cuda, a);
    return is_whole(a, bytes, sizeof(uint16_t)) ? copy_words<uint16_t>(cuda, a)
                                                : copy_words<uint8_t>(cuda, a);
}
