/* p2p_seal — AES-128-GCM and HKDF by OpenSSL. */
#include "comm/message/seal.h"

#include <string.h>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#define AUTH_TAG_BYTES 16
_Static_assert(P2P_SEAL_PLAIN_BYTES + P2P_SEAL_HIDDEN_BYTES + AUTH_TAG_BYTES == P2P_SEAL_BYTES,
               "the header has the size on the wire");

bool p2p_seal_derive(const uint8_t *secret, size_t secret_n, const uint8_t *salt, size_t salt_n,
                     const char *info, struct p2p_seal_keys *out)
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

void p2p_seal_wipe(void *keys, size_t bytes) { OPENSSL_cleanse(keys, bytes); }

bool p2p_seal_open(struct p2p_seal *seal, const struct p2p_seal_keys *keys, bool writes)
{
    seal->cipher = EVP_CIPHER_CTX_new();
    return seal->cipher != NULL && EVP_CipherInit_ex(seal->cipher, EVP_aes_128_gcm(), NULL,
                                                     keys->header, NULL, writes) == 1;
}

void p2p_seal_close(struct p2p_seal *seal)
{
    EVP_CIPHER_CTX_free(seal->cipher);
    seal->cipher = NULL;
}

/* Sets the nonce and authenticates the readable bytes. */
static bool begin(struct p2p_seal *seal, uint64_t number, const uint8_t *plain)
{
    uint8_t nonce[12] = {0};
    int n;
    memcpy(nonce, &number, sizeof(number));
    return EVP_CipherInit_ex(seal->cipher, NULL, NULL, NULL, nonce, -1) == 1 &&
           EVP_CipherUpdate(seal->cipher, NULL, &n, plain, P2P_SEAL_PLAIN_BYTES) == 1;
}

bool p2p_seal_write(struct p2p_seal *seal, uint64_t number,
                    const uint8_t plain[P2P_SEAL_PLAIN_BYTES],
                    const uint8_t hidden[P2P_SEAL_HIDDEN_BYTES], uint8_t out[P2P_SEAL_BYTES])
{
    uint8_t *at = out + P2P_SEAL_PLAIN_BYTES;
    int n;
    memcpy(out, plain, P2P_SEAL_PLAIN_BYTES);
    return begin(seal, number, out) &&
           EVP_CipherUpdate(seal->cipher, at, &n, hidden, P2P_SEAL_HIDDEN_BYTES) == 1 &&
           EVP_CipherFinal_ex(seal->cipher, at + n, &n) == 1 &&
           EVP_CIPHER_CTX_ctrl(seal->cipher, EVP_CTRL_AEAD_GET_TAG, AUTH_TAG_BYTES,
                               at + P2P_SEAL_HIDDEN_BYTES) == 1;
}

bool p2p_seal_read(struct p2p_seal *seal, uint64_t number, const uint8_t in[P2P_SEAL_BYTES],
                   uint8_t hidden[P2P_SEAL_HIDDEN_BYTES])
{
    uint8_t auth_tag[AUTH_TAG_BYTES], rest[16];
    int n;
    memcpy(auth_tag, in + P2P_SEAL_BYTES - AUTH_TAG_BYTES, sizeof(auth_tag));
    return begin(seal, number, in) &&
           EVP_CipherUpdate(seal->cipher, hidden, &n, in + P2P_SEAL_PLAIN_BYTES,
                            P2P_SEAL_HIDDEN_BYTES) == 1 &&
           EVP_CIPHER_CTX_ctrl(seal->cipher, EVP_CTRL_AEAD_SET_TAG, sizeof(auth_tag), auth_tag) ==
               1 &&
           EVP_CipherFinal_ex(seal->cipher, rest, &n) == 1;
}

bool p2p_seal_is_same(const uint8_t a[P2P_SEAL_HIDDEN_BYTES],
                      const uint8_t b[P2P_SEAL_HIDDEN_BYTES])
{
    return CRYPTO_memcmp(a, b, P2P_SEAL_HIDDEN_BYTES) == 0;
}
