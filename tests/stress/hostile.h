/* SPDX-License-Identifier: Apache-2.0 */
/* tests/stress/hostile.h - what the three parts of the hostile-frontend test share.
 *
 * hostile.c plays the supervisor: it starts the real engine (sim backend), the real ledger, a
 * well-behaved frontend (good.c) and, round by round, a hostile one (evil.c), kills them, and judges.
 * hostile_ledger.c reads what the ledger has of it in the end.  The board lies in memory of the test's
 * own, out of the service's sight. */
#ifndef TR_TESTS_HOSTILE_H
#define TR_TESTS_HOSTILE_H

#include "shm/region.h"

enum { GOOD_AREA, EVIL_AREA, N_AREAS = 4, MAX_ROWS = 1 << 20 };

/* What the hostile one does in a round, besides what it always does; bits. */
enum evil_ways {
    EVIL_BYTES = 1,  /* random bytes all over its area and its page of statistics */
    EVIL_CRAFT = 2,  /* plausible nonsense in every structure */
    EVIL_CLAIMS = 4, /* owner words of everybody's slots */
};

/* A request of the good frontend that came to its end, as its ring told it. */
struct row {
    uint64_t rand;
    uint32_t slot, gen; /* of the lead */
    uint32_t state;     /* the worst of its choices */
    uint32_t choices;
    uint64_t tokens; /* completion tokens of all choices */
};

struct board {
    _Atomic uint32_t quiet_done; /* the good one knows what its answers are */
    _Atomic uint32_t stop;       /* it ends when its requests have */
    _Atomic uint32_t claims;     /* attacks on the claims: odd while one goes on */
    _Atomic uint64_t finished;   /* its requests that ended as they must */
    _Atomic uint64_t lost;       /* taken from it before admission, in such an attack */
    _Atomic uint64_t wrong;      /* anything else; the sentence is on stderr */
    _Atomic uint64_t acts;       /* of the hostile one */
    _Atomic uint32_t n_rows;
    struct row rows[MAX_ROWS];
};

/* Bodies of the two frontend processes, attached as such.  good_main returns the exit status;
 * evil_main ends with the process. */
int good_main(struct tr_shm *s, struct board *b);
_Noreturn void evil_main(struct tr_shm *s, struct board *b, uint32_t ways, uint64_t seed);

/* The test has failed, and why. */
void hostile_fail(const char *what);

/* Whether the spool of this ledger still holds what the database does not. */
bool hostile_spool_holds(const char *ledger);

/* Fails unless the ledger has every row of the board, as it stands there, and has not been flooded with
 * deliveries by its `n_ledgers` lives. */
void hostile_check_ledger(const char *ledger, const struct board *b, uint64_t n_ledgers);

#endif
