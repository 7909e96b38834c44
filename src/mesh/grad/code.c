/* grad_code — chunks of coded gradients (grad/code.h). Level 1 of zstd: higher levels make messages
 * only a little shorter, and need more time than most links need for the bytes saved
 * (docs/benchmarks.md). */
#include "mesh/grad/code.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/assert.h"
#include "base/memory.h"

#define LEVEL 1
#define LENGTH_BYTES ((int64_t)sizeof(uint32_t))

struct grad_code {
    ZSTD_CCtx *encoder;
    ZSTD_DCtx *decoder;
    uint8_t *numbers; /* numbers of a chunk */
};

int64_t grad_code_memory(void)
{
    return (int64_t)sizeof(struct grad_code) + GRAD_CODE_CHUNK_BYTES + GRAD_CODE_ZSTD_BYTES;
}

int64_t grad_code_zstd_bytes(const struct grad_code *code)
{
    return (int64_t)(ZSTD_sizeof_CCtx(code->encoder) + ZSTD_sizeof_DCtx(code->decoder));
}

enum status grad_code_open(struct grad_code **out)
{
    struct grad_code *code = memory_new(1, sizeof *code);
    code->encoder = ZSTD_createCCtx();
    code->decoder = ZSTD_createDCtx();
    code->numbers = memory_new(GRAD_CODE_CHUNK_BYTES, 1);
    if (!code->encoder || !code->decoder ||
        ZSTD_isError(ZSTD_CCtx_setParameter(code->encoder, ZSTD_c_compressionLevel, LEVEL))) {
        grad_code_close(code);
        return FAIL(memory_status(grad_code_memory()),
                    "out of memory: buffers to code gradients; use COMPRESS=int8 or int4");
    }
    *out = code;
    return ST_OK;
}

void grad_code_close(struct grad_code *code)
{
    if (!code)
        return;
    ZSTD_freeCCtx(code->encoder);
    ZSTD_freeDCtx(code->decoder);
    free(code->numbers);
    free(code);
}

static int64_t number_bytes(struct grad_code_block block)
{
    return block.bytes - block.scale_bytes;
}

static int64_t chunk_blocks(struct grad_code_block block)
{
    return GRAD_CODE_CHUNK_BYTES / number_bytes(block);
}

int64_t grad_code_bound(struct grad_code_block block, int64_t blocks_n)
{
    int64_t each = chunk_blocks(block), chunks_n = (blocks_n + each - 1) / each;
    return chunks_n * LENGTH_BYTES + blocks_n * block.bytes;
}

/* Writes the payload to `out`, where n bytes fit. Returns its bytes. */
static int64_t encode_numbers(struct grad_code *code, int64_t n, uint8_t *out)
{
    size_t bytes = ZSTD_compress2(code->encoder, out, (size_t)n, code->numbers, (size_t)n);
    if (!ZSTD_isError(bytes) && (int64_t)bytes < n)
        return (int64_t)bytes;
    memcpy(out, code->numbers, (size_t)n);
    return n;
}

static int64_t encode_chunk(struct grad_code *code, struct grad_code_block block,
                            const uint8_t *packed, int64_t blocks_n, uint8_t *out)
{
    const int64_t each = number_bytes(block);
    uint8_t *scales = out + LENGTH_BYTES, *payload = scales + blocks_n * block.scale_bytes;
    for (int64_t b = 0; b < blocks_n; b++, packed += block.bytes) {
        memcpy(scales + b * block.scale_bytes, packed, (size_t)block.scale_bytes);
        memcpy(code->numbers + b * each, packed + block.scale_bytes, (size_t)each);
    }
    uint32_t bytes = (uint32_t)encode_numbers(code, blocks_n * each, payload);
    memcpy(out, &bytes, sizeof bytes);
    return payload - out + bytes;
}

int64_t grad_code_encode(struct grad_code *code, struct grad_code_block block,
                         const uint8_t *packed, int64_t blocks_n, uint8_t *out)
{
    int64_t each = chunk_blocks(block), at = 0;
    for (int64_t first = 0; first < blocks_n; first += each) {
        int64_t n = blocks_n - first < each ? blocks_n - first : each;
        at += encode_chunk(code, block, packed + first * block.bytes, n, out + at);
    }
    return at;
}

static enum status decode_numbers(struct grad_code *code, const uint8_t *payload, int64_t bytes,
                                  int64_t n)
{
    if (bytes == n) {
        memcpy(code->numbers, payload, (size_t)n);
        return ST_OK;
    }
    size_t got =
        ZSTD_decompressDCtx(code->decoder, code->numbers, (size_t)n, payload, (size_t)bytes);
    if (ZSTD_isError(got))
        return FAIL(ST_PEER, "coded gradients of %lld bytes are damaged: %s", (long long)bytes,
                    ZSTD_getErrorName(got));
    return (int64_t)got == n ? ST_OK
                             : FAIL(ST_PEER, "coded gradients are damaged: %lld bytes, not %lld",
                                    (long long)got, (long long)n);
}

/* Decodes a chunk. *at: the begin of the chunk, then of the next one. */
static enum status decode_chunk(struct grad_code *code, struct grad_code_block block,
                                const uint8_t *coded, int64_t coded_bytes, int64_t *at,
                                uint8_t *packed, int64_t blocks_n)
{
    const int64_t each = number_bytes(block), scales_bytes = blocks_n * block.scale_bytes,
                  left = coded_bytes - *at - LENGTH_BYTES - scales_bytes;
    const uint8_t *scales = coded + *at + LENGTH_BYTES;
    uint32_t bytes = 0;
    if (left >= 0)
        memcpy(&bytes, coded + *at, sizeof bytes);
    if (left < 0 || bytes > left || bytes > blocks_n * each)
        return FAIL(ST_PEER,
                    "coded gradients are damaged: a chunk of %lu bytes where %lld are left",
                    (unsigned long)bytes, (long long)left);
    TRY(decode_numbers(code, scales + scales_bytes, bytes, blocks_n * each));
    for (int64_t b = 0; b < blocks_n; b++, packed += block.bytes) {
        memcpy(packed, scales + b * block.scale_bytes, (size_t)block.scale_bytes);
        memcpy(packed + block.scale_bytes, code->numbers + b * each, (size_t)each);
    }
    *at += LENGTH_BYTES + scales_bytes + bytes;
    return ST_OK;
}

enum status grad_code_decode(struct grad_code *code, struct grad_code_block block,
                             const uint8_t *coded, int64_t coded_bytes, uint8_t *packed,
                             int64_t blocks_n)
{
    int64_t each = chunk_blocks(block), at = 0;
    for (int64_t first = 0; first < blocks_n; first += each) {
        int64_t n = blocks_n - first < each ? blocks_n - first : each;
        TRY(decode_chunk(code, block, coded, coded_bytes, &at, packed + first * block.bytes, n));
    }
    return ST_OK;
}

#ifdef FUZZ
/* Reads two bytes, the number of blocks; then a message, and blocks to code. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct grad_code *code;
    const struct grad_code_block block = {132, 4};
    if (size < 2 || (!code && grad_code_open(&code) != ST_OK))
        return 0;
    int64_t blocks_n = (data[0] | data[1] << 8) % 4096, rest = (int64_t)size - 2,
            own_n = rest / block.bytes;
    uint8_t *message = malloc(rest > 0 ? (size_t)rest : 1),
            *packed = malloc((size_t)((blocks_n + own_n) * block.bytes) + 1),
            *coded = malloc((size_t)grad_code_bound(block, own_n) + 1);
    memcpy(message, data + 2, (size_t)rest);
    (void)grad_code_decode(code, block, message, rest, packed, blocks_n);
    int64_t coded_n = grad_code_encode(code, block, message, own_n, coded);
    if (coded_n > grad_code_bound(block, own_n) ||
        grad_code_decode(code, block, coded, coded_n, packed, own_n) != ST_OK ||
        (own_n > 0 && memcmp(packed, message, (size_t)(own_n * block.bytes))))
        ASSERTF(false, "%lld bytes of %lld blocks do not come back", (long long)coded_n,
                (long long)own_n);
    free(message);
    free(packed);
    free(coded);
    return 0;
}
#endif
