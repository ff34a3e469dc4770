/* SPDX-License-Identifier: Apache-2.0 */
/* The probe against a scripted server: the streams that real servers and proxies send and that
 * some client stumbles over (A0 to A25), then servers that mean harm.  For each: the outcome, the
 * text, the tokens and the exit status that the probe reports. */
#include "probe/probe.h"
#include "scripted_http.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROLE "{\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}"
#define C1 "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hel\"},\"finish_reason\":null}]}"
#define C2 "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lo w\xC3\xB6rld\"}}]}"
#define FIN "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}"
#define USAGE "{\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":4}}"
#define TEXT "Hello w\xC3\xB6rld"
#define D(json) "data: " json "\n\n"
#define TAIL D(FIN) D(USAGE) D("[DONE]")
#define ALL D(ROLE) D(C1) D(C2) TAIL

static int passed, failed;

#define check(ok, name, ...)                                                                       \
    do {                                                                                           \
        if (ok) {                                                                                  \
            passed++;                                                                              \
        } else {                                                                                   \
            failed++;                                                                              \
            fprintf(stderr, "%s: ", name);                                                         \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputs("\n", stderr);                                                                   \
        }                                                                                          \
    } while (0)

/* Runs the probe against the scripts.  `extra` is a NULL-ended list of options.  The report of
 * --json in *report (NULL if there is none); returns the exit status. */
static int probe(const struct tr_script *scripts, size_t n, const char *const *metrics,
                 size_t n_metrics, const char *const *extra, json_t **report, char *request,
                 size_t request_size)
{
    struct tr_scripted_http *s = tr_scripted_http_start(scripts, n, metrics, n_metrics);
    if (!s) {
        perror("scripted server");
        exit(1);
    }
    char url[64];
    snprintf(url, sizeof(url), "http://127.0.0.1:%d/v1/", tr_scripted_http_port(s));
    const char *argv[32] = {"probe", "--url", url, "--json", "--show-text"};
    int argc = 5;
    while (*extra && argc < 31)
        argv[argc++] = *extra++;
    char *out = NULL;
    size_t out_len = 0;
    FILE *f = open_memstream(&out, &out_len);
    int status = tr_probe_run(argc, (char **)argv, f, stderr);
    fclose(f);
    *report = json_loadb(out, out_len, JSON_ALLOW_NUL, NULL);
    if (request)
        snprintf(request, request_size, "%s", tr_scripted_http_body(s));
    free(out);
    tr_scripted_http_stop(s);
    return status;
}

static const char *str(const json_t *o, const char *key)
{
    const char *v = json_string_value(json_object_get(o, key));
    return v ? v : "";
}

static long long num(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_integer(v) ? (long long)json_integer_value(v) : -1;
}

static const json_t *only_stream(const json_t *report)
{
    return json_array_get(json_object_get(report, "streams"), 0);
}

/* How an event stream is put on the wire. */
enum framing { WHOLE_CHUNK, TINY_CHUNKS, UNTIL_CLOSE, FRAMINGS };

static char *frame(const char *sse, enum framing how, bool cut, size_t *len)
{
    char *bytes = NULL;
    FILE *f = open_memstream(&bytes, len);
    size_t n = strlen(sse), step = how == TINY_CHUNKS ? 3 : n;
    fputs("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n", f);
    fputs(how == UNTIL_CLOSE ? "\r\n" : "Transfer-Encoding: chunked\r\n\r\n", f);
    if (how == UNTIL_CLOSE)
        fputs(sse, f);
    for (size_t i = 0; how != UNTIL_CLOSE && i < n; i += step) {
        size_t k = n - i < step ? n - i : step;
        fprintf(f, "%zx\r\n", k);
        fwrite(sse + i, 1, k, f);
        fputs("\r\n", f);
    }
    if (how != UNTIL_CLOSE && !cut)
        fputs("0\r\n\r\n", f);
    fclose(f);
    return bytes;
}

static const struct row {
    const char *name, *sse;
    const char *outcome, *finish;
    const char *text;     /* NULL: TEXT */
    long long completion; /* -1: no usage block */
    long long contents;   /* content events */
    const char *counter;  /* one of report.events, and what it must be; NULL: none */
    long long counted;
    bool cut; /* no last chunk; chunked framings only */
} rows[] = {
    {"A0 plain", ALL, "complete", "stop", NULL, 4, 2, "foreign", 0, false},
    {"A1 keep-alive comments", ": c\n\n" D(ROLE) ": c\n\n" D(C1) ": c\n\n" D(C2) TAIL, "complete",
     "stop", NULL, 4, 2, "comments", 3, false},
    {"A2 id on events", "id: 1\n" D(ROLE) "id: 2\n" D(C1) "id: 3\n" D(C2) TAIL, "complete", "stop",
     NULL, 4, 2, NULL, 0, false},
    {"A3 id, then a comment block", "id: 1\n" D(C1) ": c\n\n" D(C2) TAIL, "complete", "stop", NULL,
     4, 2, "comments", 1, false},
    {"A4 id, then a comment line", "id: 1\n" D(C1) ": c\n" D(C2) TAIL, "complete", "stop", NULL, 4,
     2, "comments", 1, false},
    {"A5 lone retry", "retry: 3000\n\n" ALL, "complete", "stop", NULL, 4, 2, "all", 6, false},
    {"A6 retry in the first event", "retry: 3000\n" ALL, "complete", "stop", NULL, 4, 2, "all", 6,
     false},
    {"A7 CRLF",
     "data: " C1 "\r\n\r\ndata: " C2 "\r\n\r\ndata: " FIN "\r\n\r\ndata: " USAGE
     "\r\n\r\ndata: [DONE]\r\n\r\n",
     "complete", "stop", NULL, 4, 2, NULL, 0, false},
    {"A8 CR",
     "data: " C1 "\r\rdata: " C2 "\r\rdata: " FIN "\r\rdata: " USAGE "\r\rdata: [DONE]\r\r",
     "complete", "stop", NULL, 4, 2, NULL, 0, false},
    {"A9 byte order mark", "\xEF\xBB\xBF" D(C1) D(C2) TAIL, "complete", "stop", NULL, 4, 2, NULL, 0,
     false},
    {"A10 event: ping with {}", "event: ping\ndata: {}\n\n" ALL, "complete", "stop", NULL, 4, 2,
     "foreign", 1, false},
    {"A11 event without data", "event: ping\n\n" ALL, "complete", "stop", NULL, 4, 2, "all", 6,
     false},
    {"A12 empty data", D(C1) "data:\n\n" D(C2) TAIL, "complete", "stop", NULL, 4, 2, "empty", 1,
     false},
    {"A13 foreign event with JSON", "event: slug:queued\ndata: {\"position\":3}\n\n" ALL,
     "complete", "stop", NULL, 4, 2, "foreign", 1, false},
    {"A14 chunk without choices", D("{\"choices\":[],\"tokenring\":{\"q\":1}}") ALL, "complete",
     "stop", NULL, 4, 2, "foreign", 0, false},
    {"A15 extra fields",
     D("{\"x\":[1,{\"y\":null}],\"choices\":[{\"index\":0,\"z\":0,\"delta\":"
       "{\"content\":\"Hel\",\"w\":[]}}]}") D(C2) TAIL,
     "complete", "stop", NULL, 4, 2, NULL, 0, false},
    {"A16 error within the stream",
     D(C1) D("{\"error\":{\"message\":\"lost\",\"type\":\"server_error\",\"param\":null,"
             "\"code\":\"engine_lost\"}}") D("[DONE]"),
     "error", "", "Hel", -1, 1, NULL, 0, false},
    {"A17 no [DONE]", D(C1) D(C2) D(FIN) D(USAGE), "complete", "stop", NULL, 4, 2, NULL, 0, false},
    {"A18 no finish_reason", D(C1) D(C2) D(USAGE), "truncated", "", NULL, 4, 2, NULL, 0, false},
    {"A18 [DONE] without finish_reason", D(C1) D(C2) D("[DONE]"), "truncated", "", NULL, -1, 2,
     NULL, 0, false},
    {"A19 cut in the chunked body", D(C1) D(C2), "truncated", "", NULL, -1, 2, NULL, 0, true},
    {"A19 cut within an event", D(C1) "data: {\"choi", "truncated", "", "Hel", -1, 1, "undecodable",
     0, true},
    {"A20 finish_reason abort",
     D(C1) D("{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"abort\"}]}") D("[DONE]"),
     "truncated", "abort", "Hel", -1, 1, NULL, 0, false},
    {"A21 no space after data:", "data:" C1 "\n\ndata:" C2 "\n\n" TAIL, "complete", "stop", NULL, 4,
     2, NULL, 0, false},
    {"A22 JSON over several lines",
     D(C1) "data: {\"choices\":[{\"index\":0,\ndata:  \"delta\":{\"content\":\n"
           "data: \"lo w\xC3\xB6rld\"}}]}\n\n" TAIL,
     "complete", "stop", NULL, 4, 2, NULL, 0, false},
    /* TINY_CHUNKS cuts it in every place. */
    {"A23 UTF-8 over two chunks",
     D("{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\xF0\x9F\x99\x82\xE2\x82\xAC\"}}]}")
         D(FIN) D("[DONE]"),
     "complete", "stop", "\xF0\x9F\x99\x82\xE2\x82\xAC", -1, 1, NULL, 0, false},
    {"A24 usage in the finish chunk",
     D(C1) D(C2) D("{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],"
                   "\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":4}}") D("[DONE]"),
     "complete", "stop", NULL, 4, 2, NULL, 0, false},
    {"A25 last event without blank line", D(C1) D(C2) D(USAGE) "data: " FIN, "complete", "stop",
     NULL, 4, 2, NULL, 0, false},
    {"an event that is not JSON", D(C1) D("{oops") TAIL, "malformed", "stop", "Hel", 4, 1,
     "undecodable", 1, false},
    {"events after [DONE]", ALL D(C1), "complete", "stop", NULL, 4, 2, "after_done", 1, false},
};

static void one_row(const struct row *r, enum framing how)
{
    static const char *const none[] = {NULL};
    struct tr_script_piece piece = {0};
    json_t *report;
    char *bytes = frame(r->sse, how, r->cut, &piece.len);
    piece.p = bytes;
    struct tr_script script = {&piece, 1, TR_SCRIPT_CLOSE};
    int status = probe(&script, 1, NULL, 0, none, &report, NULL, 0);
    const json_t *s = only_stream(report);
    char name[96];
    snprintf(name, sizeof(name), "%s, framing %d", r->name, (int)how);
    check(!strcmp(str(s, "outcome"), r->outcome), name, "outcome %s (%s)", str(s, "outcome"),
          str(s, "detail"));
    check(!strcmp(str(s, "text"), r->text ? r->text : TEXT), name, "text %s", str(s, "text"));
    check(!strcmp(str(s, "finish_reason"), r->finish), name, "finish %s", str(s, "finish_reason"));
    check(num(s, "completion_tokens") == r->completion, name, "%lld tokens",
          num(s, "completion_tokens"));
    check(num(s, "content_events") == r->contents, name, "%lld contents", num(s, "content_events"));
    check(status == (strcmp(r->outcome, "complete") ? 1 : 0), name, "status %d", status);
    check(num(json_object_get(report, "outcomes"), r->outcome) == 1, name, "not counted");
    if (r->counter)
        check(num(json_object_get(report, "events"), r->counter) == r->counted, name, "%lld %s",
              num(json_object_get(report, "events"), r->counter), r->counter);
    json_decref(report);
    free(bytes);
}

#define P(s) .p = (s), .len = sizeof(s) - 1
#define HEAD "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
#define CHUNKED HEAD "Transfer-Encoding: chunked\r\n\r\n"
#define FOR_EVER 100000000

static char filler[65536], line_filler[65536];

static const struct hostile {
    const char *name;
    struct tr_script_piece pieces[3];
    enum tr_script_end end;
    const char *outcome;
} hostiles[] = {
    {"no answer", {{P("")}}, TR_SCRIPT_CLOSE, "truncated"},
    {"reset at once", {{P("")}}, TR_SCRIPT_RESET, "truncated"},
    {"silence", {{P("")}}, TR_SCRIPT_HANG, "timeout"},
    {"half a head", {{P("HTTP/1.1 200 OK\r\nA")}}, TR_SCRIPT_HANG, "timeout"},
    {"endless headers",
     {{P(HEAD)}, {P("X-A: b\r\n"), .times = FOR_EVER}},
     TR_SCRIPT_HANG,
     "malformed"},
    {"one endless header",
     {{P(HEAD)}, {P("X-A:xxxxxxxxxxxxxx"), .times = FOR_EVER}},
     TR_SCRIPT_HANG,
     "malformed"},
    {"endless interim answers",
     {{P("HTTP/1.1 100 C\r\n\r\n"), .times = FOR_EVER}},
     TR_SCRIPT_HANG,
     "malformed"},
    {"not HTTP", {{P("SSH-2.0-OpenSSH_9.2\r\n\r\n\r\n")}}, TR_SCRIPT_HANG, "malformed"},
    {"garbage chunk size", {{P(CHUNKED "zz\r\n")}}, TR_SCRIPT_HANG, "malformed"},
    {"enormous chunk size", {{P(CHUNKED "ffffffffffffffffff\r\n")}}, TR_SCRIPT_HANG, "malformed"},
    {"chunk with a hole", {{P(CHUNKED "3\r\nabcdef\r\n")}}, TR_SCRIPT_HANG, "malformed"},
    {"huge event",
     {{P(HEAD "\r\ndata: ")}, {.p = filler, .len = sizeof(filler), .times = FOR_EVER}},
     TR_SCRIPT_HANG,
     "malformed"},
    {"event of endless lines",
     {{P(HEAD "\r\n")}, {.p = line_filler, .len = sizeof(line_filler), .times = FOR_EVER}},
     TR_SCRIPT_HANG,
     "malformed"},
    {"endless comments",
     {{P(HEAD "\r\n")}, {P(": c\n\n"), .pause_ms = 2, .times = FOR_EVER}},
     TR_SCRIPT_HANG,
     "timeout"},
    {"endless contents",
     {{P(HEAD "\r\n")}, {P(D(C1)), .pause_ms = 2, .times = FOR_EVER}},
     TR_SCRIPT_HANG,
     "timeout"},
    {"deep JSON",
     {{P(HEAD "\r\ndata: ")}, {P("[[[[[[[["), .times = 1000}, {P("\n\n" TAIL)}},
     TR_SCRIPT_CLOSE,
     "malformed"},
    {"reset within the stream",
     {{P(HEAD "\r\n" D(C1))}, {P(D(C2)), .pause_ms = 20}},
     TR_SCRIPT_RESET,
     "truncated"},
    {"silence within an event", {{P(CHUNKED "6\r\ndata: \r\n")}}, TR_SCRIPT_HANG, "timeout"},
    {"error status",
     {{P("HTTP/1.1 503 No\r\nContent-Length: 55\r\n\r\n"
         "{\"error\":{\"message\":\"full\",\"code\":\"overloaded_error\"}}  ")}},
     TR_SCRIPT_CLOSE,
     "error"},
    {"error status, cut",
     {{P("HTTP/1.1 500 No\r\nContent-Length: 55\r\n\r\n{\"err")}},
     TR_SCRIPT_CLOSE,
     "error"},
    {"redirect",
     {{P("HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n")}},
     TR_SCRIPT_CLOSE,
     "error"},
    {"not a stream",
     {{P("HTTP/1.1 200 OK\r\nContent-Type: Application/JSON\r\nContent-Length: 2\r\n\r\n{}")}},
     TR_SCRIPT_CLOSE,
     "malformed"},
    {"compressed", {{P(HEAD "Content-Encoding: gzip\r\n\r\nxx")}}, TR_SCRIPT_CLOSE, "malformed"},
};

static void one_hostile(const struct hostile *h)
{
    static const char *const options[] = {"--timeout-s", "30", NULL};
    static const char *const brief[] = {"--timeout-s", "0.3", NULL};
    struct tr_script script = {h->pieces, 3, h->end};
    json_t *report;
    bool wait = !strcmp(h->outcome, "timeout");
    int status = probe(&script, 1, NULL, 0, wait ? brief : options, &report, NULL, 0);
    const json_t *s = only_stream(report);
    check(!strcmp(str(s, "outcome"), h->outcome), h->name, "outcome %s (%s)", str(s, "outcome"),
          str(s, "detail"));
    check(status == 1, h->name, "status %d", status);
    json_decref(report);
}

static void late_endings(void)
{
    static const char *const options[] = {"--timeout-s", "0.5", NULL};
    for (int k = 0; k < 2; k++) {
        struct tr_script_piece piece = {0};
        char *bytes = frame(ALL, WHOLE_CHUNK, true, &piece.len);
        piece.p = bytes;
        struct tr_script script = {&piece, 1, k ? TR_SCRIPT_HANG : TR_SCRIPT_CLOSE};
        json_t *report;
        int status = probe(&script, 1, NULL, 0, options, &report, NULL, 0);
        check(status == 0, "no clean end after [DONE]", "status %d", status);
        check(num(report, "late_cuts") == 1, "no clean end after [DONE]", "not noted");
        json_decref(report);
        free(bytes);
    }
}

static void many_streams_and_the_servers_own_figures(void)
{
    static const char *const pages[] = {
        "tokenring_time_to_first_token_seconds_bucket{le=\"0.01\"} 1\n"
        "tokenring_time_to_first_token_seconds_bucket{le=\"+Inf\"} 1\n"
        "tokenring_time_to_first_token_seconds_sum 0.005\n"
        "tokenring_time_to_first_token_seconds_count 1\n",
        "tokenring_time_to_first_token_seconds_bucket{le=\"0.01\"} 21\n"
        "tokenring_time_to_first_token_seconds_bucket{le=\"+Inf\"} 21\n"
        "tokenring_time_to_first_token_seconds_sum 0.105\n"
        "tokenring_time_to_first_token_seconds_count 21\n"};
    static const char *const options[] = {"--parallel",   "8",  "--requests", "20",
                                          "--check-text", NULL, NULL};
    static const struct tr_script_piece pieces[] = {
        {P(HEAD "\r\n" D(ROLE) D(C1))}, {P(D(C2)), .pause_ms = 30}, {P(TAIL)}};
    static const struct tr_script script = {pieces, 3, TR_SCRIPT_CLOSE};
    const char *name = "20 streams, 8 at a time";
    json_t *r;
    int status = probe(&script, 1, pages, 2, options, &r, NULL, 0);
    const json_t *gap = json_object_get(json_object_get(r, "ms"), "gap");
    const json_t *usage = json_object_get(r, "usage");
    const json_t *ttft = json_object_get(json_object_get(r, "server"), "ttft");
    double p50 = json_number_value(json_object_get(gap, "p50"));
    double mean = json_number_value(json_object_get(ttft, "mean"));
    check(status == 0, name, "status %d", status);
    check(num(json_object_get(r, "outcomes"), "complete") == 20, name, "not all complete");
    check(num(usage, "completion_tokens") == 80 && num(usage, "streams") == 20, name, "usage");
    check(num(gap, "n") == 20 && p50 >= 25 && p50 < 1000, name, "gap p50 %.2f ms", p50);
    check(num(json_object_get(r, "text"), "checked") == 20, name, "text not checked");
    check(num(json_object_get(r, "text"), "mismatches") == 0, name, "text differs");
    check(num(ttft, "n") == 20 && mean > 4.9 && mean < 5.1, name, "server ttft mean %.3f", mean);
    json_decref(r);
}

static void differing_texts_are_counted(void)
{
    static const char *const options[] = {"--parallel",   "1", "--requests", "4",
                                          "--check-text", NULL};
    static const struct tr_script_piece one = {P(HEAD "\r\n" ALL)};
    static const struct tr_script_piece other = {P(HEAD "\r\n" D(C2) D(C1) TAIL)};
    const struct tr_script scripts[] = {{&one, 1, TR_SCRIPT_CLOSE}, {&other, 1, TR_SCRIPT_CLOSE}};
    char request[4096];
    json_t *r;
    int status = probe(scripts, 2, NULL, 0, options, &r, request, sizeof(request));
    const json_t *text = json_object_get(r, "text");
    check(status == 1, "differing texts", "status %d", status);
    check(num(text, "mismatches") == 2 && num(text, "first_mismatch") == 1, "differing texts",
          "%lld mismatches", num(text, "mismatches"));
    check(strstr(request, "\"temperature\":0.0") != NULL, "differing texts", "%s", request);
    check(!strcmp(str(r, "server_note"), "/metrics could not be read"), "no metrics", "%s",
          str(r, "server_note"));
    json_decref(r);
}

static void hanging_up_on_purpose_is_no_failure(void)
{
    static const char *const options[] = {"--abort-after", "1", NULL};
    static const struct tr_script_piece piece = {P(HEAD "\r\n" D(C1)), .times = 1};
    const struct tr_script script = {&piece, 1, TR_SCRIPT_HANG};
    json_t *r;
    int status = probe(&script, 1, NULL, 0, options, &r, NULL, 0);
    check(status == 0, "abort-after", "status %d", status);
    check(num(json_object_get(r, "outcomes"), "aborted") == 1, "abort-after", "not counted");
    json_decref(r);
}

static void the_request_says_what_the_options_say(void)
{
    static const char *const options[] = {"--route",
                                          "completions",
                                          "--force-token",
                                          "42",
                                          "--prompt",
                                          "say \"hi\"",
                                          "--distinct",
                                          "--seed",
                                          "7",
                                          "--max-tokens",
                                          "9",
                                          "--ignore-eos",
                                          "--model",
                                          "m",
                                          "--header",
                                          "X-A: b",
                                          "--api-key",
                                          "k",
                                          NULL};
    static const struct tr_script_piece piece = {P(HEAD "\r\n" D(
        "{\"choices\":[{\"index\":0,\"text\":\"Hi\",\"finish_reason\":\"length\"}]}") D("[DONE]"))};
    const struct tr_script script = {&piece, 1, TR_SCRIPT_CLOSE};
    const char *name = "the request";
    char request[4096];
    json_t *r;
    int status = probe(&script, 1, NULL, 0, options, &r, request, sizeof(request));
    json_t *b = json_loads(request, 0, NULL);
    check(status == 0, name, "status %d", status);
    check(!strcmp(str(only_stream(r), "text"), "Hi"), name, "text");
    check(!strcmp(str(b, "prompt"), "1. say \"hi\""), name, "prompt %s", str(b, "prompt"));
    check(num(json_object_get(b, "logit_bias"), "42") == 100, name, "bias");
    check(num(b, "seed") == 7 && num(b, "max_tokens") == 9, name, "numbers");
    check(json_is_true(json_object_get(b, "ignore_eos")), name, "ignore_eos");
    check(!strcmp(str(b, "model"), "m"), name, "model");
    check(json_is_true(json_object_get(json_object_get(b, "stream_options"), "include_usage")),
          name, "include_usage");
    json_decref(b);
    json_decref(r);
}

static int run(const char *a, const char *b, const char *c, const char *d, char **out)
{
    const char *argv[] = {"probe", a, b, c, d, NULL};
    int argc = 1;
    while (argv[argc])
        argc++;
    size_t len;
    FILE *f = open_memstream(out, &len);
    int status = tr_probe_run(argc, (char **)argv, f, f);
    fclose(f);
    return status;
}

static void usage_and_unreachable_servers_have_their_own_status(void)
{
    static const struct {
        const char *a, *b, *c, *d;
        int status;
        const char *says;
    } runs[] = {
        {"--help", NULL, NULL, NULL, 0, "--abort-after N"},
        {"--bogus", NULL, NULL, NULL, 2, "--bogus"},
        {"--parallel", "0", NULL, NULL, 2, "--parallel"},
        {"--parallel", "x", NULL, NULL, 2, "--parallel"},
        {"--parallel", NULL, NULL, NULL, 2, "--parallel"},
        {"--url", "https://x", NULL, NULL, 2, "https://x"},
        {"--url", "http://h:70x", NULL, NULL, 2, "http://h:70x"},
        {"--route", "chats", NULL, NULL, 2, "--route"},
        {"--header", "no colon", NULL, NULL, 2, "--header"},
        {"--header", "a: b\r\nc: d", NULL, NULL, 2, "--header"},
        {"--check-text", "--distinct", NULL, NULL, 2, "--check-text"},
        {"--prompt-file", "/nonexistent", NULL, NULL, 2, "/nonexistent"},
        {"stray", NULL, NULL, NULL, 2, "stray"},
        {"--url", "http://127.0.0.1:1", NULL, NULL, 3, "cannot connect"},
        {"--url", "http://127.0.0.1:1", "--model", "m", 3, "1 refused"},
    };
    for (size_t i = 0; i < sizeof(runs) / sizeof(*runs); i++) {
        char *out = NULL;
        int status = run(runs[i].a, runs[i].b, runs[i].c, runs[i].d, &out);
        check(status == runs[i].status, runs[i].a, "status %d", status);
        check(out && strstr(out, runs[i].says), runs[i].a, "says %s", out);
        free(out);
    }
}

static void options_can_come_from_the_environment(void)
{
    char *out = NULL;
    setenv("TOKENRING_PROBE_MAX_TOKENS", "many", 1);
    check(run(NULL, NULL, NULL, NULL, &out) == 2, "environment", "taken");
    check(out && strstr(out, "TOKENRING_PROBE_MAX_TOKENS"), "environment", "says %s", out);
    unsetenv("TOKENRING_PROBE_MAX_TOKENS");
    free(out);
}

static void the_table_names_every_figure(void)
{
    static const char *const figures[] = {"1 complete", "1 stop",        "4 completion", "connect",
                                          "headers",    "ttft",          "gap",          "e2e",
                                          "tok/s",      "\n--- stream 0"};
    static const struct tr_script_piece piece = {P(HEAD "\r\n" ALL)};
    const struct tr_script script = {&piece, 1, TR_SCRIPT_CLOSE};
    struct tr_scripted_http *s = tr_scripted_http_start(&script, 1, NULL, 0);
    char url[64], *out = NULL;
    snprintf(url, sizeof(url), "127.0.0.1:%d", s ? tr_scripted_http_port(s) : 0);
    int status = run("--url", url, "--show-text", "--no-metrics", &out);
    check(status == 0, "table", "status %d", status);
    for (size_t i = 0; i < sizeof(figures) / sizeof(*figures); i++)
        check(out && strstr(out, figures[i]), "table", "no %s in %s", figures[i], out);
    free(out);
    tr_scripted_http_stop(s);
}

int main(void)
{
    memset(filler, 'x', sizeof(filler));
    for (size_t i = 0; i < sizeof(line_filler); i++)
        line_filler[i] = "data: x\n"[i % 8];
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        for (int how = 0; how < FRAMINGS; how++)
            if (!rows[i].cut || how != UNTIL_CLOSE)
                one_row(&rows[i], (enum framing)how);
    for (size_t i = 0; i < sizeof(hostiles) / sizeof(*hostiles); i++)
        one_hostile(&hostiles[i]);
    late_endings();
    many_streams_and_the_servers_own_figures();
    differing_texts_are_counted();
    hanging_up_on_purpose_is_no_failure();
    the_request_says_what_the_options_say();
    usage_and_unreachable_servers_have_their_own_status();
    options_can_come_from_the_environment();
    the_table_names_every_figure();
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
