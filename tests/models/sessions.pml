/* Tasks of one session, as join_sessions, duly_advance_sessions, duly_put_earlier_first and duly_unblock_session move them.

   A transaction takes the locks of rows one at a time and waits for each. It reads what is committed, and its writes appear at
   its commit. Each statement of a function reads anew. A statement that waits for a row compares the row again, as Postgres does
   in READ COMMITTED, but sees all other rows as they were before. A row that fails the comparison stays locked.

   Checked: at most one task may run, and at most one runs; a task does not run before an earlier one; a failure that ends the
   rest ends all of it; everything ends, so no release and no unblock is lost and nobody waits for a lock for ever; no row is
   left. Each guard can be left out by a switch, and then the model must fail (test_spin_waiting.py):
     ONE_STATEMENT   the end of a task reads what waits before it waits for the session
     NO_LOCK         the end of a task does not lock the session
     CANCEL_IN_ONE   a cancel reads what waits before it waits for the session
     NO_TOKEN        a result does not compare the token
     WAIT_FOR_HEAD   putting the earlier task first waits for the lock of the head
     ANY_HEAD        putting the earlier task first takes a head that runs
     NO_ORDER        an earlier task is not put first
     DRAIN_BY_NEXT   a session is gone as soon as no task can follow
     FAIL_ONCE       only the first tasks that a failure ends are marked
     UNBLOCK_DOOMED  an unblock does not wait until the tasks that fail with it are gone
     UNBLOCK_UNSEEN  an unblock compares the block before it waits for the session
   Configuration: N tasks; POLICY 1 goes on after a failure, 2 blocks, 3 fails the rest (MARK at a time); F holders that fall silent;
   FAILURES of tasks; BY_TIME: later tasks are due earlier; EARLY: claims do not wait until all are scheduled. */
#ifndef N
#define N 3
#endif
#ifndef POLICY
#define POLICY 1
#endif
#ifndef F
#define F 1
#endif
#ifndef FAILURES
#define FAILURES 1
#endif
#ifndef MARK
#define MARK 1
#endif
#define NONE 255
#define FREE 255

#define ABSENT 0
#define WAITING 1
#define NEW 2
#define CLAIMED 3
#define FAILED 4  /* dead letter */
#define ENDED 5

byte status[N], token[N], seq[N], lock[N] = FREE;
bool doom[N], fenced[N], silent[N];
bool there;  /* the row of the session */
byte head = NONE, length, doomed, last_seq, blocked_by = NONE, fails_until, session_lock = FREE;
byte scheduled, running, faults, failures, condemned_to;
bool redriven[N];

#define RANK(t) (N - (t))
#ifdef BY_TIME
#define EARLIER(a, b) (RANK(a) < RANK(b))
#else
#define EARLIER(a, b) (seq[a] < seq[b])
#endif
#define OVER(t) (status[t] == ENDED || status[t] == FAILED && REDRIVEN_OUT(t))
#ifdef REDRIVES
#define REDRIVEN_OUT(t) (redriven[t])
#else
#define REDRIVEN_OUT(t) true
#endif
#if N == 2
#define ALL_OVER (OVER(0) && OVER(1))
#define HEADS ((status[0] == NEW || status[0] == CLAIMED) + (status[1] == NEW || status[1] == CLAIMED))
#else
#define ALL_OVER (OVER(0) && OVER(1) && OVER(2))
#define HEADS ((status[0] == NEW || status[0] == CLAIMED) + (status[1] == NEW || status[1] == CLAIMED) + (status[2] == NEW || status[2] == CLAIMED))
#endif
#define COMMITTED assert(HEADS <= 1)

/* the first task that waits, of those that `seen` says were waiting */
inline first_waiting(found) {
    found = NONE;
    for (k : 0 .. N - 1) {
        if
        :: seen[k] && !doom[k] && (found == NONE || EARLIER(k, found)) -> found = k
        :: else
        fi
    }
}
inline look() {
    for (k : 0 .. N - 1) { seen[k] = (status[k] == WAITING) }
}
/* join_sessions: the caller holds the session. The new task is not to be seen by others before the commit, nor is the row. */
inline join(t) {
    last_seq++; length++; seq[t] = last_seq;
    if
    :: !there -> there = true; head = t; doomed = 0; blocked_by = NONE; fails_until = 0; last_seq = 1; length = 1; seq[t] = 1
    :: there && blocked_by == t -> head = t; blocked_by = NONE; condemned_to = 0
    :: else
    fi;
    if :: head == t -> status[t] = NEW :: else -> status[t] = WAITING fi
}
/* duly_put_earlier_first after join, with the head's row locked if `swaps` */
#ifdef ANY_HEAD
#define MAY_STEP_BACK(h) (status[h] == NEW || status[h] == CLAIMED)
#else
#define MAY_STEP_BACK(h) (status[h] == NEW && !fenced[h])
#endif

inline put_earlier_first(t) {
    first_waiting(next);
    if
    :: head != NONE && head != t && next != NONE && EARLIER(next, head) && MAY_STEP_BACK(head) && lock[head] == me ->
        status[head] = WAITING; status[next] = NEW; head = next
    :: else
    fi
}

inline advance(t, failure, was_doomed) {
    /* lock the session, as the caller did not */
    if
    :: session_lock == me
#ifndef NO_LOCK
    :: atomic { session_lock == FREE -> session_lock = me }
#else
    :: true
#endif
    fi;
    d_step {
        assert(there);
#ifndef ONE_STATEMENT
        look();
#endif
        seen[t] = false;
        now_length = length - 1; now_doomed = doomed - was_doomed;
        headless = (head == t); failed = (doomed > 0 && doomed == was_doomed && head == NONE);
        marks = 0; next = NONE;
        for (k : 0 .. N - 1) { marked[k] = false }
        k = 0;
        if
        :: headless && failure == 3 || failed ->
            do
            :: marks < MARK ->
                /* the first that is not marked */
                next = NONE;
                for (k : 0 .. N - 1) {
                    if
                    :: seen[k] && !doom[k] && !marked[k] && (headless || seq[k] <= fails_until) && (next == NONE || EARLIER(k, next)) -> next = k
                    :: else
                    fi
                }
                if :: next == NONE -> break :: else -> marked[next] = true; marks++ fi
            :: else -> break
            od;
            next = NONE
        :: else
        fi;
#ifdef FAIL_ONCE
        if :: !headless -> marks = 0; for (k : 0 .. N - 1) { marked[k] = false } :: else fi;
#endif
        if
        :: now_length > 0 && (headless && failure <= 1 || failed && marks == 0) -> first_waiting(next)
        :: else
        fi
    }
    /* the row of the next head may be locked by whoever compares it */
    if
    :: next == NONE
    :: atomic { next != NONE && (lock[next] == FREE || lock[next] == me) -> lock[next] = me }
    fi
}
#ifdef DRAIN_BY_NEXT
#define DRAINED (next == NONE && marks == 0)
#else
#define DRAINED (now_length == 0)
#endif
inline commit_end(t, failure) {
    for (k : 0 .. N - 1) { if :: marked[k] -> doom[k] = true :: else fi }
    if
    :: DRAINED && (headless && failure != 2 || failed) -> there = false; head = NONE; blocked_by = NONE; last_seq = 0; length = 0; doomed = 0; fails_until = 0; condemned_to = 0
    :: else ->
        length = now_length; doomed = now_doomed + marks;
        if
        :: headless && marks > 0 -> fails_until = last_seq
        :: !headless && next == NONE
        :: else -> fails_until = 0
        fi;
        if
        :: next != NONE -> blocked_by = NONE; head = next;
            if :: status[next] == WAITING -> status[next] = NEW :: else fi
        :: next == NONE && headless -> blocked_by = t; head = NONE
        :: else
        fi
    fi;
    if :: failure > 0 -> status[t] = FAILED :: else -> status[t] = ENDED fi;
    silent[t] = false; doom[t] = false
}
inline let_go() {
    if :: session_lock == me -> session_lock = FREE :: else fi;
    for (k : 0 .. N - 1) { if :: lock[k] == me -> lock[k] = FREE :: else fi }
    k = 0; next = NONE; marks = 0; headless = false; failed = false; now_length = 0; now_doomed = 0;
    for (k : 0 .. N - 1) { seen[k] = false; marked[k] = false }
    k = 0
}
#ifdef ONE_STATEMENT
#define LOOK look()
#else
#define LOOK skip
#endif
#define LOCALS byte k, next = NONE, marks, now_length, now_doomed; bool headless, failed, seen[N], marked[N]

inline schedule(t) {
    atomic { session_lock == FREE -> session_lock = me };
#ifdef BY_TIME
    if
#ifdef WAIT_FOR_HEAD
    :: atomic { there && head != NONE && lock[head] == FREE -> lock[head] = me }
    :: atomic { !there || head == NONE }
#else
    :: atomic { there && head != NONE && lock[head] == FREE -> lock[head] = me }
    :: atomic { !there || head == NONE || lock[head] != FREE }
#endif
    fi;
#endif
    atomic {
        if :: status[t] == FAILED -> redriven[t] = true :: else fi;
        join(t);
#if defined(BY_TIME) && !defined(NO_ORDER)
        look();
        put_earlier_first(t);
#endif
        COMMITTED;
        let_go()
    }
}

proctype Scheduler(byte me; byte t) {
    LOCALS;
    schedule(t);
    scheduled++
}

#ifdef EARLY
#define MAY_CLAIM true
#ifdef BY_TIME
#define ANY_ORDER true
#endif
#else
#define MAY_CLAIM (scheduled == N)
#endif

#ifndef ANY_ORDER
#define ANY_ORDER false
#endif

proctype Host(byte me) {
    LOCALS;
    byte t, mine, failure;
    do
    :: atomic { ALL_OVER -> break }
    :: if
    :: atomic { MAY_CLAIM && status[0] == NEW && lock[0] == FREE -> t = 0; lock[0] = me }
    :: atomic { MAY_CLAIM && status[1] == NEW && lock[1] == FREE -> t = 1; lock[1] = me }
#if N == 3
    :: atomic { MAY_CLAIM && status[2] == NEW && lock[2] == FREE -> t = 2; lock[2] = me }
#endif
       fi;
        atomic {
            k = 0;
            for (k : 0 .. N - 1) {
                assert(!(k != t && status[k] == WAITING && !doom[k] && EARLIER(k, t) && !redriven[t] && !ANY_ORDER))
            }
            assert(seq[t] > condemned_to || redriven[t]);
            status[t] = CLAIMED; fenced[t] = true; token[t]++; mine = token[t];
            lock[t] = FREE; running++; assert(running <= 1); COMMITTED; k = 0 };
        failure = 0;
        if
        :: atomic { failures < FAILURES -> failures++; failure = POLICY; running-- }
        :: atomic { running--; failure = 0 }
        :: atomic { faults < F -> faults++; silent[t] = true; running--; t = 0; mine = 0 } -> goto again
        :: atomic { faults < F -> faults++; silent[t] = true; running-- }  /* its result is late */
        fi;
        /* finish, fail */
        atomic { lock[t] == FREE ->
            lock[t] = me; LOOK };
        if
#ifdef NO_TOKEN
        :: atomic { status[t] == CLAIMED
#else
        :: atomic { status[t] == CLAIMED && token[t] == mine
#endif
        };
            advance(t, failure, 0);
            atomic {
                if :: failure == 3 && last_seq > condemned_to -> condemned_to = last_seq :: else fi;
                commit_end(t, failure); COMMITTED; let_go() }
        :: else -> atomic { let_go() }
        fi;
again:  atomic { t = 0; mine = 0; failure = 0 }
    od
}

proctype Reclaimer(byte me) {
    byte t;
    do
    :: atomic { ALL_OVER -> break }
    :: if
    :: atomic { status[0] == CLAIMED && silent[0] && lock[0] == FREE -> t = 0; lock[0] = me }
    :: atomic { status[1] == CLAIMED && silent[1] && lock[1] == FREE -> t = 1; lock[1] = me }
#if N == 3
    :: atomic { status[2] == CLAIMED && silent[2] && lock[2] == FREE -> t = 2; lock[2] = me }
#endif
       fi;
        atomic { status[t] = NEW; silent[t] = false; lock[t] = FREE; t = 0; COMMITTED }
    od
}

/* cancel_tasks; a task that runs is left to its holder */
proctype Canceller(byte me; byte t) {
    LOCALS;
    if :: atomic { status[t] != ABSENT } :: atomic { ALL_OVER -> goto done } fi;
    /* cancel */
    if
    :: atomic { status[t] == NEW -> LOOK };
        atomic { lock[t] == FREE -> lock[t] = me };
        if
        :: atomic { status[t] == NEW };
            advance(t, 0, 0);
            atomic { commit_end(t, 0); COMMITTED; let_go() };
            goto done
        :: else -> atomic { let_go() }
        fi
    :: atomic { status[t] != NEW }
    fi;
    /* lock_waiting, cancel_waiting */
    if
    :: atomic { status[t] == WAITING };
        atomic { session_lock == FREE -> session_lock = me };
        if
#ifdef CANCEL_IN_ONE
        :: atomic { true };
#else
        :: atomic { status[t] == WAITING };
#endif
            atomic { lock[t] == FREE -> lock[t] = me };
            if
            :: atomic { status[t] == WAITING };
                if
                :: atomic { doom[t] }; advance(t, 0, 1)
                :: atomic { !doom[t] }; advance(t, 0, 0)
                fi;
                atomic { commit_end(t, 0); COMMITTED; let_go() }
            :: else -> atomic { let_go() }
            fi
#ifndef CANCEL_IN_ONE
        :: else -> atomic { let_go() }
#endif
        fi
    :: atomic { status[t] != WAITING }
    fi;
done: skip
}

#if POLICY == 3
/* end_waiting: of the doomed tasks those whose session is free */
proctype Ender(byte me) {
    LOCALS;
    byte t;
    do
    :: atomic { ALL_OVER -> break }
    :: if
    :: atomic { session_lock == FREE && status[0] == WAITING && doom[0] -> t = 0; session_lock = me }
    :: atomic { session_lock == FREE && status[1] == WAITING && doom[1] -> t = 1; session_lock = me }
#if N == 3
    :: atomic { session_lock == FREE && status[2] == WAITING && doom[2] -> t = 2; session_lock = me }
#endif
       fi;
        atomic { lock[t] == FREE -> lock[t] = me };
        advance(t, 3, 1);
        atomic { commit_end(t, 3); COMMITTED; let_go(); t = 0 }
    od
}
#endif

#ifdef UNBLOCK_DOOMED
#define MAY_END_BLOCK (blocked_by != NONE)
#else
#define MAY_END_BLOCK (blocked_by != NONE && doomed == 0)
#endif

#if POLICY > 1
proctype Unblocker(byte me) {
    LOCALS;
    do
    :: atomic { ALL_OVER && !there -> break }
    :: atomic { there && MAY_END_BLOCK };
        atomic { session_lock == FREE -> session_lock = me };
        if
#ifdef UNBLOCK_UNSEEN
        :: atomic { there };
#else
        :: atomic { there && MAY_END_BLOCK };
#endif
            d_step { look(); first_waiting(next) };
            if :: next == NONE :: atomic { next != NONE && lock[next] == FREE -> lock[next] = me } fi;
            atomic {
                if
                :: next == NONE -> there = false; head = NONE; blocked_by = NONE; last_seq = 0; length = 0; doomed = 0; fails_until = 0; condemned_to = 0
                :: else -> head = next; blocked_by = NONE; status[next] = NEW
                fi;
                COMMITTED; let_go() }
        :: else -> atomic { let_go() }
        fi
    od
}
#endif

#ifdef REDRIVES
/* each dead letter runs again, once */
proctype Redriver(byte me) {
    LOCALS;
    byte t;
    do
    :: atomic { ALL_OVER -> break }
    :: if
    :: atomic { status[0] == FAILED && !redriven[0] -> t = 0; skip }
    :: atomic { status[1] == FAILED && !redriven[1] -> t = 1; skip }
#if N == 3
    :: atomic { status[2] == FAILED && !redriven[2] -> t = 2; skip }
#endif
       fi;
        schedule(t);
        atomic { t = 0 }
    od
}
#endif

init {
    atomic {
        run Scheduler(0, 0); run Scheduler(1, 1);
#if N == 3
        run Scheduler(2, 2);
#endif
        run Host(3); run Host(4); run Reclaimer(5);
        run Canceller(6, 1);
#if POLICY == 3
        run Ender(7);
#endif
#if POLICY > 1
        run Unblocker(8);
#endif
#ifdef REDRIVES
        run Redriver(9);
#endif
    }
    /* all others have ended */
    _nr_pr == 1;
    assert(!there)
}
