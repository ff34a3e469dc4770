/* SPDX-License-Identifier: Apache-2.0 */
/* shm/model/slot.pml - the life of one slot, with the death of any process at any point.
 *
 * Two frontends, the engine and the ledger share one slot through the words of shm/: claim, request,
 * submission queue, command word with its dirty bit, ring, accounting queue.  The supervisor kills
 * and replaces each of them a bounded number of times.  What is private to a process is local here
 * and dies with it.
 *
 * Checked: two frontends never hold the same generation; a request that was admitted gets exactly
 * one row, whoever dies; a row says "durable" only once it is in the file; a slot is not reused
 * before its record is durable and its reader is done; and in the end every admitted request has its
 * row and the slot is free again (no deadlock: all processes wait at their `end` labels). */

#define NF 2        /* frontends */
#define GENS 8        /* room for generations that a restarted engine skips */
#define LAST 3        /* generations that are opened */
#ifndef DEATHS
#define DEATHS 1    /* processes the supervisor may kill */
#endif

mtype = { CLOSED, OPEN, CLAIMED, TAKEN };      /* claim word */
mtype = { FREE, LIVE, ENDED };                 /* state of the ring */

/* claims (frontends, engine) */
mtype claim = CLOSED;
byte claim_who, claim_epoch, claim_gen;

/* ring (engine) */
byte gen = 1;
mtype ring = FREE;
byte owner, owner_epoch;
byte of_gen;                                   /* whose request the fields are */
byte bill_seq;                                 /* stored before the record is counted */

/* control page (supervisor), area_ack (engine) */
byte epoch[NF];
bool alive[NF];
byte ack[NF];

/* areas (frontends): one message, one command word, one dirty bit */
bool sub[NF];
byte sub_gen[NF];
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

/* who is to die */
bool kill_front[NF];
bool kill_engine, kill_ledger;
bool engine_up, ledger_up;
byte deaths = 0;

#define IS_DURABLE (bill_seq != 0 && durable >= bill_seq)

proctype Frontend(byte me)
{
    byte my_gen = 0;
    bool held = false;
    {
endidle:
        do
        :: atomic { claim == OPEN ->
                claim = CLAIMED; claim_who = me; claim_epoch = epoch[me]; my_gen = claim_gen;
                holders[my_gen]++; held = true;
                assert(holders[my_gen] == 1);
           }
           cmd_cancel[me] = false; cmd_release[me] = false; cmd_gen[me] = my_gen;
           if
           :: true ->                          /* give back: the client left before the submission */
              atomic {
                  holders[my_gen]--; held = false;
                  if
                  :: claim == CLAIMED && claim_who == me && claim_epoch == epoch[me] && claim_gen == my_gen -> claim = OPEN
                  :: else
                  fi
              }
           :: true ->
              atomic { sub[me] = true; sub_gen[me] = my_gen; }
              if
              :: true                          /* the client stays */
              :: true ->                       /* the client leaves: word, then bit */
                 cmd_cancel[me] = true;
                 dirty[me] = true
              fi;
              /* terminal gate: the end in the ring, and its record durable */
endwait:      (gen == my_gen && ring == ENDED && IS_DURABLE);
              assert(rows[my_gen] == 1);
              atomic { holders[my_gen]--; held = false }
              cmd_release[me] = true;
              dirty[me] = true;
endgone:      (gen != my_gen)
           fi;
           my_gen = 0
        od
    } unless { kill_front[me] };
    atomic {
        if
        :: held -> holders[my_gen]--
        :: else
        fi;
        kill_front[me] = false
    }
}

/* One pass of the engine over everything, written as separate steps so that others move in between.
 * `released` is what it remembers of a RELEASE; a new engine reads the command word again. */
inline take_commands(i)
{
    if
    :: dirty[i] -> dirty[i] = false; look = true
    :: else
    fi;
    if
    :: (look || fresh) && ring != FREE && owner == i && owner_epoch == epoch[i] && cmd_gen[i] == gen ->
        if
        :: ring == LIVE && cmd_cancel[i] -> ring = ENDED
        :: else
        fi;
        if
        :: cmd_release[i] -> released = true
        :: else
        fi
    :: else
    fi;
    look = false
}

/* The dead owner's unread message first: it was admitted towards its client. */
inline bury(i)
{
    if
    :: !alive[i] && ack[i] != epoch[i] ->
        admit(i);
        if
        :: ring == LIVE && owner == i && owner_epoch == epoch[i] -> ring = ENDED
        :: else
        fi;
        atomic {
            if
            :: claim == CLAIMED && claim_who == i && claim_epoch == epoch[i] -> claim = OPEN; claim_gen = gen
            :: else
            fi
        }
        ack[i] = epoch[i]
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
            owner = i; owner_epoch = epoch[i]; of_gen = gen;
            atomic { ring = LIVE; admitted[gen] = true }
            claim = TAKEN
        :: else                                 /* a message of another life */
        fi;
        sub[i] = false
    :: else
    fi
}

proctype Engine()
{
    bool released = false, look = false, fresh = true, orphan;
    byte i;
    {
        /* what a former engine left: a number that was never counted is void, what lived has ended */
        if
        :: bill_seq > tail -> bill_seq = 0
        :: else
        fi;
        if
        :: (claim == OPEN || claim == CLAIMED) && claim_gen == gen && ring == FREE  /* clean */
        :: ring != FREE && of_gen == gen ->
            if
            :: ring == LIVE -> ring = ENDED
            :: else
            fi;
            claim = TAKEN
        :: else ->                              /* a reset that was cut short: once more */
            gen++;
            ring = FREE; bill_seq = 0;
            claim = CLOSED
        fi;
        engine_up = true;
        do
        :: true ->
            take_commands(0);
            take_commands(1);
            fresh = false;
            bury(0);
            bury(1);
            admit(0);
            admit(1);
            if
            :: ring == LIVE -> ring = ENDED      /* the answer is complete */
            :: true
            fi;
            if
            :: ring == ENDED && bill_seq == 0 ->
                bill_seq = tail + 1;
                rec[tail] = gen;
                tail++
            :: else
            fi;
            orphan = ring == ENDED && (owner_epoch != epoch[owner] || !alive[owner]);
            if
            :: ring == ENDED && IS_DURABLE && (released || orphan) ->
                assert(rows[gen] == 1);
                gen++;
                ring = FREE; bill_seq = 0; released = false;
                claim = CLOSED
            :: else
            fi;
            if
            :: claim == CLOSED && ring == FREE && gen <= LAST -> claim_gen = gen; claim = OPEN
            :: else
            fi;
            /* nothing to do: sleep on the bell */
endsleep:   (dirty[0] || dirty[1] || sub[0] || sub[1] || (ring == LIVE) ||
             (ring == ENDED && (bill_seq == 0 || (IS_DURABLE && released))) ||
             (ring == ENDED && IS_DURABLE && (owner_epoch != epoch[owner] || !alive[owner])) ||
             (!alive[0] && ack[0] != epoch[0]) || (!alive[1] && ack[1] != epoch[1]))
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
               sub[i] = false; cmd_gen[i] = 0; cmd_cancel[i] = false; cmd_release[i] = false; dirty[i] = false;
               epoch[i]++; alive[i] = true;
               run Frontend(i)
           }
        :: engine_up -> kill_engine = true; (!kill_engine); run Engine()
        :: ledger_up -> kill_ledger = true; (!kill_ledger); run Ledger()
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
