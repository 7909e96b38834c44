/* fake_blas — what the tests' cuBLASLt (fake_blas.c) counts, and what steers it. */
#ifndef CONVOY_TESTS_FAKE_BLAS_H
#define CONVOY_TESTS_FAKE_BLAS_H

#define FAKE_ALGOS 3 /* proposed for each product */

enum {
    FAKE_WITH,    /* products with an epilogue */
    FAKE_WITHOUT, /* products without one */
    FAKE_REFUSED, /* searches for a product that is not possible */
    FAKE_SHAPES,  /* searches */
    FAKE_NEVER,   /* set by a test: no product is possible */
    FAKE_HALVES,  /* products of 16-bit numbers */
    FAKE_WRONG,   /* calls that the manual does not allow */
    FAKE_FAILS,   /* set by a test: so many products fail on the GPU */
    FAKE_STALE,   /* set by a test: no algorithm passes a check */
    FAKE_TARGET,  /* multiprocessors of the newest product; 0: all */
    FAKE_CHOSEN,  /* products by the first algorithm, and by each of the others */
    FAKE_COUNTS = FAKE_CHOSEN + FAKE_ALGOS
};

#endif
