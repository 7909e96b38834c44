/* message_seal — AES-128-GCM and HKDF by OpenSSL, XXH3 by xxHash. */
#include "comm/message/seal.h"

#include <string.h>
#include <xxhash.h>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#define AUTH_TAG_BYTES 16
_Static_assert(MESSAGE_SEAL_PLAIN_BYTES + MESSAGE_SEAL_SUM_BYTES + AUTH_TAG_BYTES ==
                   MESSAGE_SEAL_BYTES,
               "the header has the size on the wire");

bool message_seal_derive(const uint8_t *secret, size_t secret_n, const uint8_t *salt, size_t salt_n,
                         const char *info, struct message_seal_keys *out)
{
    static char digest[] = "SHA256";
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)(uintptr_t)secret, secret_n),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, (void *)(uintptr_t)salt, salt_n),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, (void *)(uintptr_t)info,
                                          strlen(info)),
        OSSL_PARAM_construct_end(),
    };
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *ctx = kdf != NULL ? EVP_KDF_CTX_new(kdf) : NULL;
    bool is_done = ctx != NULL && EVP_KDF_derive(ctx, (uint8_t *)out, sizeof(*out), params) == 1;
    EVP_KDF_CTX_free(ctx);
    EVP_KDF_free(kdf);
    return is_done;
}

void message_seal_wipe(void *keys, size_t bytes) { OPENSSL_cleanse(keys, bytes); }

bool message_seal_open(struct message_seal *seal, const struct message_seal_keys *keys, bool writes)
{
    *seal = (struct message_seal){.cipher = EVP_CIPHER_CTX_new(), .keys = *keys};
    return seal->cipher != NULL && EVP_CipherInit_ex(seal->cipher, EVP_aes_128_gcm(), NULL,
                                                     keys->header, NULL, writes) == 1;
}

void message_seal_close(struct message_seal *seal)
{
    EVP_CIPHER_CTX_free(seal->cipher);
    message_seal_wipe(seal, sizeof(*seal));
}

/* Computes the checksum, with the AVX2 version if the processor has AVX2. */
static void sum_content(const struct message_seal *seal, const void *content, size_t bytes,
                        uint8_t out[MESSAGE_SEAL_SUM_BYTES])
{
    memset(out, 0, MESSAGE_SEAL_SUM_BYTES);
    if (bytes == 0)
        return;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        message_seal_avx2(seal->keys.checksum, content, bytes, out);
        return;
    }
#endif
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits_withSecret(content, bytes, seal->keys.checksum,
                                                           MESSAGE_SEAL_SUM_KEY_BYTES));
    memcpy(out, sum.digest, MESSAGE_SEAL_SUM_BYTES);
}

/* Sets the nonce and authenticates the readable bytes. */
static bool begin_cipher(const struct message_seal *seal, uint64_t number, const uint8_t *plain)
{
    uint8_t nonce[12] = {0};
    int n;
    memcpy(nonce, &number, sizeof(number));
    return EVP_CipherInit_ex(seal->cipher, NULL, NULL, NULL, nonce, -1) == 1 &&
           EVP_CipherUpdate(seal->cipher, NULL, &n, plain, MESSAGE_SEAL_PLAIN_BYTES) == 1;
}

bool message_seal_write(struct message_seal *seal, const void *plain, const void *content,
                        size_t bytes, uint8_t out[MESSAGE_SEAL_BYTES])
{
    uint8_t *at = out + MESSAGE_SEAL_PLAIN_BYTES, sum[MESSAGE_SEAL_SUM_BYTES];
    int n;
    sum_content(seal, content, bytes, sum);
    memcpy(out, plain, MESSAGE_SEAL_PLAIN_BYTES);
    return begin_cipher(seal, seal->next++, out) &&
           EVP_CipherUpdate(seal->cipher, at, &n, sum, MESSAGE_SEAL_SUM_BYTES) == 1 &&
           EVP_CipherFinal_ex(seal->cipher, at + n, &n) == 1 &&
           EVP_CIPHER_CTX_ctrl(seal->cipher, EVP_CTRL_AEAD_GET_TAG, AUTH_TAG_BYTES,
                               at + MESSAGE_SEAL_SUM_BYTES) == 1;
}

bool message_seal_read(struct message_seal *seal, uint64_t number,
                       const uint8_t in[MESSAGE_SEAL_BYTES], uint8_t sum[MESSAGE_SEAL_SUM_BYTES])
{
    uint8_t auth_tag[AUTH_TAG_BYTES], rest[16];
    int n;
    memcpy(auth_tag, in + MESSAGE_SEAL_BYTES - AUTH_TAG_BYTES, sizeof(auth_tag));
    return begin_cipher(seal, number, in) &&
           EVP_CipherUpdate(seal->cipher, sum, &n, in + MESSAGE_SEAL_PLAIN_BYTES,
                            MESSAGE_SEAL_SUM_BYTES) == 1 &&
           EVP_CIPHER_CTX_ctrl(seal->cipher, EVP_CTRL_AEAD_SET_TAG, sizeof(auth_tag), auth_tag) ==
               1 &&
           EVP_CipherFinal_ex(seal->cipher, rest, &n) == 1;
}

bool message_seal_check(const struct message_seal *seal, const void *content, size_t bytes,
                        const uint8_t sum[MESSAGE_SEAL_SUM_BYTES])
{
    uint8_t own[MESSAGE_SEAL_SUM_BYTES];
    sum_content(seal, content, bytes, own);
    return CRYPTO_memcmp(own, sum, sizeof(own)) == 0;
}
