/* Tasks that name one resource, as duly_admit, duly_free, duly_unpark and duly_put_resource give its units.

   A transaction takes the locks of rows one at a time and waits for each; sessions.pml says what it sees.

   Checked: the units that are held never exceed the capacity, and their sum is right; everything ends, so no parked task is
   forgotten while units are free, and nobody waits for a lock for ever. A task that is moved to a later time never comes back here:
   nobody else's release may depend on it. Each guard can be left out by a switch, and then the model must fail
   (test_spin_waiting.py):
     ADMIT_ONE       what is free is read before the wait for the row of the resource
     ADMIT_UNLOCKED  units are given without the lock of that row
     FREE_ONE        what is parked is read before the wait for that row
     CANCEL_KEEPS    a cancel of what is due releases nobody
     MOVE_KEEPS      a move to a later time releases nobody
     RECLAIM_KEEPS   a reclaim does not free what a dead holder had
     BLIND_FREE      what ends frees its weight, whether it holds it or not
     CAPACITY_ONE    a change of the capacity does not wait for those who decide by the old one
     CANCEL_IN_ONE   a cancel reads what is parked before it waits for the row of the resource
     RESOURCE_FIRST  (with SESSION) an end locks the resource before the session
     WAIT_FOR_PARKED a release waits for a parked task that somebody else has locked (with STALE, BATCH, or KEYED and a CANCEL)
     UNNOTED         a release that passed over a parked task does not note it (with STALE or BATCH)
   Configuration: N tasks; CAPACITY; HEAVY: the first task needs two units; F holders that fall silent; MOVE: this task is moved;
   CANCEL: this task is cancelled, if it is below N; RAISE: an operator adds a unit; KEYED: the row is gone as soon as it is not used (retention removes it later);
   SESSION: tasks 0 and 1 have one session.
   STALE: a pick keeps the lock of a row that was parked after its snapshot; BATCH: so does a cancel of task 0 and another one.
   Two resources are not modelled. */
#ifndef N
#define N 3
#endif
#ifndef CAPACITY
#define CAPACITY 1
#endif
#ifndef F
#define F 1
#endif
#ifndef CANCEL
#define CANCEL 1
#endif
#define FREE 255

#define NEW 0
#define PARKED 1
#define HELD 2
#define LATER 3
#define ENDED 4
#define WAITS 5  /* for task 0, in its session */

byte status[N], hold[N], token[N], lock[N] = FREE;
bool silent[N];
byte capacity = CAPACITY, used, use_lock = FREE, generation, session_lock = FREE, users, faults;
bool there, is_noted;
#ifdef HEAVY
#define WEIGHT(t) ((t) == 0 -> 2 : 1)
#else
#define WEIGHT(t) 1
#endif
#define NEEDS(t) (WEIGHT(t) > capacity -> capacity : WEIGHT(t))
#define OVER(t) (status[t] == ENDED || status[t] == LATER)
#if N == 2
#define ALL_OVER (OVER(0) && OVER(1))
#define HELD_UNITS (hold[0] + hold[1])
#define ANY(s) (status[0] == s || status[1] == s)
#else
#define ALL_OVER (OVER(0) && OVER(1) && OVER(2))
#define HELD_UNITS (hold[0] + hold[1] + hold[2])
#define ANY(s) (status[0] == s || status[1] == s || status[2] == s)
#endif
#define TO_PICK(t) (status[t] == NEW && lock[t] == FREE)
#if N == 2
#define ANY_TO_PICK (TO_PICK(0) || TO_PICK(1))
#else
#define ANY_TO_PICK (TO_PICK(0) || TO_PICK(1) || TO_PICK(2))
#endif
#define COMMITTED assert(used == HELD_UNITS && used <= capacity)

#define LOCALS byte k, now_used, total, old_generation; bool parked[N], released[N], is_using, has_skipped

/* which parked tasks fit into what is free; `parked` are those that this transaction parks itself */
inline choose(free_units) {
    total = 0;
    for (k : 0 .. N - 1) {
        if
        :: parked[k] && total < free_units ->
            total = total + NEEDS(k); released[k] = (total <= free_units);
            if :: total > free_units -> total = free_units :: else fi
        :: else
        fi
    }
    k = 0; total = 0
}
/* duly_unpark passes over a task that somebody else has locked, and notes it on the row of the resource */
inline lock_released() {
    k = 0;
    do
    :: k < N && !released[k] -> k++
    :: atomic { k < N && released[k] && (lock[k] == FREE || lock[k] == me) -> lock[k] = me; k++ }
#ifndef WAIT_FOR_PARKED
    :: atomic { k < N && released[k] && lock[k] != FREE && lock[k] != me -> released[k] = false; has_skipped = true; k++ }
#endif
    :: k == N -> k = 0; break
    od
}
inline look_parked() {
    for (k : 0 .. N - 1) { parked[k] = (status[k] == PARKED) }
    k = 0
}
inline release() {
    for (k : 0 .. N - 1) {
        if :: released[k] && status[k] == PARKED -> status[k] = NEW :: else fi
    }
#ifndef UNNOTED
    is_noted = is_noted || has_skipped;
#endif
    has_skipped = false
}
inline touch() {
    if :: !is_using -> is_using = true; users++ :: else fi
}
inline let_go() {
    if :: use_lock == me -> use_lock = FREE :: else fi;
    if :: session_lock == me -> session_lock = FREE :: else fi;
    if :: is_using -> is_using = false; users-- :: else fi;
    for (k : 0 .. N - 1) {
        if :: lock[k] == me -> lock[k] = FREE :: else fi;
        parked[k] = false; released[k] = false
    }
    k = 0; now_used = 0; old_generation = 0
}
/* duly_free of task t, and the commit; `ends` is its status from then on */
inline free(t, ends) {
#ifdef FREE_ONE
    look_parked();
#endif
    if
    :: use_lock == me
    :: atomic { !there }
    :: atomic { use_lock != me && there -> old_generation = generation };
        atomic { use_lock == FREE && users < 100 ->
            touch();
            if :: there && old_generation == generation -> use_lock = me :: else fi }
    fi;
    d_step {
#ifndef FREE_ONE
        look_parked();
#endif
        parked[t] = false;
        if
        :: use_lock == me ->
#ifdef BLIND_FREE
            now_used = (used < WEIGHT(t) -> 0 : used - WEIGHT(t));
#else
            now_used = used - hold[t];
#endif
            if :: now_used < capacity -> choose(capacity - now_used) :: else fi
        :: else
        fi
    }
    lock_released();
    atomic {
        if :: use_lock == me -> used = now_used; hold[t] = 0 :: else -> assert(hold[t] == 0) fi;
        release(); status[t] = ends; silent[t] = false;
#ifdef SESSION
        if :: t == 0 && ends == ENDED && status[1] == WAITS -> status[1] = NEW :: else fi;
#endif
#ifdef KEYED
        if :: use_lock == me && used == 0 && !ANY(PARKED) -> there = false :: else fi;
#endif
        COMMITTED; let_go() }
}
/* stop without a look at the resource */
inline keep(t, ends) {
    atomic { status[t] = ends; silent[t] = false; let_go() }
}
inline lock_session(t) {
#ifdef SESSION
    if
    :: t > 1
    :: atomic { t <= 1 && session_lock == FREE -> session_lock = me }
    fi
#else
    skip
#endif
}

/* enqueue, claim_work */
proctype Picker(byte me) {
    LOCALS;
    bool seen[N], picked[N], granted[N];
    bool is_behind, any_parked;
    byte left;
    do
    :: atomic { ALL_OVER -> break }
    :: atomic { ANY_TO_PICK ->
#ifdef STALE
        for (k : 0 .. N - 1) { seen[k] = (status[k] == NEW) }
        k = 0 };
        k = 0;
        do
        :: atomic { k < N ->
            if
            :: seen[k] && lock[k] == FREE -> lock[k] = me; picked[k] = (status[k] == NEW)
            :: !seen[k] || lock[k] != FREE
            fi;
            k++ }
        :: atomic { k == N -> k = 0; break }
        od;
        atomic {
#else
        /* so many at most */
        if :: left = 1 :: left = N fi;
        for (k : 0 .. N - 1) {
            if
            :: left > 0 && status[k] == NEW && lock[k] == FREE -> lock[k] = me; picked[k] = true; left--
            :: else
            fi
        }
        left = 0;
#endif
        k = 0; any_parked = false;
        for (k : 0 .. N - 1) { any_parked = any_parked || picked[k] }
        k = 0 };
        if
        :: !any_parked -> goto done
        :: else -> any_parked = false
        fi;
#ifdef ADMIT_ONE
        now_used = used;
#endif
        /* the insert of the row locks it, whoever made it */
#ifdef ADMIT_UNLOCKED
        atomic { users < 100 -> touch(); there = true };
        now_used = used;
#else
        atomic { users < 100 && use_lock == FREE ->
            touch(); use_lock = me;
            if :: !there -> there = true; generation++ :: else fi };
#endif
        d_step {
#if !defined(ADMIT_ONE) && !defined(ADMIT_UNLOCKED)
            now_used = used;
#endif
            look_parked();
            is_behind = false;
            for (k : 0 .. N - 1) {
                if
                :: picked[k] ->
                    if
                    :: is_behind || now_used + NEEDS(k) > capacity -> any_parked = true; is_behind = true; parked[k] = true
                    :: else -> granted[k] = true; now_used = now_used + NEEDS(k)
                    fi
                :: !picked[k] && parked[k] -> is_behind = true
                :: else
                fi
            }
            k = 0; is_behind = false;
            left = capacity
        };
#ifdef CAPACITY_ONE
        /* it commits, some time after it decided */
        skip;
#endif
        d_step {
            if :: any_parked && now_used < left -> choose(left - now_used) :: else fi
        };
        lock_released();
        atomic {
            for (k : 0 .. N - 1) {
                if
                :: granted[k] -> status[k] = HELD; hold[k] = NEEDS(k); token[k]++
                :: picked[k] && !granted[k] -> status[k] = PARKED
                :: else
                fi
            }
            used = now_used; release(); COMMITTED };
done:   atomic {
            let_go(); any_parked = false; left = 0;
            for (k : 0 .. N - 1) { picked[k] = false; granted[k] = false; seen[k] = false }
            k = 0 }
    od
}

/* who holds task t: it ends, or falls silent, and its result may come late */
proctype Holder(byte me; byte t) {
    LOCALS;
    byte mine;
    do
    :: atomic { OVER(t) -> break }
    :: atomic { status[t] == HELD && !silent[t] -> mine = token[t] };
        if
        :: skip
        :: atomic { faults < F && status[t] == HELD && token[t] == mine -> faults++; silent[t] = true }
        fi;
        atomic { lock[t] == FREE -> lock[t] = me };
        if
        :: atomic { status[t] == HELD && token[t] == mine };
#ifdef RESOURCE_FIRST
            atomic { use_lock == FREE -> touch(); use_lock = me };
#endif
            lock_session(t); free(t, ENDED)
        :: else -> atomic { let_go() }
        fi;
        mine = 0
    od
}

proctype Reclaimer(byte me) {
    LOCALS;
    byte t;
    do
    :: atomic { ALL_OVER -> break }
    :: if
       :: atomic { silent[0] && status[0] == HELD && lock[0] == FREE -> t = 0; lock[0] = me }
       :: atomic { silent[1] && status[1] == HELD && lock[1] == FREE -> t = 1; lock[1] = me }
#if N == 3
       :: atomic { silent[2] && status[2] == HELD && lock[2] == FREE -> t = 2; lock[2] = me }
#endif
       fi;
#ifdef RECLAIM_KEEPS
       keep(t, NEW);
#else
       free(t, NEW);
#endif
       t = 0
    od
}

#ifdef MOVE
proctype Mover(byte me; byte t) {
    LOCALS;
    if
    :: atomic { status[t] == NEW };
        atomic { lock[t] == FREE -> lock[t] = me };
        if
        :: atomic { status[t] == NEW };
#ifdef MOVE_KEEPS
            keep(t, LATER)
#else
            free(t, LATER)
#endif
        :: else -> atomic { let_go() }
        fi
    :: atomic { ALL_OVER }
    fi
}
#endif

/* cancel_tasks: a task that runs is left to its holder */
proctype Canceller(byte me; byte t) {
    LOCALS;
    /* cancel */
    if
    :: atomic { status[t] == NEW };
#ifdef BATCH
        if
        :: atomic { status[0] == NEW };
            if
            :: atomic { lock[0] == FREE && status[0] == PARKED -> lock[0] = me }  /* it was parked meanwhile, and stays locked */
            :: atomic { lock[0] == FREE && status[0] != PARKED }
            fi
        :: atomic { status[0] != NEW }
        fi;
#endif
        atomic { lock[t] == FREE -> lock[t] = me };
        if
        :: atomic { status[t] == NEW };
#ifdef CANCEL_KEEPS
            keep(t, ENDED);
#else
            lock_session(t); free(t, ENDED);
#endif
            goto done
        :: else -> atomic { let_go() }
        fi
    :: atomic { status[t] == PARKED || status[t] == WAITS || ALL_OVER }
    fi;
    /* lock_waiting, cancel_waiting */
    if
    :: atomic { status[t] == PARKED || status[t] == WAITS };
        lock_session(t);
        if
        :: atomic { !there }
        :: atomic { there -> old_generation = generation };
            atomic { use_lock == FREE && users < 100 ->
                touch();
                if :: there && old_generation == generation -> use_lock = me :: else fi }
        fi;
        if
#ifdef CANCEL_IN_ONE
        :: true;
#else
        :: atomic { status[t] == PARKED || status[t] == WAITS };
#endif
            atomic { lock[t] == FREE -> lock[t] = me };
            if
            :: atomic { status[t] == PARKED || status[t] == WAITS }; free(t, ENDED)
            :: else -> atomic { let_go() }
            fi
#ifndef CANCEL_IN_ONE
        :: else -> atomic { let_go() }
#endif
        fi
    :: atomic { status[t] != PARKED && status[t] != WAITS }
    fi;
done: skip
}

/* duly_release_skipped: the Store Consumer looks for what was passed over */
proctype Looker(byte me) {
    LOCALS;
    do
    :: atomic { ALL_OVER -> break }
    :: atomic { is_noted && there && use_lock == FREE && users < 100 -> touch(); use_lock = me };
        d_step {
            look_parked();
            if :: used < capacity -> choose(capacity - used) :: else fi
        };
        lock_released();
        atomic { is_noted = false; release(); COMMITTED; let_go() }
    od
}

#ifdef RAISE
/* duly_put_resource: alone with the table; it waits for all who touched it, and they wait for it */
proctype Operator(byte me) {
    LOCALS;
#ifdef CAPACITY_ONE
    atomic { true -> look_parked(); };
#else
    atomic { users == 0 -> users = 100; look_parked() };
#endif
    d_step {
        if :: used < capacity + 1 -> choose(capacity + 1 - used) :: else fi };
    lock_released();
    atomic {
        capacity++; release(); COMMITTED;
#ifndef CAPACITY_ONE
        users = 0;
#endif
        let_go() }
}
#endif

init {
    atomic {
#ifdef SESSION
        status[1] = WAITS;
#endif
        run Looker(10); run Picker(1); run Picker(2); run Holder(3, 0); run Holder(4, 1); run Reclaimer(5);
#if N == 3
        run Holder(6, 2);
#endif
#if CANCEL < N
        run Canceller(7, CANCEL);
#endif
#ifdef MOVE
        run Mover(8, MOVE);
#endif
#ifdef RAISE
        run Operator(9);
#endif
    }
    _nr_pr == 1;
    assert(used == 0)
}
