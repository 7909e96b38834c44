/* tcp_frame — the layout of a header, and its authentication by OpenSSL. */
#include "comm/tcp/tcp_frame.h"

#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#define AUTH_TAG_BYTES 16

/* Sent as it lies in memory: little-endian. This part is readable; the checksum behind it is
 * encrypted. */
struct plain {
    uint64_t tag; /* of the message */
    int64_t total, at;
    uint32_t bytes, unused;
};
_Static_assert(sizeof(struct plain) + TCP_CHECKSUM_BYTES + AUTH_TAG_BYTES == TCP_FRAME_HEADER_BYTES,
               "the header has the size on the wire");

bool tcp_frame_open(struct tcp_frame_state *state, const struct tcp_auth_keys *keys, bool sends)
{
    *state = (struct tcp_frame_state){.keys = *keys, .cipher = EVP_CIPHER_CTX_new()};
    return state->cipher != NULL && EVP_CipherInit_ex(state->cipher, EVP_aes_128_gcm(), NULL,
                                                      state->keys.header, NULL, sends) == 1;
}

void tcp_frame_close(struct tcp_frame_state *state)
{
    EVP_CIPHER_CTX_free(state->cipher);
    OPENSSL_cleanse(state, sizeof(*state));
}

/* Sets the next frame's nonce and authenticates the readable bytes. */
static bool begin(struct tcp_frame_state *state, const uint8_t *plain)
{
    uint8_t nonce[12] = {0};
    int n;
    memcpy(nonce, &state->frames_n, sizeof(state->frames_n));
    state->frames_n++;
    return EVP_CipherInit_ex(state->cipher, NULL, NULL, NULL, nonce, -1) == 1 &&
           EVP_CipherUpdate(state->cipher, NULL, &n, plain, sizeof(struct plain)) == 1;
}

bool tcp_frame_write(struct tcp_frame_state *state, const struct tcp_frame_header *head,
                     const void *content, uint8_t out[TCP_FRAME_HEADER_BYTES])
{
    struct plain plain = {
        .tag = head->tag, .total = head->total, .at = head->at, .bytes = (uint32_t)head->bytes};
    uint8_t sum[TCP_CHECKSUM_BYTES] = {0}, *at = out + sizeof(plain);
    int n;
    if (head->bytes > 0)
        tcp_checksum(state->keys.checksum, content, (size_t)head->bytes, sum);
    memcpy(out, &plain, sizeof(plain));
    return begin(state, out) && EVP_CipherUpdate(state->cipher, at, &n, sum, sizeof(sum)) == 1 &&
           EVP_CipherFinal_ex(state->cipher, at + n, &n) == 1 &&
           EVP_CIPHER_CTX_ctrl(state->cipher, EVP_CTRL_AEAD_GET_TAG, AUTH_TAG_BYTES,
                               at + sizeof(sum)) == 1;
}

static bool is_sound(const struct plain *p)
{
    return p->unused == 0 && p->total >= 0 && p->total <= TCP_FRAME_MESSAGE_MAX && p->at >= 0 &&
           p->at <= p->total && p->bytes <= TCP_FRAME_CONTENT_MAX &&
           (int64_t)p->bytes <= p->total - p->at && (p->bytes > 0 || p->total == 0);
}

bool tcp_frame_read(struct tcp_frame_state *state, const uint8_t in[TCP_FRAME_HEADER_BYTES],
                    struct tcp_frame_header *out)
{
    struct plain plain;
    uint8_t auth_tag[AUTH_TAG_BYTES], rest[16];
    int n;
    memcpy(auth_tag, in + sizeof(plain) + TCP_CHECKSUM_BYTES, sizeof(auth_tag));
    if (!begin(state, in) ||
        EVP_CipherUpdate(state->cipher, out->checksum, &n, in + sizeof(plain),
                         TCP_CHECKSUM_BYTES) != 1 ||
        EVP_CIPHER_CTX_ctrl(state->cipher, EVP_CTRL_AEAD_SET_TAG, sizeof(auth_tag), auth_tag) !=
            1 ||
        EVP_CipherFinal_ex(state->cipher, rest, &n) != 1)
        return false;
    memcpy(&plain, in, sizeof(plain));
    out->tag = plain.tag;
    out->total = plain.total;
    out->at = plain.at;
    out->bytes = plain.bytes;
    return is_sound(&plain);
}

bool tcp_frame_check(const struct tcp_frame_state *state, const struct tcp_frame_header *head,
                     const void *content)
{
    uint8_t sum[TCP_CHECKSUM_BYTES] = {0};
    if (head->bytes > 0)
        tcp_checksum(state->keys.checksum, content, (size_t)head->bytes, sum);
    return CRYPTO_memcmp(sum, head->checksum, sizeof(sum)) == 0;
}
