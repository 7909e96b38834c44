/* psk — see psk.h. */
#include "net/psk.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/assert.h"

/* One cipher suite, whose hash is the key's: SHA-256. */
#define SUITE "TLS_AES_128_GCM_SHA256"
static const unsigned char suite_id[] = {0x13, 0x01};
/* The identity describes how the key is derived from the token, so it changes with the
 * derivation. */
static const char identity[] = PSK_IDENTITY;

/* scrypt (RFC 7914): 16 MiB and about 0.1 s for each guess of a token. The salt is the identity:
 * nodes share nothing else before they have the key. */
#define SCRYPT_N (1 << 14)
#define SCRYPT_R 8
#define SCRYPT_P 1
#define SCRYPT_BYTES_MAX (32 << 20)

enum status psk_derive(const char *token, struct psk *out)
{
    *out = (struct psk){.is_none = strcmp(token, "none") == 0};
    if (out->is_none)
        return ST_OK;
    if (token[0] == 0)
        return FAIL(ST_BAD_SETTING,
                    "JOB_TOKEN is empty; several nodes need a shared secret: set JOB_TOKEN or "
                    "JOB_TOKEN_FILE to the same on all, or JOB_TOKEN=none for no protection");
    if (EVP_PBE_scrypt(token, strlen(token), (const unsigned char *)identity, sizeof(identity) - 1,
                       SCRYPT_N, SCRYPT_R, SCRYPT_P, SCRYPT_BYTES_MAX, out->key,
                       sizeof(out->key)) == 1)
        return ST_OK;
    if (ERR_GET_REASON(ERR_peek_last_error()) == ERR_R_MALLOC_FAILURE)
        return FAIL(ST_RETRY, "out of memory: 16 MiB to derive a key from JOB_TOKEN");
    return FAIL(ST_NO_DEVICE, "OpenSSL cannot derive a key from JOB_TOKEN with scrypt; check its "
                              "set-up");
}

void psk_wipe(struct psk *psk) { OPENSSL_cleanse(psk, sizeof(*psk)); }

enum status psk_seed(uint8_t out[PSK_SEED_BYTES])
{
    if (getrandom(out, PSK_SEED_BYTES, 0) == PSK_SEED_BYTES)
        return ST_OK;
    return FAIL(ST_RETRY, "the system returned no random numbers: %s", strerror(errno));
}

void psk_generation(const uint8_t seed[PSK_SEED_BYTES], int64_t generation,
                    uint8_t out[PSK_GENERATION_BYTES])
{
    uint8_t mac[32];
    unsigned n = sizeof(mac);
    ASSERT(HMAC(EVP_sha256(), seed, PSK_SEED_BYTES, (const uint8_t *)&generation,
                sizeof(generation), mac, &n) != NULL);
    memcpy(out, mac, PSK_GENERATION_BYTES);
    OPENSSL_cleanse(mac, sizeof(mac));
}

static int psk_index(void)
{
    static int index = -1;
    if (index < 0)
        index = SSL_CTX_get_ex_new_index(0, NULL, NULL, NULL, NULL);
    return index;
}

/* Returns the index under which a server's connection keeps that its client has another version's
 * key. */
static int version_index(void)
{
    static int index = -1;
    if (index < 0)
        index = SSL_get_ex_new_index(0, NULL, NULL, NULL, NULL);
    return index;
}

/* Makes a session from the key: OpenSSL treats an external key as a session to resume. */
static SSL_SESSION *make_session(SSL *ssl)
{
    const struct psk *psk = SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), psk_index());
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite_id);
    SSL_SESSION *session = SSL_SESSION_new();
    if (psk != NULL && cipher != NULL && session != NULL &&
        SSL_SESSION_set1_master_key(session, psk->key, sizeof(psk->key)) == 1 &&
        SSL_SESSION_set_cipher(session, cipher) == 1 &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
        return session;
    SSL_SESSION_free(session);
    return NULL;
}

static int on_dial(SSL *ssl, const EVP_MD *digest, const unsigned char **id, size_t *id_bytes,
                   SSL_SESSION **session)
{
    if (digest != NULL && EVP_MD_get_type(digest) != NID_sha256)
        return 0;
    *session = make_session(ssl);
    *id = (const unsigned char *)identity;
    *id_bytes = sizeof(identity) - 1;
    return *session != NULL;
}

static int on_serve(SSL *ssl, const unsigned char *id, size_t id_bytes, SSL_SESSION **session)
{
    *session = NULL;
    if (id_bytes == sizeof(identity) - 1 && memcmp(id, identity, id_bytes) == 0)
        *session = make_session(ssl);
    else if (id_bytes > sizeof(PSK_IDENTITY_START) - 1 &&
             memcmp(id, PSK_IDENTITY_START, sizeof(PSK_IDENTITY_START) - 1) == 0)
        SSL_set_ex_data(ssl, version_index(), (void *)(uintptr_t)identity);
    /* Without a session the handshake continues, and fails because there is no certificate. */
    return 1;
}

/* Refuses a server that presents a certificate: it does not have the key. */
static int on_certificate(X509_STORE_CTX *store, void *arg)
{
    (void)store, (void)arg;
    return 0;
}

static bool set_common(SSL_CTX *ctx, const struct psk *psk)
{
    return SSL_CTX_set_ex_data(ctx, psk_index(), (void *)(uintptr_t)psk) == 1 &&
           SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_ciphersuites(ctx, SUITE) == 1;
}

bool psk_set_client_ctx(SSL_CTX *ctx, const struct psk *psk)
{
    SSL_CTX_set_psk_use_session_callback(ctx, on_dial);
    SSL_CTX_set_cert_verify_callback(ctx, on_certificate, NULL);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    return set_common(ctx, psk);
}

SSL_CTX *psk_new_server_ctx(const struct psk *psk)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    if (ctx == NULL || !set_common(ctx, psk) || SSL_CTX_set_num_tickets(ctx, 0) != 1) {
        SSL_CTX_free(ctx);
        FAIL(ST_NO_DEVICE, "OpenSSL cannot serve TLS 1.3 with %s; check its set-up", SUITE);
        return NULL;
    }
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    /* An idle connection keeps no buffers: node 0 has one or more connections of each node. */
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_psk_find_session_callback(ctx, on_serve);
    return ctx;
}

bool psk_is_other_version(const SSL *ssl) { return SSL_get_ex_data(ssl, version_index()) != NULL; }

bool psk_is_unknown(int alert)
{
    return alert == SSL_AD_HANDSHAKE_FAILURE || alert == SSL_AD_UNKNOWN_PSK_IDENTITY;
}

bool psk_is_refusal(int alert)
{
    return alert == SSL_AD_ILLEGAL_PARAMETER || alert == SSL_AD_HANDSHAKE_FAILURE ||
           alert == SSL_AD_DECRYPT_ERROR || alert == SSL_AD_BAD_RECORD_MAC ||
           alert == SSL_AD_UNKNOWN_PSK_IDENTITY || alert == SSL_AD_PROTOCOL_VERSION;
}
