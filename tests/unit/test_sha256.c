/* test_sha256 — the examples of FIPS 180-4 and its neighbours; any division of the bytes gives the same. */
#include "harness.h"

#include <stdio.h>
#include <string.h>

#include "data/sha256.h"

static const char *hex_of(const void *bytes, size_t n, size_t step)
{
    static char hex[65];
    struct sha256 sum;
    uint8_t out[SHA256_BYTES];
    sha256_begin(&sum);
    for (size_t at = 0; at < n; at += step)
        sha256_add(&sum, (const char *)bytes + at, n - at < step ? n - at : step);
    sha256_end(&sum, out);
    for (int i = 0; i < SHA256_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", out[i]);
    return hex;
}

static void test_known(void **state)
{
    (void)state;
    static const char two[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    assert_string_equal(hex_of("", 0, 1), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_string_equal(hex_of("abc", 3, 3),
                        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_string_equal(hex_of(two, 56, 56),
                        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    static char million[1000000];
    memset(million, 'a', sizeof million);
    assert_string_equal(hex_of(million, sizeof million, 4096),
                        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void test_pieces(void **state)
{
    (void)state;
    char bytes[300], want[65];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 31);
    for (size_t n = 0; n < sizeof bytes; n++) {
        strcpy(want, hex_of(bytes, n, 300));
        for (size_t step = 1; step < 140; step += 13)
            assert_string_equal(hex_of(bytes, n, step), want);
    }
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_known), cmocka_unit_test(test_pieces)};
HARNESS_MAIN(tests)
