/* psk: how the key follows from a token, and what peers with another key or of another version
 * see. */
#include "harness.h"

#include <time.h>

#include <openssl/err.h>

#include "net/psk.h"

#define TOKEN "a token of these tests"

static int alert_seen; /* the last fatal alert that a client received */

static void on_alert(const SSL *ssl, int where, int alert)
{
    (void)ssl;
    if ((where & SSL_CB_READ_ALERT) == SSL_CB_READ_ALERT && alert >> 8 == SSL3_AL_FATAL)
        alert_seen = alert & 0xFF;
}

/* shake — Runs a handshake in memory and one read of the client, which may learn of its refusal
 * only then. Frees the client's context. Returns whether the server accepted the client;
 * *is_other_version_out: what psk says about its connection. */
static bool shake(SSL_CTX *server_ctx, SSL_CTX *client_ctx, bool *is_other_version_out)
{
    SSL *server = SSL_new(server_ctx), *client = SSL_new(client_ctx);
    BIO *near, *far;
    char byte;
    assert_int_equal(BIO_new_bio_pair(&near, 0, &far, 0), 1);
    SSL_set_bio(server, near, near);
    SSL_set_bio(client, far, far);
    SSL_set_accept_state(server);
    SSL_set_connect_state(client);
    SSL_set_info_callback(client, on_alert);
    alert_seen = 0;
    for (int i = 0; i < 8; i++) {
        SSL_do_handshake(client);
        SSL_do_handshake(server);
    }
    SSL_read(client, &byte, 1);
    bool is_accepted = SSL_is_init_finished(server) == 1;
    *is_other_version_out = psk_is_other_version(server);
    ERR_clear_error();
    SSL_free(server);
    SSL_free(client);
    SSL_CTX_free(client_ctx);
    return is_accepted;
}

static SSL_CTX *client_of(const struct psk *psk)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    assert_true(psk_set_client_ctx(ctx, psk));
    return ctx;
}

/* ---- 0.1.0, whose key has another identity ---- */

static const char *const old_identity = "convoy/v1";

static SSL_SESSION *old_session(SSL *ssl)
{
    static const unsigned char suite[] = {0x13, 0x01}, key[32] = {1};
    SSL_SESSION *session = SSL_SESSION_new();
    assert_true(SSL_SESSION_set1_master_key(session, key, sizeof key) == 1 &&
                SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, suite)) == 1 &&
                SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1);
    return session;
}

static int old_client(SSL *ssl, const EVP_MD *digest, const unsigned char **id, size_t *n,
                      SSL_SESSION **session)
{
    (void)digest;
    *session = old_session(ssl);
    *id = (const unsigned char *)old_identity;
    *n = strlen(old_identity);
    return 1;
}

static int old_server(SSL *ssl, const unsigned char *id, size_t n, SSL_SESSION **session)
{
    bool is_known = n == strlen(old_identity) && memcmp(id, old_identity, n) == 0;
    *session = is_known ? old_session(ssl) : NULL;
    return 1;
}

/* ---- tests ---- */

/* The value is that of Python: hashlib.scrypt(TOKEN, salt=b'convoy/v2', n=16384, r=8, p=1,
 * dklen=32). */
TEST(the_key_is_stretched)
{
    static const uint8_t expected[32] = {0xa2, 0x0f, 0x72, 0x9b, 0x28, 0x64, 0xe7, 0x3d,
                                         0x2f, 0x05, 0x27, 0xce, 0xa7, 0x7c, 0xc2, 0x84,
                                         0xdf, 0xde, 0x8b, 0x26, 0x7d, 0xb3, 0x94, 0xe5,
                                         0x60, 0xca, 0x9d, 0x8c, 0x4d, 0x88, 0x18, 0xa7};
    struct psk psk;
    const clock_t begun = clock();
    assert_int_equal(psk_derive(TOKEN, &psk), ST_OK);
    const double cpu_s = (double)(clock() - begun) / CLOCKS_PER_SEC;
    print_message("# a key costs %.3f s of processor time\n", cpu_s);
    assert_memory_equal(psk.key, expected, sizeof expected);
    assert_false(psk.is_none);
    assert_true(cpu_s > 0.005 && cpu_s < 5);
    assert_int_equal(psk_derive("none", &psk), ST_OK);
    assert_true(psk.is_none);
    assert_int_equal(psk_derive("", &psk), ST_BAD_SETTING);
}

TEST(keys_and_versions)
{
    struct psk right = {.key = {1}}, wrong = {.key = {2}};
    bool is_other_version;
    SSL_CTX *server = psk_new_server_ctx(&right);
    assert_true(shake(server, client_of(&right), &is_other_version));
    assert_int_equal(alert_seen, 0);
    assert_false(is_other_version);
    assert_false(shake(server, client_of(&wrong), &is_other_version));
    assert_true(psk_is_refusal(alert_seen) && !psk_is_unknown(alert_seen));
    assert_false(is_other_version);
    /* an old node meets this version */
    SSL_CTX *old = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_psk_use_session_callback(old, old_client);
    assert_false(shake(server, old, &is_other_version));
    assert_true(psk_is_refusal(alert_seen)); /* so it ends, and does not wait */
    assert_true(is_other_version);
    /* anything else that speaks TLS 1.3 */
    assert_false(shake(server, SSL_CTX_new(TLS_client_method()), &is_other_version));
    assert_false(is_other_version);
    SSL_CTX_free(server);
    /* this version meets an old node 0 */
    old = SSL_CTX_new(TLS_server_method());
    SSL_CTX_set_ciphersuites(old, "TLS_AES_128_GCM_SHA256");
    SSL_CTX_set_psk_find_session_callback(old, old_server);
    assert_false(shake(old, client_of(&right), &is_other_version));
    assert_true(psk_is_refusal(alert_seen) && psk_is_unknown(alert_seen));
    SSL_CTX_free(old);
}

HARNESS_RUN_ALL()
