------------------------------- MODULE Semel -------------------------------
(***************************************************************************)
(* One key of semel: claim, lease, renewal, take-over, completion, what a  *)
(* person states, corrects, ends by force and reopens, failures that are   *)
(* counted afterwards, erasing, and the record that expires and is made    *)
(* anew.                                                                   *)
(*                                                                         *)
(* A worker is one call in the hands of one process. It sends its claim,   *)
(* runs the effect if it is granted, and completes. It may crash, stall    *)
(* until its lease lapses and then go on (a zombie), or lose the reply to  *)
(* what it sent. Whoever calls again after a crash is another worker.      *)
(*                                                                         *)
(* The store is one record, changed only by compare-and-set: every action  *)
(* below that changes `record' is one statement. The store's clock is not  *)
(* a number here. A lease is live or it has lapsed, and it may lapse at    *)
(* any moment; that covers every clock there can be.                       *)
(*                                                                         *)
(* A lost reply is modelled by what really happens: the statement is still *)
(* on its way, the worker has stopped waiting for the reply, and the store *)
(* applies it now, later, or never.                                        *)
(*                                                                         *)
(* WHAT THE NONCE BUYS. It names the claim, and is never reused.           *)
(*   1. After a lost reply it answers "is the running record mine?". A     *)
(*      number cannot: two workers that saw the same record ask for the    *)
(*      same next number.                                                  *)
(*   2. After the record expired the fence starts at 1 again, so a zombie  *)
(*      of the old record may hold the very number of the new one. The     *)
(*      nonce still differs.                                               *)
(*                                                                         *)
(* WHAT THE FENCE BUYS. It numbers the grants of one record, and rises.    *)
(*   1. It has an order, so a resource outside the store can refuse what   *)
(*      comes late: it keeps the highest number it saw. Nonces can only be *)
(*      equal or not, and the resource does not know which came later.     *)
(*   2. One claim may be granted twice: a copy that was slow on its way    *)
(*      arrives when the record may be claimed again. Both grants carry    *)
(*      the one nonce; only the fence tells the old lease from the new.    *)
(*                                                                         *)
(* In most zombie completions either of the two would do. The constants    *)
(* UseFence and UseNonce remove one of them everywhere it is used, and TLC *)
(* then finds what only that one prevents.                                 *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Workers,             \* the calls for this key; each serves as its own nonce
    Statements,          \* what operators say of this key; each its own nonce
    Forces,              \* live leases that operators end; each its own nonce
    Reopenings,          \* second chances that they give; each its own nonce
    Failures,            \* attempts that were rolled back; each its own nonce
    None,                \* no worker, no outcome
    MaxFaults,           \* how many crashes, stalls, lost replies, handler errors
    MaxGenerations,      \* how many records in a row the key may have
    UseFence,            \* TRUE in semel
    UseNonce,            \* TRUE in semel
    CompareFingerprint,  \* TRUE in semel
    KeepDoubt            \* TRUE in semel

Fingerprints == {"this", "other"}
Policies     == {"rerun", "hold"}

VARIABLES
    asks,         \* worker -> the fingerprint and in-doubt policy it comes with
    record,       \* what the store keeps for the key
    step,         \* worker -> where its call is
    lease,        \* worker -> the lease it was granted
    expects,      \* worker -> only without the nonce: the fence it asked for
    claims,       \* claims on their way whose worker no longer waits
    completions,  \* completions on their way whose worker no longer waits
    saw,          \* decision -> the nonce of the record it is about, see below
    ledger,       \* effects that happened, kept by the resource outside
    answer,       \* worker -> the value its caller was given, and of which record
    \* The rest is known to nobody in the system; the invariants need it.
    generation,   \* the number of the record: 1, and 1 more after each expiry
    outcomes,     \* every outcome ever recorded, with its generation
    again,        \* what operators let happen again, and leases they ended
    counted,      \* failure -> how often it was sent to be counted
    faults        \* how many faults there were

vars == <<asks, record, step, lease, expects, claims, completions, saw, ledger,
          answer, generation, outcomes, again, counted, faults>>

-----------------------------------------------------------------------------
(* Shapes *)

\* Every grant uses up the call of one worker or one claim on its way, and
\* what is stated has a fence of its own.
MaxFence == Cardinality(Workers) + MaxFaults + Cardinality(Statements)
            + Cardinality(Forces) + 2 * Cardinality(Failures)

\* `generation' in a lease, an outcome or an effect is for the invariants
\* only: neither worker nor store compares it.
Leases   == [generation : 0..MaxGenerations, fence : 0..MaxFence, doubt : BOOLEAN]
NoLease  == [generation |-> 0, fence |-> 0, doubt |-> FALSE]
Authors  == Workers \cup Statements
Decisions == Statements \cup Forces \cup Reopenings
Nonces   == Authors \cup Decisions \cup Failures
Effects  == [by : Workers, generation : 1..MaxGenerations, fence : 1..MaxFence]
Outcomes == [by : Authors, generation : 1..MaxGenerations, fence : 1..MaxFence]
Answers  == [by : Authors, generation : 1..MaxGenerations]

\* `failed' may be tried again; `final' is a failure for good, or cancelled.
Statuses == {"absent", "running", "completed", "failed", "final", "in_doubt", "erased"}
Absent   == [status |-> "absent", fence |-> 0, nonce |-> None, live |-> FALSE,
             fingerprint |-> None, policy |-> None, doubt |-> FALSE,
             outcome |-> None, history |-> {}]

\* What happened to the record is written with it: one statement, so a kill
\* loses both or neither. A worker that completed has no entry: the record
\* tells of it until it is erased, corrected or gone.
Kinds    == {"attempt", "taken_over", "resolved", "reopened", "erased"}
Entry(fence, kind) == [fence |-> fence, kind |-> kind]

TypeOK ==
    /\ asks \in [Workers -> [fingerprint : Fingerprints, policy : Policies]]
    /\ record.status \in Statuses
    /\ record.fence \in 0..MaxFence
    /\ record.nonce \in Nonces \cup {None}
    /\ record.live \in BOOLEAN
    /\ record.fingerprint \in Fingerprints \cup {None}
    /\ record.policy \in Policies \cup {None}
    /\ record.doubt \in BOOLEAN
    /\ record.outcome \in Outcomes \cup {None}
    /\ record.history \subseteq [fence : 1..MaxFence, kind : Kinds]
    /\ step \in [Workers -> {"claiming", "granted", "ran", "answered", "ended"}]
    /\ lease \in [Workers -> Leases]
    /\ expects \in [Workers -> 0..MaxFence]
    /\ claims \subseteq Workers
    /\ completions \subseteq Effects
    /\ saw \in [Decisions -> Nonces \cup {None}]
    /\ ledger \subseteq Effects
    /\ answer \in [Workers -> Answers \cup {None}]
    /\ generation \in 1..MaxGenerations
    /\ outcomes \subseteq Answers
    /\ again \subseteq [generation : 1..MaxGenerations, fence : 0..MaxFence]
    /\ counted \in [Failures -> 0..2]
    /\ faults \in 0..MaxFaults

Init ==
    /\ asks \in [Workers -> [fingerprint : Fingerprints, policy : Policies]]
    /\ record = Absent
    /\ step = [w \in Workers |-> "claiming"]
    /\ lease = [w \in Workers |-> NoLease]
    /\ expects = [w \in Workers |-> 0]
    /\ claims = {}
    /\ completions = {}
    /\ saw = [s \in Decisions |-> None]
    /\ ledger = {}
    /\ answer = [w \in Workers |-> None]
    /\ generation = 1
    /\ outcomes = {}
    /\ again = {}
    /\ counted = [f \in Failures |-> 0]
    /\ faults = 0

-----------------------------------------------------------------------------
(* What the store decides *)

SameFingerprint(w) ==
    CompareFingerprint => record.fingerprint = asks[w].fingerprint

\* It started and no outcome is known: reported so, or the lease lapsed.
InDoubt == \/ record.status = "in_doubt"
           \/ record.status = "running" /\ ~record.live

\* Or it failed for good after a doubt, and was reopened.
Doubtful == InDoubt \/ (record.status = "failed" /\ record.doubt)

\* The policy is stored in the record; a take-over needs the word of both.
MayTakeOver(w) == record.policy = "rerun" /\ asks[w].policy = "rerun"

Claimable(w) ==
    \/ record.status = "absent"
    \/ /\ SameFingerprint(w)
       /\ \/ record.status = "failed" /\ ~record.doubt  \* nothing happened
          \/ Doubtful /\ MayTakeOver(w)

\* The attempt that a write ends though it did not record its end itself.
Forgotten(kind) ==
    IF record.status = "running" THEN {Entry(record.fence, kind)} ELSE {}

\* The record after a grant to w. The row of a failed or in-doubt record is
\* kept: the fence goes on, and so does the doubt.
Granted(w) ==
    [status      |-> "running",
     fence       |-> record.fence + 1,
     nonce       |-> w,
     live        |-> TRUE,
     fingerprint |-> asks[w].fingerprint,
     policy      |-> asks[w].policy,
     doubt       |-> InDoubt \/ record.doubt,
     outcome     |-> None,
     history     |-> record.history \cup Forgotten("taken_over")]

\* "Is the running record mine?" The store answers granted to the claim it
\* has granted already; a worker that re-reads compares in the same way.
\* Without the nonce all it can compare is the fence it asked for.
Mine(w) ==
    /\ record.status = "running"
    /\ IF UseNonce THEN record.nonce = w ELSE record.fence = expects[w]

\* Renew, complete and fail all demand the lease. That the lease has lapsed
\* is no ground for refusal as long as nobody took over.
Holds(w, fence) ==
    /\ record.status = "running"
    /\ UseFence => record.fence = fence
    /\ UseNonce => record.nonce = w

LeaseIn(r) == [generation |-> generation, fence |-> r.fence, doubt |-> r.doubt]

-----------------------------------------------------------------------------
(* How a call ends *)

\* A fault is counted, so that fault-free behaviours can be told apart.
Fault == faults < MaxFaults /\ faults' = faults + 1

\* The call ends without a value: reused, in doubt, LeaseLost, or an error.
\* A worker that is gone is the same: its caller is given nothing.
EndWithout(w) ==
    /\ step' = [step EXCEPT ![w] = "ended"]
    /\ lease' = [lease EXCEPT ![w] = NoLease]
    /\ expects' = [expects EXCEPT ![w] = 0]
    /\ UNCHANGED answer

EndWith(w, by) ==
    /\ step' = [step EXCEPT ![w] = "answered"]
    /\ lease' = [lease EXCEPT ![w] = NoLease]
    /\ expects' = [expects EXCEPT ![w] = 0]
    /\ answer' = [answer EXCEPT ![w] = [by |-> by, generation |-> generation]]

-----------------------------------------------------------------------------
(* Claiming *)

\* Answer granted: to a new claim, to a take-over, or again to the claim that
\* was granted already. A store that finds the claim's own lease lapsed may
\* do either: give the same lease again, or take over with the next fence.
ClaimGranted(w) ==
    /\ step[w] = "claiming"
    /\ \/ Mine(w) /\ record' = [record EXCEPT !.live = TRUE]
       \/ Claimable(w) /\ record' = Granted(w)
    /\ lease' = [lease EXCEPT ![w] = LeaseIn(record')]
    /\ step' = [step EXCEPT ![w] = "granted"]
    /\ expects' = [expects EXCEPT ![w] = 0]
    /\ UNCHANGED <<asks, claims, completions, saw, ledger, answer, generation, outcomes, again, counted, faults>>

\* Answer replay.
ClaimReplayed(w) ==
    /\ step[w] = "claiming"
    /\ record.status = "completed" /\ SameFingerprint(w)
    /\ EndWith(w, record.outcome.by)
    /\ UNCHANGED <<asks, record, claims, completions, saw, ledger, generation, outcomes, again, counted, faults>>

\* A failure for good, or a cancelled record, is the answer to every duplicate.
ClaimFailed(w) ==
    /\ step[w] = "claiming"
    /\ record.status = "final" /\ SameFingerprint(w)
    /\ EndWithout(w)
    /\ UNCHANGED <<asks, record, claims, completions, saw, ledger, generation, outcomes, again, counted, faults>>

\* An erased record answers every claim of its key with its tombstone, which
\* gives no value away. There is no fingerprint left to compare.
ClaimErased(w) ==
    /\ step[w] = "claiming"
    /\ record.status = "erased"
    /\ EndWithout(w)
    /\ UNCHANGED <<asks, record, claims, completions, saw, ledger, generation, outcomes, again, counted, faults>>

\* Answer reused, or in doubt where the policies do not allow a take-over.
\* The answer running is no action: the worker asks again, nothing changes.
ClaimDeclined(w) ==
    /\ step[w] = "claiming"
    /\ record.status \notin {"absent", "erased"}
    /\ ~Mine(w)
    /\ \/ ~SameFingerprint(w)
       \/ Doubtful /\ ~MayTakeOver(w)
    /\ EndWithout(w)
    /\ UNCHANGED <<asks, record, claims, completions, saw, ledger, generation, outcomes, again, counted, faults>>

\* The reply is lost: the worker stops waiting and will send the same claim
\* again. Without the nonce it goes by the record it saw when it asked.
ClaimReplyLost(w) ==
    /\ step[w] = "claiming"
    /\ w \notin claims
    /\ Fault
    /\ claims' = claims \cup {w}
    /\ expects' = [expects EXCEPT ![w] = IF UseNonce THEN 0 ELSE record.fence + 1]
    /\ UNCHANGED <<asks, record, step, lease, completions, saw, ledger, answer, generation, outcomes, again, counted>>

\* The store applies a claim that nobody waits for any more.
LateClaim(w) ==
    /\ w \in claims
    /\ claims' = claims \ {w}
    /\ record' = IF Claimable(w) THEN Granted(w) ELSE record
    /\ UNCHANGED <<asks, step, lease, expects, completions, saw, ledger, answer, generation, outcomes, again, counted, faults>>

\* Or it never arrived.
DropClaim(w) ==
    /\ w \in claims
    /\ claims' = claims \ {w}
    /\ UNCHANGED <<asks, record, step, lease, expects, completions, saw, ledger, answer, generation, outcomes, again, counted, faults>>

-----------------------------------------------------------------------------
(* Running *)

\* The effect. The handler hands its fence on, and the resource refuses a
\* number below the highest it has seen. (The resource knows nothing of
\* records: it does not forget when one expires.)
Effect(w) ==
    /\ step[w] = "granted"
    /\ UseFence => \A e \in ledger : e.fence <= lease[w].fence
    /\ ledger' = ledger \cup {[by |-> w, generation |-> lease[w].generation,
                               fence |-> lease[w].fence]}
    /\ step' = [step EXCEPT ![w] = "ran"]
    /\ UNCHANGED <<asks, record, lease, expects, claims, completions, saw, answer, generation, outcomes, again, counted, faults>>

\* A lease that lapsed and was not taken over can still be renewed.
Renew(w) ==
    /\ step[w] \in {"granted", "ran"}
    /\ Holds(w, lease[w].fence)
    /\ ~record.live
    /\ record' = [record EXCEPT !.live = TRUE]
    /\ UNCHANGED <<asks, step, lease, expects, claims, completions, saw, ledger, answer, generation, outcomes, again, counted, faults>>

Completed(by, shown) ==
    [record EXCEPT !.status = "completed", !.live = FALSE,
                   !.outcome = [by |-> by, generation |-> shown.generation,
                                fence |-> shown.fence]]

Complete(w) ==
    /\ step[w] = "ran"
    /\ Holds(w, lease[w].fence)
    /\ record' = Completed(w, lease[w])
    /\ outcomes' = outcomes \cup {[by |-> w, generation |-> generation]}
    /\ EndWith(w, w)
    /\ UNCHANGED <<asks, claims, completions, saw, ledger, generation, again, counted, faults>>

\* The reply is lost: the worker stops waiting and will complete again. If
\* the first one was applied, that is refused, and it finds its own outcome.
CompleteReplyLost(w) ==
    /\ step[w] = "ran"
    /\ Fault
    /\ completions' = completions \cup
           {[by |-> w, generation |-> lease[w].generation, fence |-> lease[w].fence]}
    /\ UNCHANGED <<asks, record, step, lease, expects, claims, saw, ledger, answer, generation, outcomes, again, counted>>

\* The store applies, or refuses, a completion nobody waits for any more.
LateCompletion ==
    /\ \E sent \in completions :
        /\ completions' = completions \ {sent}
        /\ IF Holds(sent.by, sent.fence)
           THEN /\ record' = Completed(sent.by, sent)
                /\ outcomes' = outcomes \cup {[by |-> sent.by, generation |-> generation]}
           ELSE UNCHANGED <<record, outcomes>>
    /\ UNCHANGED <<asks, step, lease, expects, claims, saw, ledger, answer, generation, again, counted, faults>>

\* Renew, complete or fail was refused. The worker stops, and gives the
\* recorded outcome if there is one for its fingerprint, else LeaseLost;
\* never its own value.
Refused(w) ==
    /\ step[w] \in {"granted", "ran"}
    /\ ~Holds(w, lease[w].fence)
    /\ IF record.status = "completed" /\ SameFingerprint(w)
       THEN EndWith(w, record.outcome.by)
       ELSE EndWithout(w)
    /\ UNCHANGED <<asks, record, claims, completions, saw, ledger, generation, outcomes, again, counted, faults>>

\* The handler raises one of retry_errors: nothing happened in this attempt.
\* If an earlier attempt is in doubt, the record stays in doubt.
FailRetryable(w) ==
    /\ step[w] = "granted"
    /\ Holds(w, lease[w].fence)
    /\ record' = [record EXCEPT
                     !.status = IF KeepDoubt /\ record.doubt THEN "in_doubt" ELSE "failed",
                     !.doubt = KeepDoubt /\ record.doubt,
                     !.live = FALSE, !.history = @ \cup Forgotten("attempt")]
    /\ EndWithout(w)
    /\ UNCHANGED <<asks, claims, completions, saw, ledger, generation, outcomes, again, counted, faults>>

\* The handler raises one of final_errors: that is its answer.
FailFinal(w) ==
    /\ step[w] \in {"granted", "ran"}
    /\ Holds(w, lease[w].fence)
    /\ record' = [record EXCEPT !.status = "final", !.live = FALSE,
                                !.history = @ \cup Forgotten("attempt")]
    /\ EndWithout(w)
    /\ UNCHANGED <<asks, claims, completions, saw, ledger, generation, outcomes, again, counted, faults>>

\* The handler raises anything else: nobody knows whether it happened.
FailInDoubt(w) ==
    /\ step[w] \in {"granted", "ran"}
    /\ Holds(w, lease[w].fence)
    /\ Fault
    /\ record' = [record EXCEPT !.status = "in_doubt", !.doubt = TRUE, !.live = FALSE,
                                !.history = @ \cup Forgotten("attempt")]
    /\ EndWithout(w)
    /\ UNCHANGED <<asks, claims, completions, saw, ledger, generation, outcomes, again, counted>>

-----------------------------------------------------------------------------
(* Operators *)

\* A statement that was not made yet has seen None; one that corrects has the
\* nonce of the record that its operator looked at; one that reached the store
\* has its own, and does nothing more. A reply that is lost changes nothing,
\* for nobody makes the same statement again.
Stated(s) ==
    [record EXCEPT !.status = "completed", !.live = FALSE, !.doubt = FALSE,
                   !.nonce = s, !.fence = record.fence + 1,
                   !.outcome = [by |-> s, generation |-> generation,
                                fence |-> record.fence + 1],
                   !.history = @ \cup Forgotten("attempt")
                                 \cup {Entry(record.fence + 1, "resolved")}]

\* The store takes over what is said. The fence and the nonce shut out whoever
\* may still run.
Take(s) ==
    /\ record' = Stated(s)
    /\ outcomes' = outcomes \cup {[by |-> s, generation |-> generation]}

\* Somebody ends a doubt by decision: it happened, and this came of it.
Resolve(s) ==
    /\ saw[s] = None
    /\ InDoubt
    /\ Take(s)
    /\ saw' = [saw EXCEPT ![s] = s]
    /\ UNCHANGED <<asks, step, lease, expects, claims, completions, ledger, answer, generation, again, counted, faults>>

\* Somebody looks at a value that was stated, and decides to correct it.
Look(s) ==
    /\ saw[s] = None
    /\ record.status = "completed" /\ record.nonce \in Statements
    /\ saw' = [saw EXCEPT ![s] = record.nonce]
    /\ UNCHANGED <<asks, record, step, lease, expects, claims, completions, ledger, answer, generation, outcomes, again, counted, faults>>

\* A correction replaces the outcome of the very record that was looked at.
\* There may be another by now: corrected by somebody else, erased, or of the
\* next generation.
Correctable(s) == record.status = "completed" /\ (UseNonce => record.nonce = saw[s])

\* It reaches the store now, or later. That it never does needs no action.
Correct(s) ==
    /\ saw[s] \notin {None, s}
    /\ IF Correctable(s) THEN Take(s) ELSE UNCHANGED <<record, outcomes>>
    /\ saw' = [saw EXCEPT ![s] = s]
    /\ UNCHANGED <<asks, step, lease, expects, claims, completions, ledger, answer, generation, again, counted, faults>>

\* Somebody cancels what runs, though its lease is live. The fence and the
\* nonce shut its holder out, which learns of it when it asks.
Forced(f) ==
    [record EXCEPT !.status = "final", !.live = FALSE, !.doubt = FALSE,
                   !.nonce = f, !.fence = record.fence + 1,
                   !.history = @ \cup Forgotten("attempt")
                                 \cup {Entry(record.fence + 1, "resolved")}]

Force(f) ==
    /\ saw[f] = None
    /\ record.status \in {"running", "in_doubt"}
    /\ record' = Forced(f)
    /\ saw' = [saw EXCEPT ![f] = f]
    /\ again' = again \cup {[generation |-> generation, fence |-> record.fence]}
    /\ UNCHANGED <<asks, step, lease, expects, claims, completions, ledger, answer, generation, outcomes, counted, faults>>

\* Somebody looks at what is final, and decides that it may run again.
LookAtFailure(r) ==
    /\ saw[r] = None
    /\ record.status = "final"
    /\ saw' = [saw EXCEPT ![r] = record.nonce]
    /\ UNCHANGED <<asks, record, step, lease, expects, claims, completions, ledger, answer, generation, outcomes, again, counted, faults>>

\* Only the very record that was looked at is reopened; what was in doubt
\* stays so.
Reopenable(r) == record.status = "final" /\ (UseNonce => record.nonce = saw[r])

Reopened(r) == [record EXCEPT !.status = "failed", !.nonce = r,
                              !.history = @ \cup {Entry(record.fence, "reopened")}]

Reopen(r) ==
    /\ saw[r] \notin {None, r}
    /\ IF Reopenable(r)
       THEN /\ record' = Reopened(r)
            /\ again' = again \cup {[generation |-> generation, fence |-> 0]}
       ELSE UNCHANGED <<record, again>>
    /\ saw' = [saw EXCEPT ![r] = r]
    /\ UNCHANGED <<asks, step, lease, expects, claims, completions, ledger, answer, generation, outcomes, counted, faults>>

-----------------------------------------------------------------------------
(* Consumers *)

\* An attempt was rolled back with its caller's transaction, and is counted
\* where the next one could begin. It asked for "this". Its reply may be lost,
\* so that it is sent a second time.
Countable(f) ==
    \/ record.status = "absent"
    \/ /\ record.status = "failed"
       /\ CompareFingerprint => record.fingerprint = "this"
       /\ UseNonce => record.nonce # f

WithFailure(f) ==
    IF record.status = "absent"
    THEN [Absent EXCEPT !.status = "failed", !.fence = 1, !.nonce = f,
                        !.fingerprint = "this", !.policy = "rerun",
                        !.history = {Entry(1, "attempt")}]
    ELSE [record EXCEPT !.nonce = f, !.fence = record.fence + 1,
                        !.history = @ \cup {Entry(record.fence + 1, "attempt")}]

Count(f) ==
    /\ counted[f] < 2
    /\ IF counted[f] = 0 THEN UNCHANGED faults ELSE Fault
    /\ record' = IF Countable(f) THEN WithFailure(f) ELSE record
    /\ counted' = [counted EXCEPT ![f] = @ + 1]
    /\ UNCHANGED <<asks, step, lease, expects, claims, completions, saw, ledger, answer, generation, outcomes, again>>

-----------------------------------------------------------------------------
(* Time and faults *)

Crash(w) ==
    /\ step[w] \in {"claiming", "granted", "ran"}
    /\ Fault
    /\ EndWithout(w)
    /\ UNCHANGED <<asks, record, claims, completions, saw, ledger, generation, outcomes, again, counted>>

\* A worker runs under the newest lease, or will learn when it asks again
\* that this lease is its own.
Attended ==
    \E w \in Workers :
        \/ /\ step[w] \in {"granted", "ran"}
           /\ lease[w].generation = generation
           /\ lease[w].fence = record.fence
        \/ step[w] = "claiming" /\ Mine(w)

\* The lease ends by the store's clock. A worker that attends to it did not
\* renew in time: it stalled, which is a fault, and it goes on all the same.
Lapse ==
    /\ record.status = "running" /\ record.live
    /\ IF Attended THEN Fault ELSE UNCHANGED faults
    /\ record' = [record EXCEPT !.live = FALSE]
    /\ UNCHANGED <<asks, step, lease, expects, claims, completions, saw, ledger, answer, generation, outcomes, again, counted>>

\* What may be personal is taken out of a settled record: what was asked for
\* and what came of it. The fence and the nonce stay. A failure that could
\* have been tried again is final from here on.
Erased ==
    [record EXCEPT !.status = "erased", !.outcome = None,
                   !.fingerprint = None,
                   !.history = @ \cup {Entry(record.fence, "erased")}]

Erase ==
    /\ record.status \in {"completed", "failed", "final"}
    /\ record' = Erased
    /\ UNCHANGED <<asks, step, lease, expects, claims, completions, saw, ledger, answer, generation, outcomes, again, counted, faults>>

\* Only settled records expire. A zombie may outlive keep_for, and so may
\* its completion. A claim on its way may not: keep_for is hours or more,
\* and the store's own limit on a statement is seconds.
Expire ==
    /\ record.status \in {"completed", "failed", "final", "erased"}
    /\ generation < MaxGenerations
    /\ claims = {}
    /\ record' = Absent
    /\ generation' = generation + 1
    /\ UNCHANGED <<asks, step, lease, expects, claims, completions, saw, ledger, answer, outcomes, again, counted, faults>>

-----------------------------------------------------------------------------

Over == \A w \in Workers : step[w] \in {"answered", "ended"}

\* All calls have ended. Without this action the end would count as deadlock;
\* with it a deadlock is a call that can never end.
Finished == Over /\ UNCHANGED vars

Next ==
    \/ \E w \in Workers :
        \/ ClaimGranted(w) \/ ClaimReplayed(w) \/ ClaimFailed(w) \/ ClaimErased(w)
        \/ ClaimDeclined(w)
        \/ ClaimReplyLost(w) \/ LateClaim(w) \/ DropClaim(w)
        \/ Effect(w) \/ Renew(w)
        \/ Complete(w) \/ CompleteReplyLost(w) \/ Refused(w)
        \/ FailRetryable(w) \/ FailFinal(w) \/ FailInDoubt(w)
        \/ Crash(w)
    \/ \E s \in Statements : \/ Resolve(s) \/ Look(s) \/ Correct(s)
    \/ \E f \in Forces : \/ Force(f)
    \/ \E r \in Reopenings : \/ LookAtFailure(r) \/ Reopen(r)
    \/ \E f \in Failures : \/ Count(f)
    \/ LateCompletion
    \/ Lapse
    \/ Erase
    \/ Expire
    \/ Finished

Spec     == Init /\ [][Next]_vars
FairSpec == Spec /\ WF_vars(Next)

Symmetry == Permutations(Workers) \cup Permutations(Statements)
            \cup Permutations(Forces) \cup Permutations(Reopenings)
            \cup Permutations(Failures)

-----------------------------------------------------------------------------
(* Invariants; I1 to I10 are the names the simulator uses too. *)

Answered == {w \in Workers : answer[w] # None}

\* All values given for one record are the same value; where a person stated
\* one, all were stated.
I2_AnswersEqual ==
    \A v, w \in Answered :
        answer[v].generation = answer[w].generation =>
            \/ answer[v] = answer[w]
            \/ {answer[v].by, answer[w].by} \subseteq Statements

\* A value is given as it is recorded at that instant: after a correction, the
\* corrected one.
I2_AnswersCurrent ==
    [][\A w \in Workers :
          answer'[w] # answer[w] => answer'[w].by = record'.outcome.by]_vars

\* A value that was given is a recorded outcome, and its effect happened or a
\* person stated so.
I3_AnswersRecorded ==
    \A w \in Answered :
        /\ answer[w] \in outcomes
        /\ \/ answer[w].by \in Statements
           \/ \E e \in ledger : e.by = answer[w].by /\ e.generation = answer[w].generation

\* What was stated last is what is recorded.
I3_StatementsRecorded ==
    record.status = "completed" /\ record.nonce \in Statements =>
        record.outcome.by = record.nonce

\* What is recorded was shown under the newest lease of this very record:
\* the completion of a zombie changes nothing.
I4_NewestLeaseCompletes ==
    record.status = "completed" =>
        /\ record.outcome.generation = generation
        /\ record.outcome.fence = record.fence

\* Fences rise for as long as the record lives, with every new holder. Who
\* reopens holds nothing: the fence rises with the next claim.
I4_FencesRise ==
    [][generation' = generation =>
          /\ record'.fence >= record.fence
          /\ record'.nonce # record.nonce =>
                 \/ record'.fence > record.fence
                 \/ record'.nonce \in Reopenings /\ record'.status = "failed"]_vars

\* A lease that was ended by force records nothing any more.
I4_ForcedRecordsNothing ==
    record.status = "completed" /\ record.outcome.by \in Workers =>
        [generation |-> generation, fence |-> record.outcome.fence] \notin again

\* Only a failure for good is reopened, and the very one that was looked at:
\* what is completed never runs again. Its fence, doubt and fingerprint stay.
I7_ReopenedWhereSeen ==
    [][\A r \in Reopenings :
          record'.nonce = r /\ record.nonce # r =>
              /\ record.status = "final" /\ record.nonce = saw[r]
              /\ record' = Reopened(r)
              /\ record'.doubt = record.doubt /\ record'.fence = record.fence]_vars

\* An attempt is counted in no record that runs, is over, or is another
\* request's, and not twice in a row.
I4_CountedWhereOpen ==
    [][\A f \in Failures :
          counted'[f] # counted[f] /\ record' # record =>
              /\ record.status \in {"absent", "failed"} /\ record.nonce # f
              /\ record.status = "failed" => record.fingerprint = "this"
              /\ record'.doubt = record.doubt]_vars

\* What is stated ends a doubt, or replaces what was stated before in the
\* record that was looked at: neither a live lease nor what a handler gave.
I4_StatedWhereSeen ==
    [][\A s \in Statements :
          record'.nonce = s /\ record.nonce # s =>
              \/ InDoubt
              \/ record.status = "completed" /\ record.nonce = saw[s]]_vars

\* Another fingerprint never runs under the key and never replays.
I5_OneFingerprint ==
    /\ \A d, e \in ledger :
           d.generation = e.generation =>
               asks[d.by].fingerprint = asks[e.by].fingerprint
    /\ record.status = "completed" /\ record.outcome.by \in Workers =>
           asks[record.outcome.by].fingerprint = record.fingerprint
    /\ \A w \in Answered :
           /\ answer[w].by \in Workers =>
                  asks[answer[w].by].fingerprint = asks[w].fingerprint
           /\ \A v \in Answered :
                  answer[v].generation = answer[w].generation =>
                      asks[v].fingerprint = asks[w].fingerprint

\* At most one outcome is ever recorded for a record, but for corrections of
\* what was stated.
I7_OneOutcome ==
    \A o, p \in outcomes :
        o.generation = p.generation =>
            o = p \/ {o.by, p.by} \subseteq Statements

\* Once completed is seen, nothing else is seen until the record is erased or
\* expires; what was stated may be stated anew.
I7_CompletedStays ==
    [][record.status = "completed" =>
          \/ record' \in {record, Erased, Absent}
          \/ record.nonce \in Statements /\ \E s \in Statements : record' = Stated(s)]_vars

\* An erased record stays as it is until it expires: nobody runs meanwhile.
I7_ErasedStays ==
    [][record.status = "erased" => record' = record \/ record' = Absent]_vars

\* From an erased record nobody can tell, or check a guess at, what was asked
\* for and what came of it.
Erased_NothingLeft ==
    record.status = "erased" => record.fingerprint = None /\ record.outcome = None

\* Once a worker recorded the outcome, no effect of that record happens any
\* more. What a person states does not show the resource a fence, so a zombie
\* may come after it.
I7_NoEffectAfterOutcome ==
    [][\A e \in ledger' \ ledger :
          ~ \E o \in outcomes : o.generation = e.generation /\ o.by \in Workers]_vars

\* Every call ends, with at most MaxFaults faults and no more: no key is
\* stuck. (Checked with FairSpec, in Settles.cfg.)
I8_CallsEnd == <>Over

\* An operator decided that it may happen again, whatever has happened.
LetAgain(g) == \E a \in again : a.generation = g

\* Without faults the effect happens at most once, unless it was let happen
\* again. (So in the two below.)
I9_FaultFreeOnce ==
    faults = 0 =>
        \A d, e \in ledger :
            d.generation = e.generation /\ ~LetAgain(d.generation) => d = e

\* An effect that repeats another was told so: attempt.in_doubt.
I10_RepeatsAreTold ==
    [][\A e \in ledger' \ ledger :
          (\E d \in ledger : d.generation = e.generation) =>
              lease[e.by].doubt \/ LetAgain(e.generation)]_vars

\* Every attempt and decision before the present one is told, and so is the
\* present one where it ended without a value. It is told once: a fence is that
\* of one attempt, or of one decision.
Ends == {"attempt", "taken_over", "resolved"}

History_Complete ==
    /\ \A f \in 1..MaxFence :
           f < record.fence => \E h \in record.history : h.fence = f /\ h.kind \in Ends
    /\ record.status \in {"failed", "final", "in_doubt"} =>
           \E h \in record.history : h.fence = record.fence /\ h.kind \in Ends

History_Once ==
    \A h, i \in record.history :
        h.fence = i.fence /\ {h.kind, i.kind} \subseteq Ends => h = i

\* Nothing is told of an attempt that runs.
History_NothingEarly ==
    \A h \in record.history :
        h.fence < record.fence \/ (h.fence = record.fence /\ record.status # "running")

\* Whoever runs under hold is the only one: the effect happens at most once.
Hold_AtMostOnce ==
    \A d, e \in ledger :
        /\ d.generation = e.generation /\ ~LetAgain(d.generation)
        /\ asks[d.by].policy = "hold"
        => d = e

=============================================================================
