/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/errand.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

struct tr_errand {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* With the lock. */
    bool given; /* and not done */
    bool quit;
    void (*fn)(void *arg, uint64_t what);
    void *arg;
    uint64_t what;
};

static void *run(void *of)
{
    struct tr_errand *e = of;
    pthread_mutex_lock(&e->lock);
    for (;;) {
        while (!e->given && !e->quit)
            pthread_cond_wait(&e->wake, &e->lock);
        if (!e->given)
            break;
        /* Nobody changes it while it is given. */
        pthread_mutex_unlock(&e->lock);
        e->fn(e->arg, e->what);
        pthread_mutex_lock(&e->lock);
        e->given = false;
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

struct tr_errand *tr_errand_open(void)
{
    struct tr_errand *e = calloc(1, sizeof(*e));
    sigset_t all, old;
    if (!e)
        return NULL;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->wake, NULL);
    sigfillset(&all); /* no signal is its own */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&e->thread, NULL, run, e);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!rc)
        return e;
    pthread_cond_destroy(&e->wake);
    pthread_mutex_destroy(&e->lock);
    free(e);
    return NULL;
}

bool tr_errand_give(struct tr_errand *e, void (*fn)(void *arg, uint64_t what), void *arg,
                    uint64_t what)
{
    pthread_mutex_lock(&e->lock);
    bool taken = !e->given;
    if (taken) {
        e->given = true;
        e->fn = fn;
        e->arg = arg;
        e->what = what;
        pthread_cond_signal(&e->wake);
    }
    pthread_mutex_unlock(&e->lock);
    return taken;
}

void tr_errand_close(struct tr_errand *e)
{
    if (!e)
        return;
    pthread_mutex_lock(&e->lock);
    e->quit = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
    pthread_cond_destroy(&e->wake);
    pthread_mutex_destroy(&e->lock);
    free(e);
}
