/* A graph of four nodes, as duly_advance_graphs, cancel_graph and end_waiting move them: C waits for A, and D for B and C. A and B
   end at any time. Edges fire on success.

   A transaction takes the locks of rows one at a time and waits for each; sessions.pml says what it sees.

   Checked: each node is released at most once, not after a cancel of the graph, and ends once; D runs if and only if its edges say so; the graph counts all ends;
   everything ends, so no release is lost and nobody waits for a lock for ever. Each guard can be left out by a switch, and then the
   model must fail (test_spin_waiting.py):
     ONE_STATEMENT  an end reads its targets before it waits for the graph
     NO_LOCK        an end does not lock the graph
     DOOM_TWICE     the end of a doomed node decides its edges once more
     REVIVE         a node that is doomed is judged again
     CANCEL_IN_ONE  the cancel of the graph reads what waits before it waits for the graph
     CANCEL_FREES   the cancel of the graph does not lock it
     UNCOMPARED     a result does not compare that the node still runs
   Configuration: ANY: one edge of D is enough; CANCEL: the graph is cancelled at any time; FEW_STEPS: a skip is too long for one
   transaction, so the end of a doomed node decides its edges (a negative doom); F: holders that fall silent. */
#ifndef F
#define F 0
#endif
#define FREE 255
#define A 0
#define B 1
#define C 2
#define D 3

#define WAITING 0
#define NEW 1
#define RUNS 2
#define SUCCESS 3
#define FAILED 4
#define DROPPED 5
#define CANCELLED 6

byte status[4], lock[4] = FREE, releases[4], ends[4], edges[4];
byte doom[4];  /* 1: its edges are decided with it; 2: they are decided with its end */
byte token[4];
bool silent[4];
bool asked_to_cancel;  /* of tasks that run: their holders stop them */
byte open = 4, graph_lock = FREE, faults;

#define FINAL(t) (status[t] >= SUCCESS)
#define ALL_FINAL (FINAL(A) && FINAL(B) && FINAL(C) && FINAL(D))
#define TARGET(t) (t == A -> C : D)
#ifdef ANY
#define ANY_OF(t) (t == D)
#else
#define ANY_OF(t) false
#endif
#ifdef REVIVE
#define WAITS(t) seen[t]
#else
#define WAITS(t) (seen[t] && seen_doom[t] == 0)
#endif
#ifdef ONE_STATEMENT
#define EARLY_LOOK look()
#define LATE_LOOK skip
#else
#define EARLY_LOOK skip
#define LATE_LOOK look()
#endif
#define LOCALS bool seen[4]; byte seen_edges[4], seen_doom[4], runs[4], new_doom[4], new_edges[4]; byte k, source, target, outcome, number

inline look() {
    for (k : 0 .. 3) { seen[k] = (status[k] == WAITING); seen_edges[k] = edges[k]; seen_doom[k] = doom[k] }
    k = 0
}
inline let_go() {
    if :: graph_lock == me -> graph_lock = FREE :: else fi;
    for (k : 0 .. 3) {
        if :: lock[k] == me -> lock[k] = FREE :: else fi;
        seen[k] = false; seen_edges[k] = 0; seen_doom[k] = 0; runs[k] = 0; new_doom[k] = 0; new_edges[k] = 0
    }
    k = 0; source = 0; target = 0; outcome = 0; number = 0
}
/* decide the edge of `source`, which ended with `outcome` (1: it fires), and those of what is doomed with it */
inline decide() {
    do
    :: source < D ->
        target = TARGET(source);
        if
        :: WAITS(target) && new_doom[target] == 0 && !runs[target] ->
            new_edges[target]++;
            if
            :: ANY_OF(target) && outcome || !ANY_OF(target) && outcome && seen_edges[target] == new_edges[target] ->
                runs[target] = true; source = D
            :: ANY_OF(target) && !outcome && seen_edges[target] == new_edges[target] || !ANY_OF(target) && !outcome ->
#ifdef FEW_STEPS
                new_doom[target] = 2; source = D
#else
                new_doom[target] = 1; source = target; outcome = 0
#endif
            :: else -> source = D
            fi
        :: else -> source = D
        fi
    :: else -> break
    od;
    target = 0; outcome = 0
}
inline lock_graph() {
    if
    :: graph_lock == me
#ifdef NO_LOCK
    :: graph_lock != me
#else
    :: atomic { graph_lock == FREE -> graph_lock = me }
#endif
    fi
}
inline lock_targets() {
    k = 0;
    do
    :: k < 4 && !runs[k] && new_doom[k] == 0 && new_edges[k] == 0 -> k++
    :: atomic { k < 4 && (runs[k] || new_doom[k] || new_edges[k]) && (lock[k] == FREE || lock[k] == me) -> lock[k] = me; k++ }
    :: k == 4 -> k = 0; break
    od
}
inline write_targets() {
    for (k : 0 .. 3) {
        /* the row is compared again; what was decided is not */
        if
        :: status[k] == WAITING && (runs[k] || new_doom[k] || new_edges[k]) ->
            assert(edges[k] >= new_edges[k]);
            edges[k] = edges[k] - new_edges[k];
            if :: new_doom[k] -> doom[k] = new_doom[k] :: else fi;
            if :: runs[k] -> status[k] = NEW; releases[k]++; assert(releases[k] <= 1 && !asked_to_cancel) :: else fi
        :: else
        fi
    }
    k = 0
}
/* the end of node t, whose row this transaction has locked */
inline end(t, as) {
    lock_graph();
    d_step {
        LATE_LOOK;
        seen[t] = false;
#ifndef DOOM_TWICE
        if :: doom[t] != 1 -> source = t; outcome = (as == SUCCESS); decide() :: else fi
#else
        source = t; outcome = (as == SUCCESS); decide()
#endif
    };
    lock_targets();
    atomic {
        write_targets();
        status[t] = as; silent[t] = false; ends[t]++; assert(ends[t] == 1); open--;
        let_go() }
}

/* whoever runs node t */
proctype Host(byte me; byte t) {
    LOCALS;
    byte mine;
    do
    :: atomic { FINAL(t) -> break }
    :: atomic { status[t] == NEW && lock[t] == FREE -> status[t] = RUNS; token[t]++; mine = token[t] };
        if
        :: skip
        :: atomic { faults < F -> faults++; silent[t] = true }  /* its result may come late */
        fi;
        atomic { lock[t] == FREE -> lock[t] = me; EARLY_LOOK };
        if
#ifdef UNCOMPARED
        :: true;
#else
        :: atomic { status[t] == RUNS && token[t] == mine };
#endif
            if
            :: end(t, SUCCESS)
            :: end(t, FAILED)
            :: atomic { asked_to_cancel }; end(t, CANCELLED)
            fi
#ifndef UNCOMPARED
        :: else -> atomic { let_go() }
#endif
        fi
    od
}

proctype Reclaimer(byte me) {
    byte t;
    do
    :: atomic { ALL_FINAL -> break }
    :: atomic { silent[A] && status[A] == RUNS && lock[A] == FREE -> status[A] = NEW; silent[A] = false }
    :: atomic { silent[B] && status[B] == RUNS && lock[B] == FREE -> status[B] = NEW; silent[B] = false }
    :: atomic { silent[C] && status[C] == RUNS && lock[C] == FREE -> status[C] = NEW; silent[C] = false }
    :: atomic { silent[D] && status[D] == RUNS && lock[D] == FREE -> status[D] = NEW; silent[D] = false }
    od
}

/* end_waiting: a graph that somebody works on is left to the next round */
proctype Consumer(byte me) {
    LOCALS;
    byte t;
    do
    :: atomic { ALL_FINAL -> break }
    :: if
       :: atomic { graph_lock == FREE && status[C] == WAITING && doom[C] -> t = C; graph_lock = me }
       :: atomic { graph_lock == FREE && status[D] == WAITING && doom[D] -> t = D; graph_lock = me }
       fi;
       atomic { lock[t] == FREE -> lock[t] = me; EARLY_LOOK };
       end(t, DROPPED);
       t = 0
    od
}

/* cancel of node t, if nobody runs it */
inline cancel(t) {
    if
    :: atomic { status[t] == NEW };
        atomic { lock[t] == FREE -> lock[t] = me; EARLY_LOOK };
        if
        :: atomic { status[t] == NEW }; end(t, CANCELLED)
        :: else -> atomic { let_go() }
        fi
    :: atomic { status[t] != NEW }
    fi
}
/* the rows that a cancel of the graph deletes; they have no target that waits and stays */
inline delete(t) {
    if
    :: atomic { waited[t] };
        atomic { lock[t] == FREE -> lock[t] = me };
        if
        :: atomic { status[t] == WAITING && doom[t] == 0 -> deleted[t] = true }
        :: else
        fi
    :: atomic { !waited[t] }
    fi
}

#ifdef CANCEL
proctype Canceller(byte me) {
    LOCALS;
    bool waited[4], deleted[4];
#ifdef CANCEL_IN_ONE
    atomic { waited[C] = (status[C] == WAITING && doom[C] == 0); waited[D] = (status[D] == WAITING && doom[D] == 0) };
#endif
#ifndef CANCEL_FREES
    atomic { graph_lock == FREE -> graph_lock = me };
#endif
#ifndef CANCEL_IN_ONE
    atomic { waited[C] = (status[C] == WAITING && doom[C] == 0); waited[D] = (status[D] == WAITING && doom[D] == 0) };
#endif
    delete(C);
    delete(D);
    lock_graph();
    d_step {
        look();
        if
        :: deleted[C] ->
            seen[C] = false;
            if :: deleted[D] -> seen[D] = false :: else fi;
            source = C; outcome = 0; decide()
        :: else
        fi
    };
    lock_targets();
    atomic {
        write_targets();
        for (k : 0 .. 3) {
            if
            :: deleted[k] -> status[k] = CANCELLED; ends[k]++; assert(ends[k] == 1); open--
            :: else
            fi;
            waited[k] = false; deleted[k] = false
        }
        k = 0; asked_to_cancel = true; let_go() };
    cancel(A);
    cancel(B);
    cancel(C);
    cancel(D)
}
#endif

#define SAYS_RUN(t) (status[t] == SUCCESS)

init {
    atomic {
        status[A] = NEW; status[B] = NEW; edges[C] = 1; edges[D] = 2;
        run Host(1, A); run Host(2, B); run Host(3, C); run Host(4, D); run Consumer(5);
#if F > 0
        run Reclaimer(6);
#endif
#ifdef CANCEL
        run Canceller(7);
#endif
    }
    _nr_pr == 1;
    assert(open == 0 && ends[A] == 1 && ends[B] == 1 && ends[C] == 1 && ends[D] == 1);
    assert(!releases[C] || SAYS_RUN(A));
#ifdef ANY
    assert(!releases[D] || SAYS_RUN(B) || SAYS_RUN(C));
#else
    assert(!releases[D] || SAYS_RUN(B) && SAYS_RUN(C));
#endif
#ifndef CANCEL
    assert(releases[C] || !SAYS_RUN(A));
#ifdef ANY
    assert(releases[D] || !SAYS_RUN(B) && !SAYS_RUN(C));
#else
    assert(releases[D] || !SAYS_RUN(B) || !SAYS_RUN(C));
#endif
#endif
}
