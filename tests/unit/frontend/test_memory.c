/* SPDX-License-Identifier: Apache-2.0 */
/* Memory runs out, at every place where it can: the N-th allocation fails, or all from the N-th on,
 * for every N, while a request is read, parsed, admitted, streamed and ended.  Whatever then happens
 * to that request, its client sees an error or a cut, never half an answer that looks whole; nothing
 * crashes, nothing is left, and the next request is served.
 *
 * The linker sends our allocations here (--wrap); libevent is told to come here too. */
#include "testfe/frontend_rig.h"

#include "base/sim_vocab.h"
#include "frontend/stream.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- the allocator ---- */

void *__real_malloc(size_t n);
void *__real_calloc(size_t k, size_t n);
void *__real_realloc(void *p, size_t n);
char *__real_strndup(const char *s, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t k, size_t n);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strndup(const char *s, size_t n);

static atomic_bool armed;
static atomic_long seen;      /* allocations since it was armed */
static atomic_long fail_from; /* counted from 0 */
static atomic_long fail_upto;

static bool fails(void)
{
    if (!atomic_load(&armed))
        return false;
    long n = atomic_fetch_add(&seen, 1);
    return n >= atomic_load(&fail_from) && n < atomic_load(&fail_upto);
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t k, size_t n)
{
    return fails() ? NULL : __real_calloc(k, n);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

char *__wrap_strndup(const char *s, size_t n)
{
    return fails() ? NULL : __real_strndup(s, n);
}

/* ---- a frontend and one request ---- */

static struct tr_rig rig;

static void start(void)
{
    event_set_mem_functions(__wrap_malloc, __wrap_realloc, free);
    tr_rig_defaults(&rig);
    rig.cfg.resume_window_ns = 60000000000ull;
    rig.cfg.hold_slots = 8;
    tr_rig_start(&rig, 32, false);
    rig.engine.free_slots = true;
}

static void stop(void)
{
    tr_rig_stop(&rig);
}

TestSuite(memory, .init = start, .fini = stop);

struct scene {
    const char *method, *path, *body;
    const char *whole; /* the end of an answer that is complete */
    unsigned choices;
    unsigned wait_ms; /* for a worker, which is waited for */
};

static struct tr_rig_client client;

/* As tr_rig_connect, but the server may have no memory for a connection. */
static bool open_client(void)
{
    struct sockaddr_in a;
    socklen_t len = sizeof(a);
    memset(&client, 0, sizeof(client));
    client.fd = socket(AF_INET, SOCK_STREAM, 0);
    getsockname(rig.listener, (struct sockaddr *)&a, &len);
    cr_assert(connect(client.fd, (struct sockaddr *)&a, len) == 0);
    fcntl(client.fd, F_SETFL, O_NONBLOCK);
    int fd = accept4(rig.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    cr_assert(fd >= 0);
    return tr_conn_accept(rig.fe.httpd, fd) == 0;
}

static void turn(const struct scene *s)
{
    if (s->wait_ms)
        tr_rig_run_ms(&rig, s->wait_ms);
    else
        tr_rig_run(&rig);
    tr_rig_read(&client);
}

/* The engine's part: what was admitted says three tokens and ends. */
static void answer(const struct scene *s)
{
    for (unsigned k = 0; k < s->choices; k++) {
        uint32_t slot = tr_sengine_slot(&rig.engine, k);
        if (slot != UINT32_MAX && rig.engine.slot[slot].live)
            tr_sengine_text(&rig.engine, slot, "abc");
    }
    turn(s);
    for (unsigned k = 0; k < s->choices; k++) {
        uint32_t slot = tr_sengine_slot(&rig.engine, k);
        if (slot != UINT32_MAX && rig.engine.slot[slot].live)
            tr_sengine_end(&rig.engine, slot, TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
    }
    turn(s);
}

static void arm(long from, long upto)
{
    atomic_store(&seen, 0);
    atomic_store(&fail_from, from);
    atomic_store(&fail_upto, upto);
    atomic_store(&armed, true);
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* An error, the whole answer, or a cut; nothing between them. */
static bool sound(const struct scene *s)
{
    int status = 0;
    if (client.len == 0)
        return client.eof;
    if (sscanf(client.buf, "HTTP/1.1 %d", &status) != 1)
        return false;
    if (status == 200 && strstr(client.buf, "Transfer-Encoding: chunked"))
        return client.eof != ends_with(client.buf, "\r\n0\r\n\r\n") &&
               (client.eof || ends_with(tr_rig_body(&client), s->whole));
    if (status == 200)
        return strstr(tr_rig_body(&client), s->whole) != NULL;
    return (status == 500 || status == 503) && strstr(tr_rig_body(&client), "{\"error\":{") &&
           ends_with(client.buf, "}");
}

/* A worker and a time limit take some turns more. */
static bool settled(const struct scene *s)
{
    for (int i = 0; i < 20000 && !sound(s); i++) {
        turn(s);
        usleep(500);
    }
    return sound(s);
}

static void play(const struct scene *s, long from, long upto)
{
    rig.engine.n_order = 0;
    arm(from, upto);
    bool open = open_client();
    atomic_store(&armed, false); /* the client's own */
    if (open)
        tr_rig_send(&client, s->method, s->path, NULL, s->body);
    atomic_store(&armed, true);
    turn(s);
    answer(s);
    if (s->wait_ms)
        settled(s);
    atomic_store(&armed, false);
}

static bool quiet(void)
{
    for (int i = 0; i < 10000; i++) {
        tr_rig_run(&rig);
        if (!rig.fe.n_streams && !rig.fe.n_asks && !rig.fe.n_deliveries &&
            !tr_httpd_stats(rig.fe.httpd)->open)
            return true;
        usleep(1000);
    }
    return false;
}

static void one(const struct scene *s, long from, long upto)
{
    play(s, from, upto);
    cr_expect(settled(s), "%s, allocations %ld to %ld of %ld: eof %d, %s", s->path, from, upto,
              atomic_load(&seen), client.eof, client.buf);
    close(client.fd);
    cr_assert(quiet(), "%s, allocations %ld to %ld: something is left: %u streams, %u asks",
              s->path, from, upto, rig.fe.n_streams, rig.fe.n_asks);
}

static void everywhere(const struct scene *s)
{
    enum { NEVER = 1 << 30 };
    play(s, NEVER, NEVER); /* buffers that stay are made */
    close(client.fd);
    cr_assert(quiet());
    play(s, NEVER, NEVER);
    cr_assert(sound(s) && client.len, "undisturbed: %s", client.buf);
    close(client.fd);
    cr_assert(quiet());
    long n = atomic_load(&seen);
    cr_assert(n > 0, "allocations are seen");
    for (long i = 0; i < n; i++) {
        one(s, i, i + 1);
        one(s, i, NEVER);
    }
    play(s, NEVER, NEVER);
    cr_expect(sound(s) && strstr(client.buf, " 200 OK"), "afterwards: %s", client.buf);
    close(client.fd);
    cr_expect(quiet());
}

Test(memory, a_stream)
{
    const struct scene s = {
        "POST",
        "/v1/completions",
        "{\"model\":\"sim\",\"prompt\":\"x\",\"max_tokens\":3,\"stream\":true,\"n\":2}",
        "data: [DONE]\n\n",
        2,
        0};
    everywhere(&s);
}

Test(memory, a_chat_with_logprobs)
{
    const struct scene s = {
        "POST",
        "/v1/chat/completions",
        "{\"model\":\"sim\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_tokens\":3,"
        "\"logprobs\":true,\"top_logprobs\":3,\"stop\":[\"zz\"],\"logit_bias\":{\"5\":1}}",
        "\"total_tokens\":23",
        1,
        0};
    everywhere(&s);
}

Test(memory, native_events)
{
    const struct scene s = {"POST",
                            "/v1/streams",
                            "{\"model\":\"sim\",\"prompt\":\"x\",\"max_tokens\":3}",
                            "\"finish_reason\":\"length\"}\n\n",
                            1,
                            0};
    everywhere(&s);
}

Test(memory, a_long_body_on_a_worker)
{
    static char body[60000];
    int n = snprintf(body, sizeof(body), "{\"model\":\"sim\",\"prompt\":\"");
    memset(body + n, 'a', 40000);
    memcpy(body + n + 40000, "\"}", 3);
    const struct scene s = {"POST", "/tokenize", body, "\"count\":", 0, 4};
    everywhere(&s);
}

Test(memory, metrics)
{
    const struct scene s = {"GET", "/metrics", NULL, "tokenring_", 0, 0};
    everywhere(&s);
}

/* ---- streams without a reader ---- */

static const struct scene held = {
    "POST",
    "/v1/streams",
    "{\"model\":\"sim\",\"prompt\":\"x\",\"stop\":[\"zz\"],\"logprobs\":1,"
    "\"on_disconnect\":\"hold\"}",
    "\"finish_reason\":\"length\"}\n\n",
    1,
    0};

/* A stream that said "ab" and whose reader has gone. */
static uint32_t hold_one(void)
{
    rig.engine.n_order = 0;
    cr_assert(open_client());
    tr_rig_send(&client, held.method, held.path, NULL, held.body);
    turn(&held);
    uint32_t slot = tr_sengine_slot(&rig.engine, 0);
    cr_assert(slot != UINT32_MAX);
    tr_sengine_text(&rig.engine, slot, "ab");
    turn(&held);
    setsockopt(client.fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1},
               sizeof(struct linger));
    close(client.fd);
    tr_rig_run(&rig);
    cr_assert_eq(rig.fe.n_held, 1u);
    return slot;
}

/* Or the stream has ended with an error that its reader was told. */
static bool told(void)
{
    for (int i = 0; i < 20000 && !sound(&held); i++) {
        if (ends_with(client.buf, "\r\n0\r\n\r\n") &&
            ends_with(tr_rig_body(&client), "\"retryable\":false}\n\n"))
            return true;
        turn(&held);
        usleep(500);
    }
    return sound(&held);
}

/* Whatever became of it: it can be ended, and nothing is left. */
static bool let_go(void)
{
    struct tr_stream *s = TAILQ_FIRST(&rig.fe.held);
    if (s)
        tr_stream_cancel_for_good(s);
    return quiet();
}

static void come_back(uint32_t slot, long from, long upto)
{
    const struct tr_ring *r = tr_ring_at(&rig.shm, slot);
    char path[128], id[TR_STREAM_ID_BYTES];

    tr_stream_id_format((struct tr_stream_id){.slot = slot, .gen = r->gen, .rand = r->stream_rand},
                        id);
    snprintf(path, sizeof(path), "/v1/streams/%s?after=1", id);
    cr_assert(open_client());
    tr_rig_send(&client, "GET", path, NULL, NULL);
    arm(from, upto);
    turn(&held);
    tr_sengine_text(&rig.engine, slot, "c");
    turn(&held);
    tr_sengine_end(&rig.engine, slot, TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
    turn(&held);
    atomic_store(&armed, false);
}

static void resume_one(bool elsewhere, long from, long upto)
{
    uint32_t slot = hold_one();
    if (elsewhere) {
        tr_sengine_give(&rig.engine, slot,
                        (struct tr_owner){.area = 1, .epoch = 1, .confirmed = true});
        tr_rig_run(&rig);
        cr_assert_eq(rig.fe.n_streams, 0u);
    }
    come_back(slot, from, upto);
    cr_expect(told(), "allocations %ld to %ld: eof %d, %s", from, upto, client.eof, client.buf);
    close(client.fd);
    if (elsewhere && !rig.fe.n_streams) /* it was never asked for */
        tr_sengine_give(&rig.engine, slot, (struct tr_owner){.area = 0, .epoch = 1});
    tr_rig_run(&rig);
    cr_assert(let_go(), "allocations %ld to %ld: %u streams are left", from, upto,
              rig.fe.n_streams);
}

static void resume_everywhere(bool elsewhere)
{
    enum { NEVER = 1 << 30 };
    resume_one(elsewhere, NEVER, NEVER);
    resume_one(elsewhere, NEVER, NEVER);
    cr_assert(strstr(client.buf, " 200 OK"), "undisturbed: %s", client.buf);
    long n = atomic_load(&seen);
    cr_assert(n > 0, "allocations are seen");
    for (long i = 0; i < n; i++) {
        resume_one(elsewhere, i, i + 1);
        resume_one(elsewhere, i, NEVER);
    }
    resume_one(elsewhere, NEVER, NEVER);
    cr_expect(strstr(client.buf, " 200 OK"), "afterwards: %s", client.buf);
}

Test(memory, a_reader_comes_back)
{
    resume_everywhere(false);
}

Test(memory, a_reader_comes_back_to_another_frontend)
{
    resume_everywhere(true);
}

/* Whoever is given a stream finds memory for it in the end. */
Test(memory, a_stream_is_given)
{
    for (long i = 0; i < 12; i++) {
        uint32_t slot = hold_one();
        tr_sengine_give(&rig.engine, slot,
                        (struct tr_owner){.area = 1, .epoch = 1, .confirmed = true});
        tr_rig_run(&rig);
        arm(i, i % 2 ? i + 1 : 1 << 30);
        tr_sengine_give(&rig.engine, slot, (struct tr_owner){.area = 0, .epoch = 1});
        tr_rig_run(&rig);
        atomic_store(&armed, false);
        for (int k = 0; k < 10000 && !rig.fe.n_held; k++) {
            tr_rig_run(&rig);
            usleep(1000);
        }
        cr_expect(rig.fe.n_held, "failed from %ld on", i);
        cr_assert(let_go());
    }
}

/* A background response: its client has its name, or it does not go on. */
Test(memory, a_response_whose_client_was_not_told_its_name_ends)
{
    static const struct scene s = {
        "POST",
        "/v1/responses",
        "{\"model\":\"sim\",\"input\":\"x\",\"background\":true,\"max_output_tokens\":3}",
        "\"id\":\"resp_",
        1,
        0};
    unsigned told_so = 0, failed = 0;

    for (long i = -2; i < 200 && (i < 0 || atomic_load(&seen) > i); i++) {
        rig.engine.n_order = 0;
        cr_assert(open_client());
        tr_rig_send(&client, s.method, s.path, NULL, s.body);
        arm(i < 0 ? 1 << 30 : i, i < 0 ? 1 << 30 : i + 1);
        cr_expect(settled(&s), "allocation %ld: %s", i, client.buf);
        atomic_store(&armed, false);
        bool named = strstr(client.buf, s.whole);
        told_so += named;
        failed += !named && client.len;
        close(client.fd);
        if (named || !client.len) /* a cut: who knows what was on its way */
            cr_assert(let_go(), "allocation %ld", i);
        else
            cr_assert(quiet(), "allocation %ld: %u streams go on; %s", i, rig.fe.n_streams,
                      client.buf);
    }
    cr_expect_gt(told_so, 2u);
    cr_expect_gt(failed, 2u);
}
