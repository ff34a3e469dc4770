/* SPDX-License-Identifier: Apache-2.0 */
/* text/scan.c - see scan.h. */
#include "text/scan.h"

#include <string.h>

void tr_scan_init(struct tr_scan *s, const struct tr_vocab *v, const struct tr_stopset *stops,
                  bool skip_special)
{
    *s = (struct tr_scan){.stops = stops, .stop = -1};
    tr_detok_init(&s->detok, v, skip_special);
}

/* What was held of a stop string comes back in front of the new text: out[0, returned). */
static size_t unhold(const struct tr_scan *s, char *out)
{
    if (!s->stops)
        return 0;
    struct tr_str held = tr_stop_held(s->stops, s->state);
    memcpy(out, held.p, held.len);
    return held.len;
}

/* out[0, held) was held, out[held, held + fresh) is new: looks for a stop string and leaves in *len what
 * may be shown. */
static int decide(struct tr_scan *s, size_t held, size_t fresh, const char *out, size_t *len)
{
    size_t used;

    *len = held + fresh;
    if (!s->stops)
        return TR_SCAN_GO;
    int i = tr_stop_push(s->stops, &s->state, out + held, fresh, &used);
    if (i < 0) {
        *len -= tr_stop_held(s->stops, s->state).len;
        return TR_SCAN_GO;
    }
    s->stop = (int16_t)i;
    *len = held + used;
    if (!s->include_stop)
        *len -= tr_stopset_at(s->stops, (size_t)i).len;
    return TR_SCAN_STOPPED;
}

static bool is_shown(const struct tr_scan *s, int32_t id)
{
    for (uint32_t i = 0; i < s->n_shown; i++)
        if (s->shown[i] == id)
            return true;
    return false;
}

int tr_scan_push(struct tr_scan *s, int32_t id, char *out, size_t *len)
{
    size_t fresh;

    if (s->stop >= 0) {
        *len = 0;
        return TR_SCAN_STOPPED;
    }
    size_t held = unhold(s, out);
    bool skip = s->detok.skip_special;
    s->detok.skip_special = skip && !is_shown(s, id);
    int rc = tr_detok_push(&s->detok, id, out + held, &fresh);
    s->detok.skip_special = skip;
    if (rc < 0)
        return rc;
    return decide(s, held, fresh, out, len);
}

int tr_scan_flush(struct tr_scan *s, char *out, size_t *len)
{
    if (s->stop >= 0) {
        *len = 0;
        return TR_SCAN_STOPPED;
    }
    size_t held = unhold(s, out);
    size_t fresh = tr_detok_flush(&s->detok, out + held);
    if (decide(s, held, fresh, out, len) == TR_SCAN_STOPPED)
        return TR_SCAN_STOPPED;
    *len = held + fresh;
    s->state = 0;
    return TR_SCAN_GO;
}

bool tr_scan_held(const struct tr_scan *s)
{
    return s->stop < 0 && (s->state != 0 || tr_detok_held(&s->detok));
}
