/* crowd — see crowd.h. */
#include "meet/crowd.h"

static bool is_here_silent(const struct crowd_place *place)
{
    return place->is_silent && !place->is_out;
}

static void count_beside(const struct crowd_place *places, int n, struct crowd_place *place)
{
    place->beside = place->waiting = 0;
    for (int i = 0; i < n; i++) {
        bool is_one = is_here_silent(&places[i]) && places[i].from == place->from;
        place->beside += is_one;
        place->waiting += is_one && !places[i].is_new;
    }
}

/* goes_first — one before the other, both silent or both not. */
static bool goes_first(const struct crowd_place *one, const struct crowd_place *other)
{
    if (one->is_silent != other->is_silent)
        return one->is_silent;
    if (one->is_silent && one->waiting != other->waiting)
        return one->waiting > other->waiting;
    if (one->is_silent && one->beside != other->beside)
        return one->beside > other->beside;
    return one->since_ms < other->since_ms;
}

static int find_next(const struct crowd_place *places, int n)
{
    int next = -1;
    for (int i = 0; i < n; i++)
        if (!places[i].is_out && (next < 0 || goes_first(&places[i], &places[next])))
            next = i;
    return next;
}

static void put_out(struct crowd_place *places, int n, int which)
{
    places[which].is_out = true;
    for (int i = 0; places[which].is_silent && i < n; i++) {
        bool is_one = places[i].from == places[which].from;
        places[i].beside -= is_one;
        places[i].waiting -= is_one && !places[which].is_new;
    }
}

int crowd_thin(struct crowd_place *places, int n, int places_max, int each_max)
{
    int here = 0, out = 0;
    for (int i = 0; i < n; i++) {
        here += !places[i].is_out;
        count_beside(places, n, &places[i]);
    }
    for (int next; (next = find_next(places, n)) >= 0; out++, here--) {
        bool is_one_too_many = places[next].is_silent && places[next].waiting > each_max;
        if (here <= places_max && !is_one_too_many)
            break;
        put_out(places, n, next);
    }
    return out;
}

int crowd_most(const struct crowd_place *places, int n, int *held_out)
{
    int most = -1;
    *held_out = 0;
    for (int i = 0; i < n; i++) {
        int held = 0;
        for (int k = i; k < n; k++)
            held += places[k].from == places[i].from;
        if (held > *held_out) {
            *held_out = held;
            most = i;
        }
    }
    return most;
}
