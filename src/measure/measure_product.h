/* measure_product — work that measures matrix products: one product, or the products of a
 * transformer's layers in the order and with the operations of a training step. Must not know which
 * rates are good. */
#ifndef CONVOY_MEASURE_PRODUCT_H
#define CONVOY_MEASURE_PRODUCT_H

#include "measure/measure_memory.h"

enum measure_product_kind {
    MEASURE_PRODUCT_FORWARD, /* y = x·w */
    MEASURE_PRODUCT_LAYER,   /* a layer, forward and backward: three products */
    MEASURE_PRODUCT_BLOCK,   /* the two layers of a block, in → out → in: six products */
    MEASURE_PRODUCT_HEAD     /* a layer whose `out` is a vocabulary, and the loss */
};

/* Products of layers of `in` × `out` on n rows. */
struct measure_product {
    enum measure_product_kind kind;
    int64_t n, in, out;
    enum dtype dtype;
};

struct measure_product_run {
    struct measure_product product;
    struct measure_turns turns;
};

/* Returns the floating-point operations of one run, without the loss of a head. */
double measure_product_flops(const struct measure_product *product);
/* Returns the bytes of the arguments of one run. */
int64_t measure_product_bytes(const struct measure_product *product);
/* Prepares runs with arguments by turns. Returns false if the memory is too small. */
bool measure_product_open(const struct measure_product *product,
                          const struct measure_memory *memory, struct measure_product_run *out);
/* Runs the products once (measure_work); run: a struct measure_product_run. */
enum status measure_product_work(void *run);

#endif
