/* noscript — the state of a run as HTML; text of the run is escaped. */
#include "harness.h"

#include "serve/noscript.h"

static struct view view;
static struct board_worker lead;

static const char *written(void)
{
    static char out[8192];
    struct text t = {0};
    noscript_write(&view, &t);
    assert_true(text_copy(out, sizeof out, t.data));
    text_free(&t);
    return out;
}

TEST(a_run)
{
    lead = (struct board_worker){.device_note = "auto uses the CPU: <why>",
                                 .step = 12,
                                 .steps = 100,
                                 .loss = 3.25,
                                 .val_loss = NAN,
                                 .tokens_per_second = 1410000,
                                 .checkpoint = {.step = 10, .path = "ck/step-00000010"}};
    view.first_worker = &lead;
    view.phase = BOARD_PHASE_TRAINING;
    text_copy(view.node.run, sizeof view.node.run, "<alice>");
    assert_string_equal(written(),
                        "<p><b>training</b> &#60;alice&#62;</p><ul><li>auto uses the CPU: "
                        "&#60;why&#62;</li><li>step 12 of 100</li><li>loss 3.2500</li><li>1.41M "
                        "tokens a second</li><li>checkpoint of step 10: "
                        "ck/step-00000010</li></ul>");
}

TEST(a_failure)
{
    struct view_node nodes[2] = {{.node_id = 0, .state = "joined"},
                                 {.node_id = 1, .state = "lost"}};
    view.first_worker = NULL;
    view.nodes = nodes;
    view.nodes_n = 2;
    view.node.error = (struct board_error){.code = 74, .message = "\"<script>\" & more"};
    view.node.phase = view.phase = BOARD_PHASE_FAILED;
    view.check_line = "check: fail: <node 1>";
    assert_string_equal(
        written(),
        "<p><b>failed</b> &#60;alice&#62;</p><p>exit code 74: &#34;&#60;script&#62;&#34; &#38; "
        "more</p><ul><li>check: fail: &#60;node 1&#62;</li><li>node 0 joined</li><li>node 1 "
        "lost</li></ul>");
}

HARNESS_RUN_ALL()
