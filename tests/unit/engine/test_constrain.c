/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that obey a grammar: never a token beside it, and the same tokens whatever happens around. */
#include "engine/constrain.h"

#include "base/sim_vocab.h"
#include "enginerig/engine_rig.h"
#include "grammar/build.h"
#include "grammar/match.h"
#include "grammar/pieces.h"
#include "shm/lpring.h"
#include "testlib/gguf_write.h"
#include "testlib/sim_pieces.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { N = 20, CTX = 256, MAX_OUT = 120, TINY_VOCAB = 100, TINY_EOG = 2 };

/* ---- vocabularies ---- */

/* Two controls, an end, the printable characters, and two longer pieces. */
static struct tr_gpiece_of tiny_piece(void *arg, uint32_t id)
{
    static const char text[] = " !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`"
                               "abcdefghijklmnopqrstuvwxyz{|}~";
    (void)arg;
    if (id < 3)
        return (struct tr_gpiece_of){.kind = id == TINY_EOG ? TR_GPIECE_EOG : TR_GPIECE_CONTROL};
    if (id >= 98)
        return (struct tr_gpiece_of){id == 98 ? "12" : "\":", 2, TR_GPIECE_TEXT};
    return (struct tr_gpiece_of){text + (id - 3), 1, TR_GPIECE_TEXT};
}

static struct tr_gpiece_of piece(bool cpu, uint32_t id)
{
    return cpu ? tiny_piece(NULL, id) : sim_piece(NULL, id);
}

/* ---- grammars ---- */

enum { ARRAY, NESTED, LINE, LETTERS, MARKER, ENDS, GRAMMARS };

static uint8_t image[GRAMMARS][TR_GRAM_BYTES];
static size_t image_len[GRAMMARS];

static tr_gnode lit(struct tr_gbuild *b, const char *s)
{
    return tr_g_bytes(b, s, strlen(s));
}

static tr_gnode range(struct tr_gbuild *b, uint32_t lo, uint32_t hi)
{
    return tr_g_class(b, &(struct tr_grange){lo, hi}, 1, false);
}

#define SEQ(...)                                                                                   \
    tr_g_seq(b, (tr_gnode[]){__VA_ARGS__}, sizeof((tr_gnode[]){__VA_ARGS__}) / sizeof(tr_gnode))
#define ALT(...)                                                                                   \
    tr_g_alt(b, (tr_gnode[]){__VA_ARGS__}, sizeof((tr_gnode[]){__VA_ARGS__}) / sizeof(tr_gnode))

static tr_gnode grammar(struct tr_gbuild *b, int which)
{
    tr_gnode number = tr_g_repeat(b, range(b, '0', '9'), 1, 4), rule = tr_g_rule(b);
    switch (which) {
    case ARRAY:
        return SEQ(lit(b, "["), number, tr_g_repeat(b, SEQ(lit(b, ","), number), 0, 8),
                   lit(b, "]"));
    case NESTED:
        tr_g_define(b, rule,
                    ALT(number, SEQ(lit(b, "{\""), tr_g_repeat(b, range(b, 'a', 'z'), 1, 3),
                                    lit(b, "\":"), rule, lit(b, "}"))));
        return SEQ(lit(b, "<"), rule, lit(b, ">"));
    case LINE:
        return SEQ(tr_g_repeat(b, range(b, ' ', '~'), 5, 30), lit(b, "."), lit(b, "!"));
    case LETTERS:
        return tr_g_repeat(b, range(b, 'a', 'c'), 1, TR_G_INF);
    case MARKER:
        return SEQ(lit(b, "a"), tr_g_token(b, TR_SIM_IM_START), lit(b, "b"));
    default:
        return SEQ(lit(b, "ab"), tr_g_token(b, TR_SIM_EOS));
    }
}

static void make_grammars(void)
{
    for (int i = 0; i < GRAMMARS; i++) {
        struct tr_errbuf err = {""};
        struct tr_gbuild *b = tr_gbuild_new();
        tr_gnode start = grammar(b, i);
        cr_assert_eq(tr_gbuild_finish(b, start, image[i], sizeof(image[i]), &image_len[i], &err), 0,
                     "%s", err.msg);
        tr_gbuild_free(b);
    }
}

/* ---- rigs ---- */

/* What computes them all together, where each alone is computed on the CPU (tests/cmake/cuda.cmake). */
#ifndef TOGETHER
#define TOGETHER tr_backend_cpu
#endif

static struct tr_engine_rig r;
static struct tr_extra extras[N];
static uint32_t prompts[N][80];
static void *pieces[2];
static size_t pieces_len[2];
static int model_fd;
static char model_path[64];

static void setup(void)
{
    make_grammars();
    cr_assert_eq(tr_gpieces_build(TR_SIM_VOCAB_SIZE, sim_piece, NULL, &pieces[0], &pieces_len[0]),
                 0);
    cr_assert_eq(tr_gpieces_build(TINY_VOCAB, tiny_piece, NULL, &pieces[1], &pieces_len[1]), 0);
}

static void teardown(void)
{
    free(pieces[0]);
    free(pieces[1]);
}

static void make_model(void)
{
    size_t len;
    struct tr_gw *w = tr_gw_new(3);
    tr_gw_llama(w, &(struct tr_gw_llama){.n_ctx = 512, .n_vocab = TINY_VOCAB, .seed = 7});
    uint8_t *bytes = tr_gw_finish(w, &len);
    model_fd = memfd_create("model", 0);
    cr_assert_eq(write(model_fd, bytes, len), (ssize_t)len);
    snprintf(model_path, sizeof(model_path), "/proc/self/fd/%d", model_fd);
    free(bytes);
}

struct shape {
    uint32_t window, max_seqs, chunk, kv, threads;
    bool speculate;
    bool alone; /* each by itself */
};

static void open_rig(bool cpu, struct shape s)
{
    struct tr_engine_rig_config c = {.shm = {.n_slots = 64,
                                             .n_admit = 56,
                                             .max_seqs = s.max_seqs,
                                             .n_ctx = CTX,
                                             .window = s.window},
                                     .sched = {.prefill_chunk = s.chunk,
                                               .speculate = s.speculate,
                                               .draft_floor = 0.1F,
                                               .pieces = pieces[cpu],
                                               .pieces_len = pieces_len[cpu]},
                                     .kv_blocks = s.kv};
    if (cpu) {
        c.ops = s.alone ? &tr_backend_cpu : &TOGETHER;
        c.shm.n_vocab = TINY_VOCAB;
        c.sched.n_eog = 1;
        c.sched.eog[0] = TINY_EOG;
        c.backend = (struct tr_backend_config){
            .model_path = model_path, .n_threads = s.threads, .deterministic = true};
    }
    tr_engine_rig_open(&r, &c);
}

static void close_rig(void)
{
    tr_engine_rig_close(&r);
}

TestSuite(constrain, .init = setup, .fini = teardown, .timeout = 100);

static void obey(struct tr_extra *e, int which)
{
    e->grammar = image[which];
    e->grammar_len = (uint32_t)image_len[which];
}

/* Three of four obey one of the grammars; among them sampled and greedy ones, penalties, ends, limits. */
static struct tr_rig_ask ask(uint32_t i, bool cpu)
{
    struct tr_rig_ask a = tr_rig_ask();
    a.prompt = prompts[i];
    a.prompt_len = 1 + (i * 17) % 80;
    for (uint32_t k = 0; k < a.prompt_len; k++)
        prompts[i][k] = (cpu ? 10 : TR_SIM_TEXT) + (k % (3 + i)) % 40;
    a.params.max_tokens = i % 6 == 5 ? 7 : MAX_OUT;
    a.params.temperature = i % 3 == 1 ? 1.0 : i % 3 == 2 ? 2.0 : 0;
    a.params.seed = i + 1;
    a.params.top_k = i % 4 == 3 ? 3 : 0;
    a.params.top_p = i % 5 == 2 ? 0.8 : 1;
    a.params.frequency_penalty = i % 7 == 2 ? 1 : 0;
    a.params.min_tokens = i % 8 == 7 ? 20 : 0;
    a.params.n_top = i % 4;
    if (i % 2)
        a.params.flags |= TR_REQ_LOGPROBS;
    if (i % 5 == 3)
        a.params.flags &= ~(uint32_t)TR_REQ_IGNORE_EOS;
    extras[i] = (struct tr_extra){.n_bias = 1, .bias = {{.id = cpu ? 30 : 'x', .value = 5}}};
    if (i % 4 != 3)
        obey(&extras[i], (int)(i % 4 == 2 ? 2 + i % 8 / 6 : i % 4));
    a.extra = &extras[i];
    a.area = i % 4;
    return a;
}

/* ---- answers ---- */

struct answer {
    uint32_t n, n_lp, state, finish, err;
    uint64_t finish_index;
    uint32_t ids[MAX_OUT];
    struct tr_lp lp[MAX_OUT];
};

static struct answer want[N], got[N];

static void read_all(const struct tr_rig_req *q, struct answer *w)
{
    tr_rig_be_frontend(&r, q->area);
    while (w->n_lp < MAX_OUT && tr_lpring_peek(&r.s, q->slot, &w->lp[w->n_lp]) == 0) {
        w->n_lp++;
        tr_lpring_pop(&r.s, q->slot);
    }
    uint32_t n = tr_rig_published(&r, q);
    tr_cursor_set(&r.s, q->slot, n, n);
}

static void note(const struct tr_rig_req *q, struct answer *w)
{
    const struct tr_ring *ring = tr_rig_ring(&r, q);
    read_all(q, w);
    w->n = tr_rig_published(&r, q);
    w->state = tr_rig_state(&r, q);
    w->finish = ring->finish;
    w->err = ring->err;
    w->finish_index = ring->finish_index;
    memcpy(w->ids, tr_rig_output(&r, q), w->n * sizeof(uint32_t));
}

/* The whole answer, read by itself. */
static void must_obey(const struct tr_extra *e, const struct answer *w, bool cpu)
{
    struct tr_gprog p;
    struct tr_gmatch m;
    uint32_t n_vocab = cpu ? TINY_VOCAB : TR_SIM_VOCAB_SIZE, n = w->n;
    if (!e->grammar_len)
        return;
    cr_assert_eq(tr_gprog_open(&p, e->grammar, e->grammar_len, n_vocab, NULL), 0);
    tr_gmatch_start(&m, &p);
    n -= w->state == TR_COMPLETED && w->finish == TR_FINISH_EOG;
    for (uint32_t i = 0; i < n; i++) {
        struct tr_gpiece_of k = piece(cpu, w->ids[i]);
        cr_assert_eq(k.kind, TR_GPIECE_TEXT);
        cr_assert(tr_gmatch_bytes(&m, &p, k.bytes, k.len), "token %u", i);
    }
    if (w->state == TR_COMPLETED)
        cr_assert(tr_gmatch_may_end(&m, &p));
    cr_assert_eq(tr_gmatch_is_over(&m, &p), w->finish == TR_FINISH_GRAMMAR);
}

static void each_alone(bool cpu)
{
    uint32_t whole = 0;
    memset(want, 0, sizeof(want));
    open_rig(cpu, (struct shape){.window = 256, .max_seqs = 4, .threads = 1, .alone = true});
    for (uint32_t i = 0; i < N; i++) {
        struct tr_rig_ask a = ask(i, cpu);
        struct tr_rig_req q = tr_rig_submit(&r, &a);
        while (tr_rig_turn(&r))
            read_all(&q, &want[i]);
        note(&q, &want[i]);
        must_obey(&extras[i], &want[i], cpu);
        whole += want[i].finish == TR_FINISH_GRAMMAR;
    }
    cr_assert_gt(whole, 5, "%u: this tests less than it says", whole);
    close_rig();
}

/* All at once, readers come and go, engines die. */
static void together(bool cpu, bool crash)
{
    struct tr_rig_req q[N];
    uint32_t n = 0;
    memset(got, 0, sizeof(got));
    for (uint32_t turn = 0;; turn++) {
        cr_assert_lt(turn, 100000);
        for (uint32_t k = (uint32_t)rand() % 3; k && n < N; k--, n++) {
            struct tr_rig_ask a = ask(n, cpu);
            q[n] = tr_rig_submit(&r, &a);
        }
        if (crash && rand() % 30 == 0)
            tr_engine_rig_restart(&r);
        bool busy = tr_rig_turn(&r);
        for (uint32_t i = 0; i < n; i++)
            if (rand() % 4 == 0 || !busy)
                read_all(&q[i], &got[i]);
        if (!busy && n == N && tr_rig_bills(&r) == N)
            break;
    }
    for (uint32_t i = 0; i < N; i++)
        note(&q[i], &got[i]);
}

static void equal_in_all_runs(bool cpu, bool crash)
{
    static const struct shape runs[] = {
        {256, 1, 0, 0, 1, false, false}, {256, 3, 7, 0, 2, false, false},
        {8, 4, 16, 0, 1, true, false},   {256, 8, 16, 9, 2, true, false},
        {5, 12, 33, 8, 2, false, false}, {16, 32, 64, 20, 2, true, false},
        {2, 3, 9, 0, 1, false, false}};
    each_alone(cpu);
    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        srand((unsigned)i);
        open_rig(cpu, runs[i]);
        together(cpu, crash);
        for (uint32_t k = 0; k < N; k++)
            cr_assert_eq(memcmp(&got[k], &want[k], sizeof(got[k])), 0, "run %zu, request %u", i, k);
        close_rig();
    }
}

Test(constrain, answers_obey_and_are_the_same_in_any_batch)
{
    equal_in_all_runs(false, false);
}

Test(constrain, the_same_with_a_model_and_threads, .timeout = 600)
{
    make_model();
    equal_in_all_runs(true, false);
    close(model_fd);
}

Test(constrain, the_same_when_engines_die)
{
    equal_in_all_runs(false, true);
}

/* ---- ends ---- */

static struct answer answer_to(struct tr_rig_ask a)
{
    static struct answer w;
    memset(&w, 0, sizeof(w));
    open_rig(false, (struct shape){.window = 256, .max_seqs = 4});
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_run(&r, &q, 1);
    note(&q, &w);
    close_rig();
    return w;
}

static struct tr_rig_ask bound(int which, uint32_t flags)
{
    struct tr_rig_ask a = tr_rig_ask();
    extras[0] = (struct tr_extra){.n_bias = 0};
    obey(&extras[0], which);
    a.extra = &extras[0];
    a.params.max_tokens = 100;
    a.params.flags = flags;
    return a;
}

Test(constrain, an_answer_that_is_whole_ends_without_an_end_of_turn)
{
    struct tr_rig_ask a = bound(ARRAY, TR_REQ_STREAM | TR_REQ_IGNORE_EOS);
    a.params.min_tokens = 90;
    struct answer w = answer_to(a);
    cr_assert(w.state == TR_COMPLETED && w.finish == TR_FINISH_GRAMMAR && w.finish_index == w.n);
    cr_assert_eq(w.ids[w.n - 1], (uint32_t)']');
    a.params.max_tokens = w.n; /* whole with its last token: not cut */
    a.params.min_tokens = 0;
    w = answer_to(a);
    cr_assert(w.state == TR_COMPLETED && w.finish == TR_FINISH_GRAMMAR);
    a.params.max_tokens = w.n - 1;
    w = answer_to(a);
    cr_assert(w.state == TR_INCOMPLETE && w.finish == TR_FINISH_LENGTH);
}

Test(constrain, the_turn_ends_where_the_grammar_may_end_and_only_there)
{
    struct tr_rig_ask a = bound(LETTERS, TR_REQ_STREAM);
    extras[0].n_bias = 1;
    extras[0].bias[0] = (struct tr_bias){.id = TR_SIM_EOS, .value = 100};
    struct answer w = answer_to(a);
    cr_assert(w.state == TR_COMPLETED && w.finish == TR_FINISH_EOG && w.n == 2);
    a.params.min_tokens = 5;
    cr_assert_eq(answer_to(a).n, 6);
    a.params.flags |= TR_REQ_IGNORE_EOS;
    w = answer_to(a);
    cr_assert(w.state == TR_INCOMPLETE && w.n == 100);
}

Test(constrain, a_token_without_bytes_comes_where_the_grammar_asks_for_it)
{
    struct answer w = answer_to(bound(MARKER, TR_REQ_STREAM | TR_REQ_IGNORE_EOS));
    cr_assert(w.state == TR_COMPLETED && w.finish == TR_FINISH_GRAMMAR && w.n == 3);
    cr_assert_eq(w.ids[1], TR_SIM_IM_START);
}

Test(constrain, no_token_left_is_an_error_of_its_own)
{
    /* The end of a turn is not a token that a grammar may ask for. */
    for (uint32_t i = 0; i < 2; i++) {
        struct answer e = answer_to(bound(ENDS, TR_REQ_STREAM | (i ? TR_REQ_IGNORE_EOS : 0)));
        cr_assert(e.state == TR_ERROR && e.err == TR_ERR_GRAMMAR_FAILED);
        cr_assert(e.n >= 1 && e.finish_index == e.n);
    }
    /* A stop id that is all the grammar allows, and may not come yet. */
    struct tr_rig_ask a = bound(ARRAY, TR_REQ_STREAM);
    extras[0].n_stop = 1;
    extras[0].stop_ids[0] = '[';
    struct answer w = answer_to(a);
    cr_assert(w.state == TR_COMPLETED && w.finish == TR_FINISH_STOP_ID && w.n == 1);
    a.params.min_tokens = 2;
    w = answer_to(a);
    cr_assert(w.state == TR_ERROR && w.err == TR_ERR_GRAMMAR_FAILED && w.n == 0);
}

Test(constrain, a_program_that_is_none_is_a_bad_submission)
{
    struct tr_rig_ask a = bound(ARRAY, TR_REQ_STREAM);
    extras[0].grammar_len--;
    struct answer w = answer_to(a);
    cr_assert(w.state == TR_ERROR && w.err == TR_ERR_BAD_SUBMISSION && w.n == 0);
    struct tr_engine_rig_config c = {.shm = {.n_ctx = CTX}};
    a = bound(ARRAY, TR_REQ_STREAM);
    tr_engine_rig_open(&r, &c); /* without a vocabulary for grammars */
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    tr_rig_run(&r, &q, 1);
    cr_assert_eq(tr_rig_ring(&r, &q)->err, TR_ERR_BAD_SUBMISSION);
    close_rig();
}

/* What a former engine left leads nowhere: it is not gone on with. */
Test(constrain, tokens_in_a_ring_that_do_not_obey_end_it)
{
    open_rig(false, (struct shape){.window = 256, .max_seqs = 4});
    struct tr_rig_ask a = bound(NESTED, TR_REQ_STREAM | TR_REQ_IGNORE_EOS);
    struct tr_rig_req q = tr_rig_submit(&r, &a);
    for (int i = 0; i < 3; i++)
        tr_rig_turn(&r);
    uint32_t n = tr_rig_published(&r, &q);
    cr_assert_gt(n, 0);
    tr_ring_ids_rw(&r.s, q.slot)[3 + n - 1] = 'Q';
    atomic_store_explicit(&r.s.rings->heartbeat_ns, 0, memory_order_relaxed);
    tr_engine_rig_restart(&r);
    /* To lead answers through their grammars takes a while if there are many. */
    cr_assert_gt(atomic_load_explicit(&r.s.rings->heartbeat_ns, memory_order_relaxed), 0);
    tr_rig_run(&r, &q, 1);
    cr_assert_eq(tr_rig_state(&r, &q), TR_ERROR);
    cr_assert_eq(tr_rig_ring(&r, &q)->err, TR_ERR_GRAMMAR_FAILED);
    cr_assert_eq(tr_rig_published(&r, &q), n);
    close_rig();
}

Test(constrain, a_slot_forgets_its_grammar_with_its_request)
{
    open_rig(false, (struct shape){.window = 256, .max_seqs = 4});
    struct tr_rig_ask a = bound(ARRAY, TR_REQ_STREAM | TR_REQ_IGNORE_EOS);
    for (int i = 0; i < 200; i++) {
        a.extra = i % 2 ? NULL : &extras[0];
        struct tr_rig_req q = tr_rig_submit(&r, &a);
        tr_rig_run(&r, &q, 1);
        cr_assert_eq(tr_rig_ring(&r, &q)->finish, i % 2 ? TR_FINISH_LENGTH : TR_FINISH_GRAMMAR);
        tr_rig_release(&r, &q);
        tr_rig_ledger_runs(&r);
        tr_rig_run(&r, NULL, 0);
    }
    close_rig();
}
