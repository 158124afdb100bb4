------------------------------- MODULE Batch --------------------------------
(***************************************************************************)
(* A batch: pages that are handed out, items that run once, rows and       *)
(* counts that follow the records of the items.                            *)
(*                                                                         *)
(* A worker takes the next page, or one that is not done, by a claim on    *)
(* the page and its round. It reads which items are pending, claims each,  *)
(* ends its record together with the effect, then notes in the row of the  *)
(* item what the record says; the counts of the page change with the rows. *)
(* When all that it read is noted it completes the claim of the page, and  *)
(* then marks the page as done if the counts say so, or else begins the    *)
(* next round.                                                             *)
(*                                                                         *)
(* A lease may end at any time, so that two workers are on one page, and a *)
(* worker may die wherever it stands. A person may have the items run      *)
(* again that failed, at any time, even while the batch is being ended.    *)
(*                                                                         *)
(* `mistake' names one mistake that could be made, or none. It is here to  *)
(* show that the invariants notice each of them.                           *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Workers,
    Items,      \* 1, 2 and so on; two of them are a page
    Pages,      \* how many pages there are
    None,       \* nobody
    MaxEnds,    \* how often leases may end and workers may die
    MaxRetries, \* how often failed items are run again
    Mistakes    \* {"none"}, or the mistakes that are looked for

VARIABLES
    record,     \* item -> what its record says, and who runs it
    row,        \* item -> what its row says
    effects,    \* item -> how often its effect happened
    page,       \* page -> whether it is done, its round, its counts, and the claim of this round
    next,       \* the next page to be handed out
    worker,     \* worker -> where it stands
    state,      \* of the batch
    reopened,   \* how often it was opened again
    ends,       \* how many leases have ended, and workers died
    mistake

vars == <<record, row, effects, page, next, worker, state, reopened, ends, mistake>>

Idle == [is |-> "idle", page |-> 0, round |-> 0, todo |-> {}, item |-> None, saw |-> 0]

Init ==
    /\ record = [i \in Items |-> [is |-> "absent", by |-> None]]
    /\ row = [i \in Items |-> "pending"]
    /\ effects = [i \in Items |-> 0]
    /\ page = [p \in 1..Pages |-> [done |-> FALSE, round |-> 0, completed |-> 0, failed |-> 0,
                                   claim |-> "absent", by |-> None]]
    /\ next = 1
    /\ worker = [w \in Workers |-> Idle]
    /\ state = "running" /\ reopened = 0 /\ ends = 0
    /\ mistake \in Mistakes

Symmetry == Permutations(Workers)

-----------------------------------------------------------------------------

PageOf[i \in Items] == (i + 1) \div 2
On(p)    == {i \in Items : PageOf[i] = p}
Total(p) == Cardinality(On(p))

\* The claim is of one round: a page that is in another round by now has another record.
Holds(w) == LET p == worker[w].page IN page[p].round = worker[w].round /\ page[p].by = w /\ page[p].claim = "running"

OpenPage(w, p) ==
    /\ page' = [page EXCEPT ![p].claim = "running", ![p].by = w]
    /\ worker' = [worker EXCEPT ![w] = [Idle EXCEPT !.is = "page", !.page = p, !.round = page[p].round,
                                                    !.todo = {i \in On(p) : row[i] = "pending"}]]

Take(w) ==
    /\ worker[w].is = "idle" /\ state = "running" /\ next <= Pages
    /\ next' = next + 1
    /\ OpenPage(w, next)
    /\ UNCHANGED <<record, row, effects, state, reopened, ends, mistake>>

\* A page that was handed out and is not done, and whose claim is free: never made, let go of, or without a lease.
TakeOver(w) ==
    /\ worker[w].is = "idle" /\ state = "running" /\ mistake # "nobody looks for what was left"
    /\ \E p \in 1..(next - 1) :
        /\ ~page[p].done /\ page[p].claim = "absent"
        /\ OpenPage(w, p)
    /\ UNCHANGED <<record, row, effects, next, state, reopened, ends, mistake>>

\* The claim of this round is completed and the page is not done: whoever completed it died in between.
FinishFor(w) ==
    /\ worker[w].is = "idle" /\ state = "running"
    /\ \E p \in 1..(next - 1) :
        /\ ~page[p].done /\ page[p].claim = "completed"
        /\ worker' = [worker EXCEPT ![w] = [Idle EXCEPT !.is = "finishing", !.page = p, !.round = page[p].round]]
    /\ UNCHANGED <<record, row, effects, page, next, state, reopened, ends, mistake>>

\* The claim of an item is granted where there is no record, or nobody runs it any more.
Begin(w) ==
    /\ worker[w].is = "page"
    /\ \E i \in worker[w].todo :
        IF record[i].is = "absent"
        THEN /\ record' = [record EXCEPT ![i] = [is |-> "running", by |-> w]]
             /\ worker' = [worker EXCEPT ![w].is = "item", ![w].item = i]
        ELSE /\ record[i].is \in {"completed", "failed"}  \* a replay
             /\ worker' = [worker EXCEPT ![w].is = "noting", ![w].item = i]
             /\ UNCHANGED record
    /\ UNCHANGED <<row, effects, page, next, state, reopened, ends, mistake>>

\* The effect commits with the end of the record. Whoever lost the record writes nothing.
EndItem(w) ==
    LET i == worker[w].item IN
    /\ worker[w].is = "item"
    /\ IF record[i] = [is |-> "running", by |-> w] \/ mistake = "no fence"
       THEN \E end \in {"completed", "failed"} :
            /\ record' = [record EXCEPT ![i] = [is |-> end, by |-> None]]
            /\ effects' = [effects EXCEPT ![i] = @ + (IF end = "completed" THEN 1 ELSE 0)]
            /\ worker' = [worker EXCEPT ![w].is = "noting"]
       ELSE /\ worker' = [worker EXCEPT ![w].is = "page", ![w].item = None]
            /\ UNCHANGED <<record, effects>>
    /\ UNCHANGED <<row, page, next, state, reopened, ends, mistake>>

\* What a row may change to: nothing that is completed changes, and a failure gives way to a success alone.
Moves(from, to) == (from = "pending" /\ to # "pending") \/ (from = "failed" /\ to = "completed")

Counted(p, from, to) ==
    [p EXCEPT !.completed = @ + (IF to = "completed" THEN 1 ELSE 0),
              !.failed = @ + (IF to = "failed" THEN 1 ELSE 0) - (IF from = "failed" /\ @ > 0 THEN 1 ELSE 0)]

\* The end that this worker saw, which a late one says of a record that was opened again since.
Note(w) ==
    LET i == worker[w].item
        says == IF record[i].is \in {"completed", "failed"} THEN record[i].is ELSE "pending"
        p == PageOf[i]
    IN
    /\ worker[w].is = "noting"
    /\ IF says # "pending" /\ Moves(row[i], says)
       THEN /\ row' = [row EXCEPT ![i] = says]
            /\ page' = [page EXCEPT ![p] = Counted(@, row[i], says)]
       ELSE /\ UNCHANGED row
            /\ page' = IF mistake = "every end is counted" /\ says # "pending"
                       THEN [page EXCEPT ![p] = Counted(@, row[i], says)] ELSE page
    /\ worker' = [worker EXCEPT ![w].is = "page", ![w].item = None,
                                ![w].todo = IF says = "pending" THEN @ ELSE @ \ {i}]
    /\ UNCHANGED <<record, effects, next, state, reopened, ends, mistake>>

\* The row first, and its record afterwards.
NoteEarly(w) ==
    LET i == worker[w].item IN
    /\ mistake = "the row comes first" /\ worker[w].is = "item" /\ row[i] = "pending"
    /\ row' = [row EXCEPT ![i] = "completed"]
    /\ page' = [page EXCEPT ![PageOf[i]] = Counted(@, "pending", "completed")]
    /\ UNCHANGED <<record, effects, next, worker, state, reopened, ends, mistake>>

CompletePage(w) ==
    LET p == worker[w].page IN
    /\ worker[w].is = "page" /\ worker[w].todo = {}
    /\ IF Holds(w)
       THEN /\ page' = [page EXCEPT ![p].claim = "completed", ![p].by = None]
            /\ worker' = [worker EXCEPT ![w].is = "finishing"]
       ELSE /\ worker' = [worker EXCEPT ![w] = Idle]
            /\ UNCHANGED page
    /\ UNCHANGED <<record, row, effects, next, state, reopened, ends, mistake>>

\* Of this round alone: done if none is pending by the counts, or else another round, with a claim of its own.
FinishPage(w) ==
    LET p == worker[w].page
        is_over == page[p].completed + page[p].failed >= Total(p) \/ mistake = "done without counting"
    IN
    /\ worker[w].is = "finishing"
    /\ page' = IF page[p].round # worker[w].round \/ page[p].done THEN page
               ELSE IF is_over THEN [page EXCEPT ![p].done = TRUE]
               ELSE [page EXCEPT ![p].round = @ + 1, ![p].claim = "absent", ![p].by = None]
    /\ worker' = [worker EXCEPT ![w] = Idle]
    /\ UNCHANGED <<record, row, effects, next, state, reopened, ends, mistake>>

AllDone == next > Pages /\ \A p \in 1..Pages : page[p].done

LookForEnd(w) ==
    /\ worker[w].is = "idle" /\ state = "running" /\ AllDone
    /\ worker' = [worker EXCEPT ![w] = [Idle EXCEPT !.is = "ending", !.saw = reopened]]
    /\ UNCHANGED <<record, row, effects, page, next, state, reopened, ends, mistake>>

EndBatch(w) ==
    /\ worker[w].is = "ending"
    /\ state' = IF state = "running" /\ (reopened = worker[w].saw \/ mistake = "ended without looking again")
                THEN "completed" ELSE state
    /\ worker' = [worker EXCEPT ![w] = Idle]
    /\ UNCHANGED <<record, row, effects, page, next, reopened, ends, mistake>>

\* First the records of items that failed are opened, then their rows; here one item at a time, as one step.
Retry(i) ==
    LET p == PageOf[i] IN
    /\ reopened < MaxRetries /\ row[i] = "failed" /\ record[i].is = "failed"
    /\ record' = [record EXCEPT ![i] = [is |-> "absent", by |-> None]]
    /\ row' = [row EXCEPT ![i] = "pending"]
    /\ page' = [page EXCEPT ![p].failed = @ - 1, ![p].done = FALSE,
                            ![p].round = @ + (IF page[p].done THEN 1 ELSE 0),
                            ![p].claim = IF page[p].done THEN "absent" ELSE @,
                            ![p].by = IF page[p].done THEN None ELSE @]
    /\ state' = "running"
    /\ reopened' = reopened + 1
    /\ UNCHANGED <<effects, next, worker, ends, mistake>>

\* The lease of a page ends while its worker goes on; or that of an item.
LosePage(p) ==
    /\ ends < MaxEnds /\ page[p].claim = "running"
    /\ page' = [page EXCEPT ![p].claim = "absent", ![p].by = None]
    /\ ends' = ends + 1
    /\ UNCHANGED <<record, row, effects, next, worker, state, reopened, mistake>>

LoseItem(i) ==
    /\ ends < MaxEnds /\ record[i].is = "running"
    /\ record' = [record EXCEPT ![i] = [is |-> "absent", by |-> None]]
    /\ ends' = ends + 1
    /\ UNCHANGED <<row, effects, page, next, worker, state, reopened, mistake>>

\* All that it holds are leases, which end.
Die(w) ==
    /\ ends < MaxEnds /\ worker[w].is # "idle"
    /\ worker' = [worker EXCEPT ![w] = Idle]
    /\ record' = [i \in Items |-> IF record[i] = [is |-> "running", by |-> w] THEN [is |-> "absent", by |-> None]
                                  ELSE record[i]]
    /\ page' = [p \in 1..Pages |-> IF page[p].claim = "running" /\ page[p].by = w
                                   THEN [page[p] EXCEPT !.claim = "absent", !.by = None] ELSE page[p]]
    /\ ends' = ends + 1
    /\ UNCHANGED <<row, effects, next, state, reopened, mistake>>

\* Whoever has nothing to do comes back later; only a completed batch needs nobody.
Rest == state = "completed" /\ UNCHANGED vars

Next ==
    \/ Rest
    \/ \E w \in Workers : Take(w) \/ TakeOver(w) \/ FinishFor(w) \/ Begin(w) \/ EndItem(w) \/ NoteEarly(w) \/ Note(w)
                          \/ CompletePage(w) \/ FinishPage(w) \/ LookForEnd(w) \/ EndBatch(w) \/ Die(w)
    \/ \E i \in Items : Retry(i) \/ LoseItem(i)
    \/ \E p \in 1..Pages : LosePage(p)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------

EffectsOnce == \A i \in Items : effects[i] <= 1 /\ (effects[i] = 1 <=> record[i].is = "completed")

\* The counts are those of the rows, after any history.
CountsOfRows ==
    \A p \in 1..Pages : /\ page[p].completed = Cardinality({i \in On(p) : row[i] = "completed"})
                        /\ page[p].failed = Cardinality({i \in On(p) : row[i] = "failed"})

\* A row may be behind its record, and never ahead of it.
RowsFollow == \A i \in Items : row[i] = "completed" => record[i].is = "completed"

\* A page that is done has no pending item, and a batch that is completed has none at all, and its rows are its records.
NothingLeft ==
    /\ \A i \in Items : page[PageOf[i]].done => row[i] # "pending"
    /\ state = "completed" => \A i \in Items : row[i] = record[i].is

Right == mistake = "none"
Batch_EffectsOnce  == Right => EffectsOnce
Batch_CountsOfRows == Right => CountsOfRows
Batch_RowsFollow   == Right => RowsFollow
Batch_NothingLeft  == Right => NothingLeft

\* Each of these has to be violated: the mistake is noticed. One more leaves the batch stuck,
\* which TLC calls a deadlock.
Unnoticed(what) == ~(mistake = what /\ ~(EffectsOnce /\ CountsOfRows /\ RowsFollow /\ NothingLeft))
Unnoticed_NoFence     == Unnoticed("no fence")
Unnoticed_EveryEnd    == Unnoticed("every end is counted")
Unnoticed_RowFirst    == Unnoticed("the row comes first")
Unnoticed_NotCounted  == Unnoticed("done without counting")
Unnoticed_NotAgain    == Unnoticed("ended without looking again")
=============================================================================
