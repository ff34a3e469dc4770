/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/worker.c - see worker.h. */
#include "frontend/worker.h"

#include "base/assert.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

struct tr_workers {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct tr_job *todo, **todo_end; /* under lock */
    struct tr_job *done, **done_end; /* under lock */
    bool stop;                       /* under lock */
    unsigned jobs;                   /* event loop: pushed and not yet done */
    int fd;                          /* eventfd: `done` is not empty */
    struct event *ev;
    unsigned n;
    pthread_t thread[];
};

/* Beside these threads the event loop and the engine want their cores at once; a job may wait.  On
 * Linux the number is the calling thread's own. */
enum { NICE = 10 };

static void *run(void *arg)
{
    struct tr_workers *w = arg;
    struct tr_job *j;

    (void)setpriority(PRIO_PROCESS, 0, NICE); /* less polite if it fails, not wrong */
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->todo && !w->stop)
            pthread_cond_wait(&w->wake, &w->lock);
        if (w->stop)
            break;
        j = w->todo;
        w->todo = j->next;
        if (!w->todo)
            w->todo_end = &w->todo;
        pthread_mutex_unlock(&w->lock);
        j->work(j);
        pthread_mutex_lock(&w->lock);
        j->next = NULL;
        *w->done_end = j;
        w->done_end = &j->next;
        uint64_t one = 1;
        (void)!write(w->fd, &one, sizeof(one));
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void on_done(evutil_socket_t fd, short what, void *arg)
{
    struct tr_workers *w = arg;
    struct tr_job *j, *next;
    uint64_t n;

    (void)what;
    (void)!read(fd, &n, sizeof(n));
    pthread_mutex_lock(&w->lock);
    j = w->done;
    w->done = NULL;
    w->done_end = &w->done;
    pthread_mutex_unlock(&w->lock);
    for (; j; j = next) {
        next = j->next;
        w->jobs--;
        j->done(j);
    }
}

struct tr_workers *tr_workers_start(struct event_base *base, unsigned n_threads)
{
    struct tr_workers *w = calloc(1, sizeof(*w) + n_threads * sizeof(w->thread[0]));
    sigset_t all, old;

    if (!w)
        return NULL;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    w->todo_end = &w->todo;
    w->done_end = &w->done;
    w->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->fd < 0)
        goto fail;
    w->ev = event_new(base, w->fd, EV_READ | EV_PERSIST, on_done, w);
    if (!w->ev || event_add(w->ev, NULL))
        goto fail;
    /* Signals are the event loop's. */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    for (; w->n < n_threads; w->n++)
        if (pthread_create(&w->thread[w->n], NULL, run, w))
            break;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (w->n < n_threads)
        goto fail;
    return w;
fail:
    tr_workers_stop(w);
    return NULL;
}

void tr_workers_stop(struct tr_workers *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
    for (unsigned i = 0; i < w->n; i++)
        pthread_join(w->thread[i], NULL);
    if (w->ev)
        event_free(w->ev);
    if (w->fd >= 0)
        close(w->fd);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

int tr_workers_push(struct tr_workers *w, struct tr_job *j)
{
    if (w->jobs >= TR_WORKERS_JOBS)
        return -EAGAIN;
    TR_ASSERT(j->work && j->done);
    w->jobs++;
    j->next = NULL;
    pthread_mutex_lock(&w->lock);
    *w->todo_end = j;
    w->todo_end = &j->next;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    return 0;
}
