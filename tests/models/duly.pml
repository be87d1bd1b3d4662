/* The life of one task as Duly builds it: a store, a Store Consumer, a queue that loses and repeats, and two hosts,
   each a Controller, an Executor and a callback process. Time is discrete; whatever may take time may take any time.

   Each guard can be left out by a switch, and then a property must fail (test_spin.py):
     NO_FENCE         writes do not compare the claim token
     KEEP_TOKEN       a reclaim leaves the old token in the row
     NO_STATUS        writes do not compare the status
     NO_AGE_CHECK     a callback starts however old its claim is
     NO_DEADLINE      an Executor outlives the deadline of its last acknowledged heartbeat
     THREAD_WATCHDOG  the deadline is watched by a thread: it does nothing while the process is stopped
     FROM_THE_ACK     the deadline counts from the answer to a heartbeat, not from its send
     NO_PDEATHSIG     a callback process may outlive its Executor
     UNPROVEN         a crash is reported before the callback process is known to be dead
     NO_AGAIN         nobody looks again at a message that was lost
     NO_RECLAIM       nobody looks again at a holder that fell silent
   and these add faults:
     PAUSES           Executors are stopped and go on (SIGSTOP)
     LOSSY            a failover loses the last heartbeat;  QUIET: after it no lease ends for a full lease
     LOSE_CLAIM       a failover loses the last claim
   L: the store's lease. D: the Executor's own limit. F: how many faults there may be in one life. */
#ifndef L
#define L 3
#endif
#ifndef D
#define D 2
#endif
#ifndef F
#define F 1
#endif
#ifndef CLAIMS
#define CLAIMS 2
#endif
#define N 2
#define R 1  /* how long a heartbeat call may take */
#define Q 1  /* enqueue_timeout */
#define CRASHES 2  /* the last one is a quarantine */
#ifndef BEATS
#define BEATS 1  /* a callback runs at most so many heartbeats: max_runtime */
#endif
#define MESSAGES 1
#ifndef S
#define S 3
#endif

#define NEW 0
#define ENQUEUED 1
#define HELD 2
#define FINAL 3

#define IDLE 0
#define ASKED 1    /* ClaimTask is on its way */
#define GRANTED 2  /* it was applied; the answer is on its way */
#define HOLDS 3    /* the Executor lives and holds the claim */
#define DIED 4     /* the Executor is dead, and its Controller owes a report */
#define GONE 5     /* nobody owes anything; the callback process may be left */

#define RESULT 1
#define CRASHED 2
#define RELEASE 3

byte status = NEW, token = 0, issued = 0, lease = 0, crashes = 0;
bool cancel_requested = false;
byte messages = 0; bool to_send = false;
byte phase[N], mine[N], age[N], left[N], beat[N], beat_age[N], beats[N];
bool runs[N], stopped[N];
byte report = 0, report_token = 0;  /* SetResults or Release on its way; may be late, lost or repeated */
byte running = 0, faults = 0, slow = 0;
bool stale = false;                 /* a write was accepted under a claim that was not the current one */
byte void_token = 0;                /* tokens up to this one are void */

#ifdef LOSSY
byte lease_before = 0;
bool beat_last = false, failed_over = false;
#endif
#ifdef LOSE_CLAIM
bool claim_last = false, failed_over = false;
#endif

#ifdef NO_FENCE
#define TOKEN_IS(t) true
#else
#define TOKEN_IS(t) (token == t)
#endif
#ifdef NO_STATUS
#define IS_HELD (status != FINAL)
#else
#define IS_HELD (status == HELD)
#endif
#ifdef THREAD_WATCHDOG
#define AWAKE(i) !stopped[i]
#else
#define AWAKE(i) true
#endif
#ifdef NO_DEADLINE
#define MUST_DIE(i) false
#else
#define MUST_DIE(i) (phase[i] == HOLDS && left[i] == 0 && AWAKE(i))
#endif
#ifdef NO_PDEATHSIG
#define ORPHAN(i) false
#else
#define ORPHAN(i) (phase[i] >= DIED && runs[i])
#endif
#ifdef UNPROVEN
#define PROVEN(i) true
#else
#define PROVEN(i) !runs[i]
#endif
/* S ticks in all may pass while messages are on their way; after that they are quick */
#define QUIET_HOST(i) (phase[i] != ASKED && phase[i] != GRANTED && beat[i] == 0)
#define ALL_QUIET (QUIET_HOST(0) && QUIET_HOST(1) && report == 0 && !to_send)

#define MAY_PASS (!MUST_DIE(0) && !MUST_DIE(1) && !ORPHAN(0) && !ORPHAN(1) && (slow < S || ALL_QUIET))

inline wrote(t) {
    if :: t != token || t <= void_token -> stale = true :: else fi;
#ifdef FRESH_WRITES
    assert(!stale)
#else
    skip
#endif
}
inline free() {
    void_token = issued;
#ifndef KEEP_TOKEN
    token = 0
#else
    skip
#endif
}
inline start(i) {
    runs[i] = true; running++;
#ifndef FRESH_WRITES
    assert(running <= 1)
#else
    skip
#endif
}
inline end_run(i) { if :: runs[i] -> runs[i] = false; running-- :: else fi }
inline forget(i) { phase[i] = IDLE; age[i] = 0; left[i] = 0; beat[i] = 0; beat_age[i] = 0; beats[i] = 0; stopped[i] = false }
inline come_back() { if :: messages < MESSAGES -> messages++ :: else fi }  /* not deleted: visible again */

active proctype StoreConsumer() {
    do
    :: atomic { status == FINAL -> break }
    /* update, then push */
    :: atomic { status == NEW && !to_send -> status = ENQUEUED; lease = Q; to_send = true }
#ifndef NO_AGAIN
    :: atomic { status == ENQUEUED && lease == 0 && !to_send -> lease = Q; to_send = true }
#endif
#ifndef NO_RECLAIM
    :: atomic { status == HELD && lease == 0 && !to_send ->
        crashes++; free();
        if
        :: crashes >= CRASHES || cancel_requested -> status = FINAL
        :: else -> status = ENQUEUED; lease = Q; to_send = true
        fi }
#endif
    :: atomic { to_send -> to_send = false; come_back() }
    :: atomic { to_send && faults < F -> faults++; to_send = false }  /* it died between the two; or the queue lost it */
    :: atomic { to_send && faults < F -> faults++; to_send = false; if :: status == ENQUEUED -> status = NEW :: else fi }  /* put_back */
    od
}

proctype Host(byte i) {
    do
    :: atomic { status == FINAL && phase[i] == IDLE -> break }
    :: atomic { !stopped[i] && phase[i] == IDLE && messages > 0 -> messages--; phase[i] = ASKED; age[i] = 0 }
    :: atomic { !stopped[i] && phase[i] == IDLE && messages > 0 && faults < F -> faults++; phase[i] = ASKED; age[i] = 0 }  /* repeated */

    :: atomic { phase[i] == ASKED && status == ENQUEUED && issued < CLAIMS ->
        issued++; token = issued; mine[i] = issued; status = HELD; lease = L; phase[i] = GRANTED; beat[i] = 0;
#ifdef LOSSY
        beat_last = false
#elif defined(LOSE_CLAIM)
        claim_last = true
#else
        skip
#endif
    }
    :: atomic { phase[i] == ASKED && status != ENQUEUED -> forget(i) }  /* a definite no: the message is deleted */
    :: atomic { !stopped[i] && phase[i] == GRANTED ->
#ifdef NO_AGE_CHECK
        phase[i] = HOLDS; left[i] = D; start(i)
#else
        if
        :: age[i] < D -> phase[i] = HOLDS; left[i] = D - age[i]; start(i)
        :: else -> if :: report == 0 -> report = RELEASE; report_token = mine[i] :: else fi; forget(i)
        fi
#endif
    }
    :: atomic { (phase[i] == ASKED || phase[i] == GRANTED) && faults < F -> faults++; forget(i); come_back() }  /* the Controller dies */

    :: atomic { !stopped[i] && phase[i] == HOLDS && beat[i] == 0 && beats[i] < BEATS -> beat[i] = 1; beat_age[i] = 0; beats[i]++ }
    :: atomic { beat[i] == 1 ->  /* it reaches the HSC, perhaps long after its sender died */
        if
        :: IS_HELD && TOKEN_IS(mine[i]) -> wrote(mine[i]);
#ifdef LOSSY
            lease_before = lease; beat_last = true;
#endif
            status = HELD; lease = L; beat[i] = 2
        :: else -> beat[i] = 3
        fi;
        if :: phase[i] != HOLDS -> beat[i] = 0 :: else fi }
    :: atomic { !stopped[i] && phase[i] == HOLDS && beat[i] == 2 && beat_age[i] <= R -> beat[i] = 0;
#ifdef FROM_THE_ACK
        left[i] = D
#else
        left[i] = D - beat_age[i]
#endif
    }
    :: atomic { !stopped[i] && phase[i] == HOLDS && beat[i] == 3 -> phase[i] = GONE; beat[i] = 0 }  /* LOST_CLAIM */
    :: atomic { !stopped[i] && phase[i] == HOLDS && beat[i] > 0 && beat_age[i] > R -> beat[i] = 0 }

    :: atomic { !stopped[i] && phase[i] == HOLDS && runs[i] && report == 0 ->
        end_run(i); report = RESULT; report_token = mine[i]; forget(i) }
    :: atomic { phase[i] == HOLDS && runs[i] && faults < F -> faults++; end_run(i) }  /* the callback process dies alone */
    :: atomic { !stopped[i] && phase[i] == HOLDS && !runs[i] && report == 0 -> report = CRASHED; report_token = mine[i]; forget(i) }
    :: atomic { phase[i] == HOLDS && faults < F -> faults++; phase[i] = DIED; stopped[i] = false }  /* the Executor is killed */
    :: atomic { MUST_DIE(i) -> phase[i] = DIED; stopped[i] = false }
    :: atomic { phase[i] >= DIED && runs[i] -> end_run(i) }  /* PDEATHSIG */
    :: atomic { phase[i] == DIED && PROVEN(i) && report == 0 -> report = CRASHED; report_token = mine[i]; phase[i] = GONE }
    :: atomic { phase[i] == DIED && faults < F -> faults++; phase[i] = GONE }  /* the Controller dies too */
    :: atomic { phase[i] == GONE && !runs[i] -> if :: beat[i] == 1 -> phase[i] = IDLE :: else -> forget(i) fi }
    :: atomic { phase[i] >= HOLDS && faults < F -> faults++; end_run(i); forget(i) }  /* the machine is lost */
#ifdef PAUSES
    :: atomic { (!stopped[i] && (phase[i] == GRANTED || phase[i] == HOLDS)) && faults < F -> faults++; stopped[i] = true }
    :: atomic { stopped[i] -> stopped[i] = false }
#endif
    od
}

active proctype Network() {
end_of_reports:
    do
    :: atomic { report > 0 ->
        if
        :: IS_HELD && TOKEN_IS(report_token) && token != 0 ->
            wrote(report_token); free();
            if
            :: report == RESULT || cancel_requested -> status = FINAL
            :: report == CRASHED -> crashes++; if :: crashes >= CRASHES -> status = FINAL :: else -> status = NEW fi
            :: else -> status = NEW
            fi
        :: else
        fi;
        if :: report = 0 :: faults < F -> faults++ fi }  /* its answer may be lost: it is sent again */
    :: atomic { report > 0 && faults < F -> faults++; report = 0 }
    od
}

#ifdef CANCEL
active proctype Client() {
    if
    :: atomic { status == NEW || status == ENQUEUED -> status = FINAL }
    :: atomic { status == HELD -> cancel_requested = true }
    :: skip
    fi
}
#endif

active proctype Clock() {
    do
    :: atomic { status == FINAL -> break }
    :: atomic { MAY_PASS ->
        if :: ALL_QUIET :: else -> slow++ fi;
        byte j = 0;
        if :: lease > 0 -> lease-- :: else fi;
#ifdef LOSSY
        if :: lease_before > 0 -> lease_before-- :: else fi;
#endif
        do
        :: j < N ->
            if :: left[j] > 0 -> left[j]-- :: else fi;
            if :: (phase[j] == ASKED || phase[j] == GRANTED) && age[j] < D -> age[j]++ :: else fi;
            if :: beat[j] > 0 && beat_age[j] <= R -> beat_age[j]++ :: else fi;
            j++
        :: else -> break
        od;
        j = 0 }
    od
}

#ifdef LOSSY
active proctype Failover() {
    if
    :: atomic { status == HELD && beat_last ->
#ifdef QUIET
        lease = L
#else
        lease = lease_before
#endif
    }
    :: atomic { status == FINAL }
    fi
}
#endif
#ifdef LOSE_CLAIM
active proctype Failover() {
    if
    :: atomic { status == HELD && claim_last && issued < CLAIMS -> status = ENQUEUED; lease = Q; token = 0 }
    :: atomic { status == FINAL }
    fi
}
#endif

init { atomic { run Host(0); run Host(1) } }
