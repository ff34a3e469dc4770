/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/marks.c - see marks.h. */
#include "frontend/marks.h"

#include <string.h>

void tr_marks_add(struct tr_marks *m, uint64_t len, uint64_t conn_end)
{
    struct tr_marks_run *last = m->n ? &m->mark[m->n - 1] : NULL;

    m->own += len;
    if (last && (last->conn_end + len == conn_end || m->n == TR_MARKS))
        *last = (struct tr_marks_run){m->own, conn_end};
    else
        m->mark[m->n++] = (struct tr_marks_run){m->own, conn_end};
}

uint64_t tr_marks_upto(const struct tr_marks *m, uint64_t conn)
{
    uint64_t own = m->acked;
    unsigned i = 0;

    while (i < m->n && m->mark[i].conn_end <= conn)
        own = m->mark[i++].own_end;
    if (i == m->n)
        return own;
    /* Of what is missing in the connection up to the mark no more than all is the answer's. */
    uint64_t missing = m->mark[i].conn_end - conn, end = m->mark[i].own_end;
    return end > missing && end - missing > own ? end - missing : own;
}

uint64_t tr_marks_acked(struct tr_marks *m, uint64_t conn_acked)
{
    unsigned done = 0;

    m->acked = tr_marks_upto(m, conn_acked);
    while (done < m->n && m->mark[done].conn_end <= conn_acked)
        done++;
    m->n -= done;
    if (done)
        memmove(m->mark, m->mark + done, m->n * sizeof(m->mark[0]));
    return m->acked;
}
