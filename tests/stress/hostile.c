/* SPDX-License-Identifier: Apache-2.0 */
/* A hostile frontend beside a good one, at the real engine (sim backend) and the real ledger.
 *
 * Round by round a process with the rights of a frontend writes nonsense into all it may write, dies,
 * and is followed by another; in some rounds engine or ledger are killed as well and must come up on
 * what was left.  Claimed is: engine and ledger never die by themselves; every answer of the good
 * frontend is right to the token; what a dead frontend held comes back; the ledger has one row for
 * each good request, and no stream twice.
 *
 * 10 s or so; TOKENRING_HOSTILE_S=SECONDS for longer, TOKENRING_HOSTILE_SEED=N for another course. */
#include "hostile.h"

#include "base/clock.h"
#include "base/sim_vocab.h"
#include "engine/engine.h"
#include "ledger/ledger.h"
#include "shm/bell.h"
#include "shm/stat.h"
#include "shm/stream_id.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_S = 120, LEAST = 5 };

static const struct tr_shm_config config = {.n_ctx = 256,
                                            .n_vocab = TR_SIM_VOCAB_SIZE,
                                            .n_slots = 48,
                                            .n_admit = 32,
                                            .max_seqs = 8,
                                            .n_areas = N_AREAS,
                                            .window = 16,
                                            .ledger = 1};
static struct tr_shm_fds fds;
static struct tr_shm s; /* the supervisor's */
static struct board *board;
static char folder[] = "/tmp/tokenring-hostile-XXXXXX";
static char ledger_path[64];
static pid_t engine, ledger, good, evil;
static uint64_t n_ledgers;
static int bad;

void hostile_fail(const char *what)
{
    fprintf(stderr, "hostile: %s\n", what);
    bad = 1;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

/* ---- children ---- */

static int run_engine(struct tr_shm *mine)
{
    struct tr_engine_config c = {
        .ops = &tr_backend_sim,
        .backend.n_threads = 1,
        .sched = {.prefill_chunk = 32, .n_eog = 2, .eog = {TR_SIM_EOS, TR_SIM_IM_END}}};
    return tr_engine_main(mine, &c);
}

static int run_ledger(struct tr_shm *mine)
{
    struct tr_ledger_config c = {.address = ledger_path,
                                 .spool = "",
                                 .spool_max = 256 << 20,
                                 .model = "sim",
                                 .parent_pid = getppid()};
    return tr_ledger_main(mine, &c);
}

static int run_good(struct tr_shm *mine)
{
    return good_main(mine, board);
}

static uint32_t evil_ways;
static uint64_t evil_seed;

static int run_evil(struct tr_shm *mine)
{
    evil_main(mine, board, evil_ways, evil_seed);
}

static pid_t start(enum tr_role role, uint32_t area, uint32_t epoch, int (*run)(struct tr_shm *))
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    static struct tr_shm mine;
    struct tr_errbuf err;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (tr_shm_attach(&mine, &fds, role, area, epoch, &err)) {
        fprintf(stderr, "hostile: cannot attach: %s\n", err.msg);
        _exit(9);
    }
    exit(run(&mine));
}

static uint32_t next(_Atomic uint32_t *epoch)
{
    return atomic_fetch_add(epoch, 1) + 1;
}

static void start_engine(void)
{
    uint32_t epoch = next(&s.control->engine_epoch);
    atomic_store(&s.control->engine_alive, 1);
    tr_control_publish(s.control);
    engine = start(TR_ROLE_ENGINE, 0, epoch, run_engine);
}

static void start_ledger(void)
{
    n_ledgers++;
    ledger = start(TR_ROLE_LEDGER, 0, 0, run_ledger);
}

static pid_t start_frontend(uint32_t area, int (*run)(struct tr_shm *))
{
    uint32_t epoch = next(&s.control->area_epoch[area]);
    atomic_store(&s.control->area_alive[area], 1);
    tr_control_publish(s.control);
    return start(TR_ROLE_FRONTEND, area, epoch, run);
}

static void kill_child(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* Everybody whom we did not kill must be there. */
static void look_for_dead(void)
{
    int status;
    pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid <= 0 || bad)
        return;
    if (pid == good && status == 0 && atomic_load(&board->stop)) {
        good = 0;
        return;
    }
    fprintf(stderr, "hostile: the %s ended with status %#x\n",
            pid == engine   ? "engine"
            : pid == ledger ? "ledger"
            : pid == good   ? "good frontend"
                            : "hostile frontend",
            status);
    bad = 1;
}

static bool wait_until(bool (*is)(void), const char *what)
{
    for (uint64_t from = tr_now_ns(); !is();) {
        look_for_dead();
        if (bad)
            return false;
        if (tr_now_ns() - from > WAIT_S * 1000000000ull) {
            hostile_fail(what);
            return false;
        }
        nap();
    }
    return true;
}

/* ---- what is waited for ---- */

static uint64_t gauge(enum tr_stat_id id)
{
    return atomic_load(&s.stat[TR_STAT_ENGINE]->value[id]);
}

static bool engine_is_ready(void)
{
    return atomic_load(&s.rings->ready) == atomic_load(&s.control->engine_epoch);
}

static bool good_knows(void)
{
    return atomic_load(&board->quiet_done);
}

static uint64_t goal_finished, goal_ns;

static bool round_is_long_enough(void)
{
    return tr_now_ns() >= goal_ns && atomic_load(&board->finished) >= goal_finished;
}

static bool evil_is_buried(void)
{
    return atomic_load(&s.rings->area_ack[EVIL_AREA]) ==
           atomic_load(&s.control->area_epoch[EVIL_AREA]);
}

/* No ring is the dead one's any more: its slots are free, or somebody else's. */
static bool evil_left_nothing(void)
{
    for (uint32_t i = 0; i < config.n_slots; i++) {
        const struct tr_ring *r = tr_ring_at(&s, i);
        if (atomic_load(&r->state) != TR_FREE && tr_ring_owner(r).area == EVIL_AREA)
            return false;
    }
    return true;
}

static uint64_t swept_ns; /* beats from here on are of an engine that has swept the claims */

/* The sweep is due every 100 ms and no pass is so long: between two beats so far apart, both after that
 * time, the engine has made a whole turn with a sweep in it. */
static bool claims_are_swept(void)
{
    static uint64_t first;
    uint64_t beat = atomic_load(&s.rings->heartbeat_ns);
    if (first < swept_ns)
        first = beat;
    return first >= swept_ns && beat >= first + 100000000;
}

static bool good_has_ended(void)
{
    return good == 0;
}

static bool all_is_back(void)
{
    return gauge(TR_STAT_SLOTS_OPEN) == config.n_admit && gauge(TR_STAT_SLOTS_BUSY) == 0 &&
           gauge(TR_STAT_SLOTS_ENDED) == 0 && gauge(TR_STAT_KV_USED) == 0 &&
           gauge(TR_STAT_SLOTS_FREE) == config.n_slots - config.n_admit;
}

/* ---- a round ---- */

static void one_round(uint32_t n, uint32_t ways, uint64_t seconds, uint64_t seed)
{
    bool claims = ways & EVIL_CLAIMS;
    uint64_t before = atomic_load(&board->finished), lost = atomic_load(&board->lost);
    uint64_t acts = atomic_load(&board->acts);
    evil_ways = ways;
    evil_seed = seed;
    if (claims)
        atomic_fetch_add(&board->claims, 1);
    evil = start_frontend(EVIL_AREA, run_evil);
    goal_ns = tr_now_ns() + seconds * 500000000ull;
    goal_finished = before + LEAST;
    wait_until(round_is_long_enough, "the good frontend does not get on");
    if (n % 3 == 1) {
        kill_child(engine);
        atomic_store(&s.control->engine_alive, 0);
        tr_control_publish(s.control);
        start_engine();
        wait_until(engine_is_ready, "the engine does not come up again");
    }
    if (n % 3 == 2) {
        kill_child(ledger);
        start_ledger();
    }
    goal_ns = tr_now_ns() + seconds * 500000000ull;
    goal_finished = atomic_load(&board->finished) + LEAST;
    wait_until(round_is_long_enough, "the good frontend does not get on");
    kill_child(evil);
    evil = 0;
    atomic_store(&s.control->area_alive[EVIL_AREA], 0);
    tr_control_publish(s.control);
    tr_bell_ring_engine(&s);
    wait_until(evil_is_buried, "a death is not acknowledged");
    wait_until(evil_left_nothing, "slots of a dead frontend do not come back");
    swept_ns = tr_now_ns() + 100000000;
    if (claims && wait_until(claims_are_swept, "the engine does not get on"))
        atomic_fetch_add(&board->claims, 1);
    printf("round %u (ways %u, seed %" PRIu64 "): %" PRIu64 " acts, %" PRIu64
           " good requests, %" PRIu64 " lost before admission, %" PRIu64
           " submissions refused so far\n",
           n, ways, seed, atomic_load(&board->acts) - acts, atomic_load(&board->finished) - before,
           atomic_load(&board->lost) - lost, gauge(TR_STAT_REFUSED_SUBMISSIONS));
}

/* ---- beginning and end ---- */

static void open_service(void)
{
    struct tr_errbuf err;
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!mkdtemp(folder))
        abort();
    snprintf(ledger_path, sizeof(ledger_path), "%s/ledger.db", folder);
    if (board == MAP_FAILED || tr_shm_create(&config, &fds, &err) ||
        tr_shm_attach(&s, &fds, TR_ROLE_SUPERVISOR, 0, 0, &err)) {
        hostile_fail("no shared memory");
        return;
    }
    start_engine();
    start_ledger();
    wait_until(engine_is_ready, "the engine does not come up");
    good = start_frontend(GOOD_AREA, run_good);
    wait_until(good_knows, "the good frontend gets no answers");
}

/* The way the service ends: frontends, engine, ledger, which settles and goes. */
static void close_service(void)
{
    int status;
    atomic_store(&board->stop, 1);
    wait_until(good_has_ended, "the good frontend does not end");
    wait_until(all_is_back, "slots or KV blocks are missing");
    atomic_store(&s.control->drain, TR_DRAIN_CUT);
    tr_control_publish(s.control);
    tr_bell_ring_engine(&s);
    if (!bad && (waitpid(engine, &status, 0) != engine || status))
        hostile_fail("the engine did not end well");
    kill(ledger, SIGTERM);
    if (!bad && (waitpid(ledger, &status, 0) != ledger || status))
        hostile_fail("the ledger did not end well");
    /* What the database did not take in time another ledger process brings there. */
    for (int i = 0; i < 20 && !bad && hostile_spool_holds(ledger_path); i++) {
        start_ledger();
        kill(ledger, SIGTERM);
        waitpid(ledger, NULL, 0);
    }
    if (!bad && hostile_spool_holds(ledger_path))
        hostile_fail("the spool is never empty");
}

static void end_all(void)
{
    char remove[80];
    const pid_t pids[] = {engine, ledger, good, evil};
    for (size_t i = 0; i < sizeof(pids) / sizeof(pids[0]); i++)
        if (bad && pids[i] > 0)
            kill(pids[i], SIGKILL);
    snprintf(remove, sizeof(remove), "rm -rf %s", folder);
    if (system(remove))
        hostile_fail("its folder stays");
}

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *v = getenv(name);
    return v ? strtoull(v, NULL, 10) : otherwise;
}

int main(void)
{
    static const uint32_t ways[] = {EVIL_CRAFT, EVIL_BYTES | EVIL_CRAFT, EVIL_CRAFT | EVIL_CLAIMS,
                                    EVIL_BYTES, EVIL_BYTES | EVIL_CRAFT | EVIL_CLAIMS};
    enum { N_WAYS = sizeof(ways) / sizeof(ways[0]) };
    uint64_t seconds = number("TOKENRING_HOSTILE_S", 8), seed = number("TOKENRING_HOSTILE_SEED", 1);
    uint64_t each = seconds >= 60 ? 6 : 1, until;
    setvbuf(stdout, NULL, _IOLBF, 0);
    open_service();
    until = tr_now_ns() + seconds * 1000000000ull;
    for (uint32_t n = 0; !bad && (n < N_WAYS || tr_now_ns() < until); n++)
        one_round(n, ways[n % N_WAYS], each, seed + n);
    if (!bad)
        close_service();
    if (!bad)
        hostile_check_ledger(ledger_path, board, n_ledgers);
    if (atomic_load(&board->wrong))
        hostile_fail("answers of the good frontend were wrong");
    end_all();
    printf("%d passed, %d failed\n", !bad, bad);
    return bad;
}
