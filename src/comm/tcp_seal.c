/* tcp_seal — see tcp_seal.h. */
#include "comm/tcp_seal.h"

#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#define GCM_TAG_BYTES 16

/* On the wire as it lies in memory: little-endian. Up to `sum` it is readable. */
struct plain {
    uint64_t tag;
    int64_t total, at;
    uint32_t bytes, unused;
};
_Static_assert(sizeof(struct plain) + TCP_SUM_BYTES + GCM_TAG_BYTES == TCP_SEAL_BYTES,
               "as it travels");

bool tcp_seal_open(struct tcp_seal *seal, const struct tcp_auth_keys *keys, bool sends)
{
    *seal = (struct tcp_seal){.keys = *keys, .cipher = EVP_CIPHER_CTX_new()};
    return seal->cipher != NULL && EVP_CipherInit_ex(seal->cipher, EVP_aes_128_gcm(), NULL,
                                                     seal->keys.head, NULL, sends) == 1;
}

void tcp_seal_close(struct tcp_seal *seal)
{
    EVP_CIPHER_CTX_free(seal->cipher);
    OPENSSL_cleanse(seal, sizeof(*seal));
}

/* The next part's nonce, and the readable bytes. */
static bool begin(struct tcp_seal *seal, const uint8_t *plain)
{
    uint8_t nonce[12] = {0};
    int n;
    memcpy(nonce, &seal->parts, sizeof(seal->parts));
    seal->parts++;
    return EVP_CipherInit_ex(seal->cipher, NULL, NULL, NULL, nonce, -1) == 1 &&
           EVP_CipherUpdate(seal->cipher, NULL, &n, plain, sizeof(struct plain)) == 1;
}

bool tcp_seal_write(struct tcp_seal *seal, const struct tcp_seal_head *head, const void *content,
                    uint8_t out[TCP_SEAL_BYTES])
{
    struct plain plain = {
        .tag = head->tag, .total = head->total, .at = head->at, .bytes = (uint32_t)head->bytes};
    uint8_t sum[TCP_SUM_BYTES] = {0}, *at = out + sizeof(plain);
    int n;
    if (head->bytes > 0)
        tcp_sum(seal->keys.sum, content, (size_t)head->bytes, sum);
    memcpy(out, &plain, sizeof(plain));
    return begin(seal, out) && EVP_CipherUpdate(seal->cipher, at, &n, sum, sizeof(sum)) == 1 &&
           EVP_CipherFinal_ex(seal->cipher, at + n, &n) == 1 &&
           EVP_CIPHER_CTX_ctrl(seal->cipher, EVP_CTRL_AEAD_GET_TAG, GCM_TAG_BYTES,
                               at + sizeof(sum)) == 1;
}

static bool is_sound(const struct plain *p)
{
    return p->unused == 0 && p->total >= 0 && p->total <= TCP_SEAL_MESSAGE_MAX && p->at >= 0 &&
           p->at <= p->total && p->bytes <= TCP_SEAL_PART_MAX &&
           (int64_t)p->bytes <= p->total - p->at && (p->bytes > 0 || p->total == 0);
}

bool tcp_seal_read(struct tcp_seal *seal, const uint8_t in[TCP_SEAL_BYTES],
                   struct tcp_seal_head *out)
{
    struct plain plain;
    uint8_t tag[GCM_TAG_BYTES], rest[16];
    int n;
    memcpy(tag, in + sizeof(plain) + TCP_SUM_BYTES, sizeof(tag));
    if (!begin(seal, in) ||
        EVP_CipherUpdate(seal->cipher, out->sum, &n, in + sizeof(plain), TCP_SUM_BYTES) != 1 ||
        EVP_CIPHER_CTX_ctrl(seal->cipher, EVP_CTRL_AEAD_SET_TAG, sizeof(tag), tag) != 1 ||
        EVP_CipherFinal_ex(seal->cipher, rest, &n) != 1)
        return false;
    memcpy(&plain, in, sizeof(plain));
    out->tag = plain.tag;
    out->total = plain.total;
    out->at = plain.at;
    out->bytes = plain.bytes;
    return is_sound(&plain);
}

bool tcp_seal_check(const struct tcp_seal *seal, const struct tcp_seal_head *head,
                    const void *content)
{
    uint8_t sum[TCP_SUM_BYTES] = {0};
    if (head->bytes > 0)
        tcp_sum(seal->keys.sum, content, (size_t)head->bytes, sum);
    return CRYPTO_memcmp(sum, head->sum, sizeof(sum)) == 0;
}
