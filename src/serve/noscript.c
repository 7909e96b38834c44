/* noscript — see noscript.h. */
#include "serve/noscript.h"

#include <math.h>

/* Adds text with HTML's special characters escaped. */
static void add_escaped(struct text *t, const char *s)
{
    for (; *s != 0; s++) {
        if (*s == '<' || *s == '>' || *s == '&' || *s == '"')
            text_add(t, "&#%d;", *s);
        else
            text_add_bytes(t, s, 1);
    }
}

static void add_item(struct text *t, const char *s)
{
    text_add(t, "<li>");
    add_escaped(t, s);
    text_add(t, "</li>");
}

static void add_number(struct text *t, const char *name, double value)
{
    if (isfinite(value))
        text_add(t, "<li>%s %.4f</li>", name, value);
}

void noscript_write(const struct view *view, struct text *t)
{
    const struct board_error *error = view_error(view);
    text_add(t, "<p><b>%s</b> ", board_phase_text(view->phase));
    add_escaped(t, view->node.run);
    text_add(t, "</p>");
    if (error != NULL) {
        text_add(t, "<p>exit code %d: ", error->code);
        add_escaped(t, error->message);
        text_add(t, "</p>");
    }
    text_add(t, "<ul>");
    if (view->first_worker != NULL && view->first_worker->device_note[0] != 0)
        add_item(t, view->first_worker->device_note);
    char speed[32];
    if (view->first_worker != NULL && view->first_worker->step >= 0) {
        text_add(t, "<li>step %lld of %lld</li>", (long long)view->first_worker->step,
                 (long long)view->first_worker->steps);
        add_number(t, "loss", view->first_worker->loss);
        add_number(t, "validation loss", view->first_worker->val_loss);
        if (isfinite(view->first_worker->tokens_per_second))
            text_add(
                t, "<li>%s tokens a second</li>",
                text_format_count(speed, sizeof(speed), view->first_worker->tokens_per_second));
    }
    const struct board_checkpoint *checkpoint = view_checkpoint(view);
    if (checkpoint != NULL) {
        text_add(t, "<li>checkpoint of step %lld: ", (long long)checkpoint->step);
        add_escaped(t, checkpoint->path);
        text_add(t, "</li>");
    }
    if (view->check_line != NULL)
        add_item(t, view->check_line);
    for (int i = 0; i < view->nodes_n; i++)
        text_add(t, "<li>node %d %s</li>", view->nodes[i].node_id, view->nodes[i].state);
    text_add(t, "</ul>");
}
