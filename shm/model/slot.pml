/* SPDX-License-Identifier: Apache-2.0 */
/* shm/model/slot.pml - the life of one slot, with the death of any process at any point.
 *
 * Two frontends, the engine and the ledger share one slot through the words of shm/: claim, request,
 * submission queue, command word with its dirty bit, ring with its owner word, accounting queue.  The
 * supervisor kills and replaces each of them a bounded number of times.  What is private to a process is
 * local here and dies with it.  A request may be resumable: then it outlives its frontend and its
 * connection, is given to a frontend that lives, and can be adopted by another at any time.  Or its answer
 * is kept when it has come to its end by itself (an Idempotency-Key), or the engine turns it away, for it
 * has a twin.
 *
 * Checked: two frontends never claim the same generation; a request that was admitted gets exactly
 * one row, whoever dies; a row says "durable" only once it is in the file; a slot is not reused
 * before its record is durable and its reader is done, and never under a frontend that has it and did
 * not let it go; a resumable request is freed only after somebody who had it let it go; a command counts
 * only while who gave it has the request; and in the end every admitted request has its row and the slot
 * is free again (no deadlock: all processes wait at their `end` labels). */

#define NF 2        /* frontends */
#define NOBODY NF
#define GENS 8        /* room for generations that a restarted engine skips */
#ifndef LAST
#define LAST 2        /* generations that are opened, the first of which is 2 */
#endif
#ifndef DEATHS
#define DEATHS 1    /* processes the supervisor may kill */
#endif
#ifndef LEDGER_DIES
#define LEDGER_DIES 1
#endif
#ifndef READERS
#define READERS 2   /* clients that ask for a stream at a frontend that does not have it */
#endif

#ifndef KEPT
#define KEPT 1      /* requests may have an Idempotency-Key */
#endif

mtype = { CLOSED, OPEN, CLAIMED, TAKEN };      /* claim word */
mtype = { FREE, LIVE, ENDED };                 /* state of the ring */
mtype = { NONE, ADOPT, CONFIRM };              /* message about a stream that is there */

/* claims (frontends, engine) */
mtype claim = CLOSED;
byte claim_who, claim_epoch, claim_gen;

/* ring (engine); owner, epoch and confirmed are one word */
byte gen = 1;
mtype ring = FREE;
byte owner, owner_epoch;
bool confirmed;
bool resumable;
bool kept;                                     /* for its key, once it has come to its own end */
byte of_gen;                                   /* whose request the fields are */
byte bill_seq;                                 /* stored before the record is counted */

/* control page (supervisor), area_ack (engine); NOBODY never lives */
byte epoch[NF + 1];
bool alive[NF + 1];
byte ack[NF];

/* areas (frontends): one submission, one other message, one command word, one dirty bit */
bool sub[NF], sub_resumable[NF], sub_kept[NF];
byte sub_gen[NF];
mtype msg[NF] = NONE;
byte msg_gen[NF];
byte cmd_gen[NF];
bool cmd_cancel[NF], cmd_release[NF], dirty[NF];

/* accounting queue (engine) and ledger page (ledger) */
byte tail;
byte rec[GENS + 2];
byte durable;

/* the file: rows of each generation; survives everybody */
byte rows[GENS + 2];

/* what the outside did and saw */
bool admitted[GENS + 2];
byte holders[GENS + 2];
bool let_go[GENS + 2];                         /* somebody who had it released it */
byte has[NF + 1];                              /* the generation that a frontend delivers or holds */
byte readers = 0;

/* who is to die */
bool kill_front[NF];
bool kill_engine, kill_ledger;
bool engine_up, ledger_up;
byte deaths = 0;

#define IS_DURABLE (bill_seq != 0 && durable >= bill_seq)
#define IS_OWNER(i) (ring != FREE && owner == i && owner_epoch == epoch[i])
#define KEEPS (resumable || (kept && ring == ENDED))
#define HAS_IT (IS_OWNER(me) && confirmed)
#define OWNER_LIVES (alive[owner] && owner_epoch == epoch[owner])

/* A command word is one word. */
inline reset_word()
{
    atomic { cmd_cancel[me] = false; cmd_release[me] = false; cmd_gen[me] = my_gen }
}

proctype Frontend(byte me)
{
    byte my_gen = 0;
    bool held = false;
    mtype ask = NONE;
    {
endidle:
        do
        :: atomic { claim == OPEN ->
                claim = CLAIMED; claim_who = me; claim_epoch = epoch[me]; my_gen = claim_gen;
                holders[my_gen]++; held = true;
                assert(holders[my_gen] == 1);
           }
           reset_word();
           if
           :: true ->                          /* give back: the client left before the submission */
              atomic {
                  holders[my_gen]--; held = false;
                  if
                  :: claim == CLAIMED && claim_who == me && claim_epoch == epoch[me] && claim_gen == my_gen -> claim = OPEN
                  :: else
                  fi
              }
              goto over
           :: atomic { sub_resumable[me] = false; sub_kept[me] = false; sub[me] = true; sub_gen[me] = my_gen }
           :: atomic { sub_resumable[me] = true; sub_kept[me] = false; sub[me] = true; sub_gen[me] = my_gen }
           :: atomic { KEPT -> sub_resumable[me] = false; sub_kept[me] = true; sub[me] = true; sub_gen[me] = my_gen }
           fi;
           if
           :: true                             /* the client stays */
           :: true ->                          /* cancelled before it is admitted: word, then bit */
              cmd_cancel[me] = true;
              dirty[me] = true
           fi;
endadmit:  atomic { (gen != my_gen || ring != FREE) -> holders[my_gen]--; held = false }
           goto have

        /* news of a stream that it does not know and that is its own: given to it, or so long ago
         * that it has lost it in between.  A ring that is being reset shows: its fields are of another
         * generation */
        :: atomic { IS_OWNER(me) && KEEPS && of_gen == gen ->
                my_gen = gen; ask = (confirmed -> NONE : CONFIRM) }
           goto take
        /* a reader asks for one that another has */
        :: atomic { ring != FREE && resumable && of_gen == gen && !IS_OWNER(me) && readers < READERS ->
                readers++; my_gen = gen; ask = ADOPT }
           goto take
        od;

take:   if
        :: ask == NONE
        :: else ->
           reset_word();
           atomic { msg[me] = ask; msg_gen[me] = my_gen; ask = NONE }
           (msg[me] == NONE)                   /* it was read: the answer is in the ring */
        fi;

have:   atomic {
            if
            :: gen == my_gen && HAS_IT -> has[me] = my_gen
            :: else -> goto over               /* somebody else's, or gone */
            fi
        }
        if
        :: true
        :: true ->                             /* the client leaves or cancels, or its window is over */
           cmd_cancel[me] = true;
           dirty[me] = true
        fi;
        /* terminal gate: the end in the ring, and its record durable; or another reader has it now */
endwait:
        if
        :: atomic { gen == my_gen && HAS_IT && ring == ENDED && IS_DURABLE ->
                assert(rows[my_gen] == 1);
                let_go[my_gen] = true; has[me] = 0 }
           cmd_release[me] = true;
           dirty[me] = true;
endgone:   (gen != my_gen || !HAS_IT)          /* given to it again counts as another */
        :: atomic { gen != my_gen || !HAS_IT -> has[me] = 0 }
        fi;
over:   my_gen = 0;
        goto endidle
    } unless { kill_front[me] };
    atomic {
        if
        :: held -> holders[my_gen]--
        :: else
        fi;
        has[me] = 0;
        kill_front[me] = false
    }
}

/* What the engine does, one thing at a time and in any order: so every order of its turns is among them.
 * `released` is what it remembers of a RELEASE; a new engine reads the command word again. */

/* The owner's command word. */
inline obey(i)
{
    atomic {
        if
        :: cmd_gen[i] == gen ->
            if
            :: ring == LIVE && cmd_cancel[i] -> ring = ENDED; kept = false
            :: else
            fi;
            if
            :: cmd_release[i] -> released = true
            :: else
            fi
        :: else
        fi
    }
}

inline obey_owner(i)
{
    if
    :: IS_OWNER(i) && confirmed -> obey(i)
    :: else
    fi
}

inline admit(i)
{
    if
    :: sub[i] ->
        if
        :: ring == FREE && sub_gen[i] == gen ->
            /* fields, then state, then the claim, then the queue: after a crash in between, the
             * next engine finds either a claimed slot and its message, or a live ring */
            if
            :: true ->
                atomic { owner = i; owner_epoch = epoch[i]; confirmed = true; resumable = sub_resumable[i]; kept = sub_kept[i]; of_gen = gen }
                atomic { ring = LIVE; admitted[gen] = true }
                claim = TAKEN;
                obey(i)                        /* its dirty bit may have been taken before */
            :: sub_kept[i] ->                  /* it has a twin: its frontend sees the next generation */
                claim = TAKEN;
                gen++;
                claim = CLOSED
            fi
        :: else                                 /* a message of another life */
        fi;
        sub[i] = false
    :: else
    fi
}

/* What the former owner said before counts; then the word, then the queue. */
inline adopt(i)
{
    if
    :: msg[i] != NONE ->
        if
        :: ring != FREE && msg_gen[i] == gen && KEEPS && !(IS_OWNER(i) && confirmed) &&
           (msg[i] == ADOPT || IS_OWNER(i)) ->
            if
            :: confirmed && owner < NF && owner_epoch == epoch[owner] -> obey(owner)
            :: else
            fi;
            if
            :: !released -> atomic { owner = i; owner_epoch = epoch[i]; confirmed = true }
            :: else
            fi
        :: else
        fi;
        msg[i] = NONE
    :: else
    fi
}

/* The owner does not live: his last words, then the stream is another's, or over. */
inline hand_over()
{
    if
    :: ring != FREE && !OWNER_LIVES ->
        if
        :: confirmed && owner < NF && owner_epoch == epoch[owner] -> obey(owner)
        :: else
        fi;
        if
        :: KEEPS && !released ->
            atomic {
                if
                :: alive[0] -> owner = 0; owner_epoch = epoch[0]
                :: alive[1] -> owner = 1; owner_epoch = epoch[1]
                :: !alive[0] && !alive[1] -> owner = NOBODY; owner_epoch = 0
                fi;
                confirmed = false
            }
        :: atomic { !resumable && ring == LIVE -> ring = ENDED; kept = false }
        :: else
        fi
    :: else
    fi
}

/* The dead owner's unread messages first: a submission was admitted towards its client.  What it asked
 * for, nobody waits for. */
inline bury(i)
{
    admit(i);
    msg[i] = NONE;
    hand_over();
    atomic {
        if
        :: claim == CLAIMED && claim_who == i && claim_epoch == epoch[i] -> claim = OPEN; claim_gen = gen
        :: else
        fi
    }
    ack[i] = epoch[i]
}

/* What a former engine left: a number that was never counted is void, what lived goes on, commands are
 * read again. */
inline recover()
{
    if
    :: bill_seq > tail -> bill_seq = 0
    :: else
    fi;
    if
    :: (claim == OPEN || claim == CLAIMED) && claim_gen == gen && ring == FREE  /* clean */
    :: ring != FREE && of_gen == gen ->
        claim = TAKEN;
        obey_owner(0);
        obey_owner(1)
    :: else ->                                  /* a reset that was cut short: once more */
        gen++;
        atomic { ring = FREE; bill_seq = 0 }
        claim = CLOSED
    fi
}

proctype Engine()
{
    bool released = false;
    byte i;
    {
        recover();
        engine_up = true;
endsleep:
        do
        :: dirty[0] -> dirty[0] = false; obey_owner(0)
        :: dirty[1] -> dirty[1] = false; obey_owner(1)
        :: !alive[0] && ack[0] != epoch[0] -> bury(0)
        :: !alive[1] && ack[1] != epoch[1] -> bury(1)
        /* an orphan, when somebody comes; or released by a dead one, which a new engine does not know */
        :: ring != FREE && owner == NOBODY && (alive[0] || alive[1]) -> hand_over()
        :: ring != FREE && KEEPS && owner != NOBODY && owner_epoch != epoch[owner] && !released -> hand_over()
        :: sub[0] -> admit(0)
        :: sub[1] -> admit(1)
        :: msg[0] != NONE -> adopt(0)
        :: msg[1] != NONE -> adopt(1)
        :: ring == LIVE -> ring = ENDED          /* the answer is complete */
        :: ring == ENDED && bill_seq == 0 ->
            bill_seq = tail + 1;
            atomic { rec[tail] = gen; tail++ }
        :: ring == ENDED && IS_DURABLE && (released || (!OWNER_LIVES && !KEEPS)) ->
            assert(rows[gen] == 1);
            assert(!KEEPS || let_go[gen]);
            assert(!(OWNER_LIVES && confirmed && has[owner] == gen));
            gen++;
            atomic { ring = FREE; bill_seq = 0; released = false }
            claim = CLOSED
        :: atomic { claim == CLOSED && ring == FREE && gen <= LAST -> claim_gen = gen; claim = OPEN }
        od
    } unless { kill_engine };
    atomic { kill_engine = false; engine_up = false }
}

/* Writes, then confirms.  A new ledger finds in the file what was written but not confirmed. */
proctype Ledger()
{
    {
        ledger_up = true;
endledger:
        do
        :: tail > durable ->
            atomic {
                if
                :: rows[rec[durable]] == 0 -> rows[rec[durable]] = 1
                :: else
                fi
            }
            durable++
        od
    } unless { kill_ledger };
    atomic { kill_ledger = false; ledger_up = false }
}

init
{
    byte i;
    atomic {
        epoch[0] = 1; epoch[1] = 1; alive[0] = true; alive[1] = true;
        run Frontend(0); run Frontend(1); run Engine(); run Ledger();
    }
    do
    :: deaths < DEATHS -> deaths++;
        if
        :: i = 0
        :: i = 1
        fi;
        if
        :: kill_front[i] = true; (!kill_front[i]);
           alive[i] = false;
           (ack[i] == epoch[i]);
           /* a new process in the same area: tr_area_init, then a new epoch */
           atomic {
               sub[i] = false; msg[i] = NONE;
               cmd_gen[i] = 0; cmd_cancel[i] = false; cmd_release[i] = false; dirty[i] = false;
               epoch[i]++; alive[i] = true;
               run Frontend(i)
           }
        :: engine_up -> kill_engine = true; (!kill_engine); run Engine()
        :: LEDGER_DIES && ledger_up -> kill_ledger = true; (!kill_ledger); run Ledger()
        fi
    :: break
    od;
    /* When everybody has come to rest, nothing admitted is without its row and nothing is stuck. */
endinit:
    (timeout);
    i = 1;
    do
    :: i <= GENS ->
        assert(!admitted[i] || rows[i] == 1);
        i++
    :: else -> break
    od;
    assert(ring == FREE)
}
