------------------------------- MODULE Outbox -------------------------------
(***************************************************************************)
(* The outbox on PostgreSQL, and relays that read it by snapshots.         *)
(*                                                                         *)
(* A writer is a transaction with one event. It gets its number first,     *)
(* then the position of its event, and commits or rolls back whenever it   *)
(* likes, so that positions are not in the order of commits. A snapshot    *)
(* names the transactions that run below the highest number that has       *)
(* ended, and no others: one that runs may be above it.                    *)
(*                                                                         *)
(* A relay opens the cursor, which is a write, reads what its snapshot     *)
(* sees and the one before did not, publishes, and saves the cursor, if    *)
(* nobody else has opened it since. Readings that find nothing save        *)
(* nothing. The scan begins at a floor; below it only those are looked for *)
(* that ran in the snapshot before. What is published is deleted at some   *)
(* time. A relay may die wherever it stands.                               *)
(*                                                                         *)
(* `mistake' names one mistake that could be made, or none. It is here to  *)
(* show that the invariants notice each of them.                           *)
(***************************************************************************)
EXTENDS Naturals, TLC

CONSTANTS
    Writers,
    Relays,
    None,       \* nobody
    MaxOpens,   \* how often relays may open the cursor
    MaxWrites,  \* how often they may open or save it
    Mistakes    \* {"none"}, or the mistakes that are looked for

VARIABLES
    writer,     \* writer -> its state, the number of its transaction, the position of its event
    numbers,    \* the last number that was given away
    ended,      \* the highest number of a transaction that has ended
    positions,  \* the last position that was given away
    cursor,     \* the newest row of the log: its number, who opened it, the snapshot seen, the floor
    opens,      \* how often it was opened
    relay,      \* relay -> where it stands, and what it remembers
    published,  \* the writers whose events were published
    deleted,    \* and those whose events are not in the outbox any more
    wentBack,   \* whether a cursor was ever saved that sees less than the one before
    mistake

vars == <<writer, numbers, ended, positions, cursor, opens, relay, published, deleted, wentBack, mistake>>

Nothing == [below |-> 1, named |-> {}]
Idle    == [is |-> "idle", number |-> 0, seen |-> Nothing, floor |-> 0, safe |-> 0, top |-> 0,
            until |-> Nothing, next |-> 0, got |-> {}]

Init ==
    /\ writer = [w \in Writers |-> [is |-> "new", number |-> 0, position |-> 0]]
    /\ numbers = 0 /\ ended = 0 /\ positions = 0 /\ opens = 0
    /\ cursor = [number |-> 0, owner |-> None, seen |-> Nothing, floor |-> 0]
    /\ relay = [r \in Relays |-> Idle]
    /\ published = {} /\ deleted = {} /\ wentBack = FALSE
    /\ mistake \in Mistakes

Symmetry == Permutations(Writers) \cup Permutations(Relays)

-----------------------------------------------------------------------------

Max(a, b) == IF a > b THEN a ELSE b
Running   == {w \in Writers : writer[w].is \in {"numbered", "added"}}
Committed == {w \in Writers : writer[w].is = "committed"}
Snapshot  == [below |-> ended + 1, named |-> {writer[w].number : w \in {v \in Running : writer[v].number <= ended}}]

Sees(snapshot, w) == writer[w].number < snapshot.below /\ writer[w].number \notin snapshot.named

\* Whether a reading that begins at this cursor finds the event of w, once its snapshot sees it.
Finds(seen, floor, w) ==
    \/ writer[w].position > floor /\ ~Sees(seen, w)
    \/ writer[w].position <= floor /\ writer[w].number \in seen.named /\ mistake # "late ones are not looked for"

Number(w) ==
    /\ writer[w].is = "new"
    /\ numbers' = numbers + 1
    /\ writer' = [writer EXCEPT ![w].is = "numbered", ![w].number = numbers + 1]
    /\ UNCHANGED <<ended, positions, cursor, opens, relay, published, deleted, wentBack, mistake>>

Add(w) ==
    /\ writer[w].is = "numbered"
    /\ positions' = positions + 1
    /\ writer' = [writer EXCEPT ![w].is = "added", ![w].position = positions + 1]
    /\ UNCHANGED <<numbers, ended, cursor, opens, relay, published, deleted, wentBack, mistake>>

End(w) ==
    /\ writer[w].is = "added"
    /\ ended' = Max(ended, writer[w].number)
    /\ \E is \in {"committed", "gone"} : writer' = [writer EXCEPT ![w].is = is]
    /\ UNCHANGED <<numbers, positions, cursor, opens, relay, published, deleted, wentBack, mistake>>

\* A write of a relay: a transaction that begins and ends.
Write ==
    /\ cursor.number < MaxWrites
    /\ numbers' = numbers + 1
    /\ ended' = numbers + 1

Open(r) ==
    /\ relay[r].is = "idle" /\ opens < MaxOpens
    /\ Write
    /\ opens' = opens + 1
    /\ cursor' = [cursor EXCEPT !.number = @ + 1, !.owner = r]
    /\ relay' = [relay EXCEPT ![r] = [Idle EXCEPT !.is = "open", !.number = cursor.number + 1, !.seen = cursor.seen,
                                                  !.floor = cursor.floor, !.safe = positions, !.top = positions]]
    /\ UNCHANGED <<writer, positions, published, deleted, wentBack, mistake>>

Found(r) ==
    LET there == IF mistake = "what runs is read" THEN Committed \cup {w \in Running : writer[w].position > 0}
                                                  ELSE Committed
        mine  == there \ deleted
    IN  IF mistake = "the cursor goes by position"
        THEN {w \in mine : writer[w].position > relay[r].floor}
        ELSE {w \in mine : Finds(relay[r].seen, relay[r].floor, w)}

\* The floor that goes with the snapshot that is taken now.
NextFloor(r) ==
    CASE mistake = "the floor is read with the snapshot" -> positions
      [] mistake = "no write before the snapshot" -> Max(relay[r].top, relay[r].floor)
      [] mistake = "the cursor goes by position" ->
            IF Found(r) = {} THEN relay[r].floor ELSE CHOOSE p \in {writer[w].position : w \in Found(r)} :
                                                       \A w \in Found(r) : writer[w].position <= p
      [] OTHER -> Max(relay[r].safe, relay[r].floor)

IsOwner(r) == cursor.owner = r /\ cursor.number = relay[r].number

\* Whoever was overtaken reads nothing, and stays where it is.
Read(r) ==
    /\ relay[r].is = "open"
    /\ IsOwner(r) \/ mistake = "who was overtaken goes on"
    /\ LET got == IF IsOwner(r) THEN Found(r) ELSE {}
       IN  relay' = IF got # {}
                    THEN [relay EXCEPT ![r].is = "read", ![r].top = positions, ![r].got = got,
                                       ![r].until = Snapshot, ![r].next = NextFloor(r)]
                    ELSE [relay EXCEPT ![r].top = positions, ![r].seen = Snapshot, ![r].floor = NextFloor(r)]
    /\ UNCHANGED <<writer, numbers, ended, positions, cursor, opens, published, deleted, wentBack, mistake>>

Publish(r) ==
    /\ relay[r].is = (IF mistake = "saved before it is published" THEN "saved" ELSE "read")
    /\ published' = published \cup relay[r].got
    /\ relay' = [relay EXCEPT ![r].is = IF @ = "saved" THEN "open" ELSE "published", ![r].got = {}]
    /\ UNCHANGED <<writer, numbers, ended, positions, cursor, opens, deleted, wentBack, mistake>>

Save(r) ==
    /\ relay[r].is = (IF mistake = "saved before it is published" THEN "read" ELSE "published")
    /\ IF IsOwner(r) \/ mistake = "no fence"
       THEN /\ Write
            /\ cursor' = [cursor EXCEPT !.number = @ + 1, !.seen = relay[r].until, !.floor = relay[r].next]
            /\ wentBack' = (wentBack \/ relay[r].until.below < cursor.seen.below)
            /\ relay' = [relay EXCEPT ![r].is = IF mistake = "saved before it is published" THEN "saved" ELSE "open",
                                      ![r].number = cursor.number + 1, ![r].seen = relay[r].until,
                                      ![r].floor = relay[r].next, ![r].safe = relay[r].top,
                                      ![r].until = Nothing, ![r].next = 0]
       ELSE /\ relay' = [relay EXCEPT ![r] = Idle]
            /\ UNCHANGED <<numbers, ended, cursor, wentBack>>
    /\ UNCHANGED <<writer, positions, opens, published, deleted, mistake>>

\* Deletes what is published, as far as this relay knows.
Purge(r) ==
    /\ relay[r].is = "open"
    /\ deleted' = deleted \cup
        {w \in Committed : writer[w].position <= relay[r].floor /\ Sees(relay[r].seen, w)}
    /\ deleted' # deleted
    /\ UNCHANGED <<writer, numbers, ended, positions, cursor, opens, relay, published, wentBack, mistake>>

Crash(r) ==
    /\ relay[r].is # "idle"
    /\ relay' = [relay EXCEPT ![r] = Idle]
    /\ UNCHANGED <<writer, numbers, ended, positions, cursor, opens, published, deleted, wentBack, mistake>>

\* Nobody has to go on.
Rest == UNCHANGED vars

Next ==
    \/ Rest
    \/ \E w \in Writers : Number(w) \/ Add(w) \/ End(w)
    \/ \E r \in Relays : Open(r) \/ Read(r) \/ Publish(r) \/ Save(r) \/ Purge(r) \/ Crash(r)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------

NothingUncommitted == published \subseteq Committed

\* What is committed is published, or is there and found by whoever opens the cursor next.
NothingLost ==
    \A w \in Committed \ published :
        /\ w \notin deleted
        /\ IF mistake = "the cursor goes by position" THEN writer[w].position > cursor.floor
                                                       ELSE Finds(cursor.seen, cursor.floor, w)

NeverBack == ~wentBack

Right == mistake = "none"
Outbox_NothingUncommitted == Right => NothingUncommitted
Outbox_NothingLost        == Right => NothingLost
Outbox_NeverBack          == Right => NeverBack

\* Each of these has to be violated: the mistake is noticed.
Unnoticed(what) == ~(mistake = what /\ ~(NothingUncommitted /\ NothingLost /\ NeverBack))
Unnoticed_Position  == Unnoticed("the cursor goes by position")
Unnoticed_Floor     == Unnoticed("the floor is read with the snapshot")
Unnoticed_NoWrite   == Unnoticed("no write before the snapshot")
Unnoticed_Late      == Unnoticed("late ones are not looked for")
Unnoticed_Running   == Unnoticed("what runs is read")
Unnoticed_Early     == Unnoticed("saved before it is published")
Unnoticed_NoFence   == Unnoticed("no fence")
Unnoticed_Overtaken == Unnoticed("who was overtaken goes on")
=============================================================================
