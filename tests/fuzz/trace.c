/* SPDX-License-Identifier: Apache-2.0 */
/* A trace file: whatever is in it, it is refused with a sentence that names a line, or it is sorted,
 * within its bounds, and says the same when printed and read again. */
#include "replay/trace.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void check_entry(const struct tr_trace *t, size_t i)
{
    const struct tr_trace_entry *e = &t->e[i];
    if (!(e->at_s >= 0) || (i && e->at_s < t->e[i - 1].at_s) || !e->max_tokens ||
        !e->prompt == !e->prompt_tokens || e->class_id >= t->n_classes || !(e->read_bps >= 0))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tr_trace t, again;
    struct tr_errbuf err = {0};
    int rc = tr_trace_parse(&t, "f", (const char *)data, size, &err);
    if (rc) {
        if (rc != -EINVAL || strncmp(err.msg, "f:", 2) != 0)
            abort();
        tr_trace_fini(&t);
        return 0;
    }
    if (!t.n || t.n_classes > TR_TRACE_CLASSES_MAX || t.n_unknown > TR_TRACE_UNKNOWN_MAX)
        abort();
    for (size_t i = 0; i < t.n; i++)
        check_entry(&t, i);

    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    if (!f)
        abort();
    tr_trace_print(&t, f);
    if (fclose(f) || tr_trace_parse(&again, "f", text, len, &err) || again.n != t.n)
        abort();
    free(text);
    tr_trace_fini(&again);
    tr_trace_fini(&t);
    return 0;
}
