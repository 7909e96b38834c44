/* page — one document without external resources, and its Content-Security-Policy. */
#include "harness.h"

#include "serve/history.h"
#include "serve/page.h"

static struct text html;

static int load(void **state)
{
    size_t bytes;
    const char *data = page_html(&bytes);
    text_add_bytes(&html, data, bytes);
    return html.overflow ? -1 : 0;
}
static int unload(void **state)
{
    text_free(&html);
    return 0;
}

static int count(const char *what)
{
    int n = 0;
    for (const char *at = html.data; (at = strstr(at, what)) != NULL; at++)
        n++;
    return n;
}

TEST_WITH(one_document, load, unload)
{
    assert_true(text_starts(html.data, "<!doctype html>\n<html lang=\"en\">"));
    assert_true(text_ends(html.data, "</html>\n"));
    assert_int_equal(strlen(html.data), html.len); /* no 0 in it */
    assert_true(html.len < 80 << 10);
    assert_int_equal(count("<script"), 1);
    assert_int_equal(count("<style"), 1);
    assert_int_equal(count("<h1"), 1);
}

/* The page's script names the curves that rank_stats.def makes, in their order. */
TEST_WITH(names_every_curve, load, unload)
{
    struct text names = {0};
    text_add(&names, "const NAMES = [");
    for (int i = 0; i < HISTORY_CURVE_GPU_BUSY; i++)
        text_add(&names, "'%s', ", history_curve_text((enum history_curve)i));
    text_add(&names, "'loss_low', 'loss_high'];");
    assert_non_null(strstr(html.data, names.data));
    text_free(&names);
}

/* What the policy would refuse has no place in it. */
TEST_WITH(nothing_from_elsewhere, load, unload)
{
    static const char *const words[] = {
        " style=\"",    " onclick=", " onload=",         "<img",           "<iframe",
        "@import",      "url(",      "innerHTML",        "insertAdjacent", "eval(",
        "localStorage", "https://",  "<link rel=\"style"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (count(words[i]) != 0)
            fail_msg("the page has %s", words[i]);
    /* the name of a format */
    assert_int_equal(count("http://"), count("http://www.w3.org/2000/svg"));
}

TEST_WITH(the_policy, load, unload)
{
    char policy[PAGE_POLICY_BYTES], cut[20];
    assert_true(page_policy(policy, sizeof(policy)));
    assert_true(text_starts(policy, "default-src 'none'; script-src 'sha256-"));
    assert_null(strstr(policy, "unsafe"));
    const char *hash = strstr(policy, "sha256-") + strlen("sha256-");
    assert_int_equal(strcspn(hash, "'"), 44); /* 32 bytes in base64 */
    assert_non_null(strstr(policy, "; style-src 'sha256-"));
    assert_non_null(strstr(policy, "; connect-src 'self';"));
    assert_non_null(strstr(policy, "frame-ancestors 'none'"));
    assert_false(page_policy(cut, sizeof(cut))); /* rather none than half of it */
}

HARNESS_RUN_ALL()
