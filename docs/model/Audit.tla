-------------------------------- MODULE Audit --------------------------------
(***************************************************************************)
(* The audit chain of one scope: a head, entries, seals, and anchors that  *)
(* are kept elsewhere. Each writer appends one entry: it looks at the      *)
(* head, and moves it together with its entry if the head is still what it *)
(* saw. A reply may be lost; then the writer sends the same entry again.   *)
(*                                                                         *)
(* A hash is the sequence of what it covers, so that no two are equal by   *)
(* chance: that of an entry is the hash before, its number, id and instant. *)
(*                                                                         *)
(* Once, somebody tampers with the tables. `owed' is what has to notice it *)
(* from then on: the look at the tables, also where head and later hashes  *)
(* were made anew, if a seal covers them; or an anchor, where all of it    *)
(* was. Nothing is owed where neither was there.                           *)
(*                                                                         *)
(* `mistake' names one mistake that a store or the look could make, or     *)
(* none. It is here to show that the invariants notice each of them.       *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    Writers,    \* each appends one entry
    Eve,        \* whose entries nobody wrote
    MaxLost,    \* how many replies are lost
    Mistakes    \* {"none"}, or the mistakes that are looked for

VARIABLES
    head,       \* number and hash of the last entry, the last that is sealed, and the first that is kept
    entries,    \* what is in the table
    seals,      \* numbers and hashes
    anchors,    \* seals that were written down elsewhere
    writers,    \* writer -> what it does, and the head that it saw
    lost,       \* how many replies were lost
    owed,       \* what has to notice that somebody tampered
    mistake

vars == <<head, entries, seals, anchors, writers, lost, owed, mistake>>

Origin == <<>>
HashOf(previous, seq, id, at) ==
    IF mistake = "the hash before is not hashed" THEN <<seq, id, at>>
    ELSE Append(previous, <<seq, id, at>>)
\* The instant: whoever appends again what was cut off appends something else.
Now == IF owed = "nothing happened" THEN 0 ELSE 1
Entry(previous, seq, id) ==
    [seq |-> seq, id |-> id, at |-> Now, previous |-> previous, hash |-> HashOf(previous, seq, id, Now)]
At(seq) == CHOOSE e \in entries : e.seq = seq
Has(seq) == \E e \in entries : e.seq = seq

Init ==
    /\ head = [seq |-> 0, hash |-> Origin, sealed |-> 0, kept |-> 1]
    /\ entries = {} /\ seals = {} /\ anchors = {}
    /\ writers = [w \in Writers |-> [is |-> "idle", saw |-> 0, hash |-> Origin, told |-> FALSE]]
    /\ lost = 0
    /\ owed = "nothing happened"
    /\ mistake \in Mistakes

TypeOK ==
    /\ head.seq \in Nat /\ head.sealed \in 0..head.seq /\ head.kept \in 1..(head.sealed + 1)
    /\ \A w \in Writers : writers[w].is \in {"idle", "looked", "moved", "done"}
    /\ lost \in 0..MaxLost
    /\ owed \in {"nothing happened", "a look", "an anchor", "nothing"}
    /\ mistake \in Mistakes

-----------------------------------------------------------------------------

Look(w) ==
    /\ writers[w].is = "idle"
    /\ writers' = [writers EXCEPT ![w].is = "looked", ![w].saw = head.seq, ![w].hash = head.hash]
    /\ UNCHANGED <<head, entries, seals, anchors, lost, owed, mistake>>

\* The entry is there from an earlier time, whose reply was lost: looked for after the head was read.
IsKnown(w) == (mistake # "ids are not looked for") /\ (\E e \in entries : e.id = w)
IsStill(w) == head.seq = writers[w].saw /\ head.hash = writers[w].hash

Told(w)   == writers' = [writers EXCEPT ![w].is = "done", ![w].told = TRUE] /\ lost' = lost
Untold(w) == lost < MaxLost /\ lost' = lost + 1 /\ writers' = [writers EXCEPT ![w].is = "idle"]

FindAgain(w) ==
    /\ writers[w].is = "looked" /\ IsKnown(w) /\ IsStill(w)
    /\ Told(w)
    /\ UNCHANGED <<head, entries, seals, anchors, owed, mistake>>

Moved(w) == [head EXCEPT !.seq = writers[w].saw + 1,
                         !.hash = HashOf(writers[w].hash, writers[w].saw + 1, w, Now)]

AppendEntry(w) ==
    /\ writers[w].is = "looked" /\ ~IsKnown(w)
    /\ IsStill(w) \/ mistake = "the head is not compared"
    /\ mistake # "the head moves alone"
    /\ ~Has(writers[w].saw + 1) \/ mistake = "the head is not compared"
    /\ head' = Moved(w)
    /\ entries' = entries \cup {Entry(writers[w].hash, writers[w].saw + 1, w)}
    /\ Told(w) \/ Untold(w)
    /\ UNCHANGED <<seals, anchors, owed, mistake>>

\* The head and the entry in two transactions: who dies in between leaves a head without its entry.
MoveHead(w) ==
    /\ mistake = "the head moves alone"
    /\ writers[w].is = "looked" /\ ~IsKnown(w) /\ IsStill(w)
    /\ head' = Moved(w)
    /\ writers' = [writers EXCEPT ![w].is = "moved"]
    /\ UNCHANGED <<entries, seals, anchors, lost, owed, mistake>>

AddAlone(w) ==
    /\ writers[w].is = "moved"
    /\ entries' = entries \cup {Entry(writers[w].hash, writers[w].saw + 1, w)}
    /\ Told(w)
    /\ UNCHANGED <<head, seals, anchors, owed, mistake>>

\* Somebody else was first: look again.
Overtaken(w) ==
    /\ writers[w].is = "looked" /\ ~IsStill(w) /\ mistake # "the head is not compared"
    /\ writers' = [writers EXCEPT ![w].is = "idle"]
    /\ UNCHANGED <<head, entries, seals, anchors, lost, owed, mistake>>

\* Only what is there is sealed.
Seal ==
    /\ head.sealed < head.seq
    /\ \A n \in (head.sealed + 1)..head.seq : Has(n)
    /\ head' = [head EXCEPT !.sealed = head.seq]
    /\ seals' = seals \cup {[last |-> head.seq, hash |-> At(head.seq).hash]}
    /\ UNCHANGED <<entries, anchors, writers, lost, owed, mistake>>

Anchor ==
    /\ owed = "nothing happened" /\ anchors # seals
    /\ anchors' = seals
    /\ UNCHANGED <<head, entries, seals, writers, lost, owed, mistake>>

Expire ==
    /\ owed = "nothing happened"
    /\ \E s \in seals :
        /\ s.last >= head.kept
        /\ head' = [head EXCEPT !.kept = s.last + 1]
        /\ entries' = {e \in entries : e.seq > s.last}
    /\ UNCHANGED <<seals, anchors, writers, lost, owed, mistake>>

-----------------------------------------------------------------------------

Tamper(table, to) ==
    /\ owed = "nothing happened"
    /\ entries' = table /\ owed' = to
    /\ UNCHANGED <<writers, lost, mistake, anchors>>

Edit ==
    /\ \E e \in entries : Tamper((entries \ {e}) \cup {[e EXCEPT !.id = Eve]}, "a look")
    /\ UNCHANGED <<head, seals>>

\* An entry is another one with its own hash, and the next one is said to follow it.
Relink ==
    /\ \E e \in entries :
        LET new == Entry(e.previous, e.seq, Eve)
        IN  Tamper({IF f.seq = e.seq + 1 THEN [f EXCEPT !.previous = new.hash] ELSE f : f \in entries \ {e}}
                       \cup {new}, "a look")
    /\ UNCHANGED <<head, seals>>

Delete ==
    /\ \E e \in entries : Tamper(entries \ {e}, "a look")
    /\ UNCHANGED <<head, seals>>

Swap ==
    /\ \E e, f \in entries :
        /\ e.seq < f.seq
        /\ Tamper((entries \ {e, f}) \cup {[e EXCEPT !.seq = f.seq], [f EXCEPT !.seq = e.seq]}, "a look")
    /\ UNCHANGED <<head, seals>>

\* Put in behind the end, or in the middle with those behind it moved on.
Insert ==
    /\ \E at \in head.kept..(head.seq + 1) :
        LET before == IF at = head.kept THEN Origin ELSE IF Has(at - 1) THEN At(at - 1).hash ELSE Origin
            moved  == {IF e.seq >= at THEN [e EXCEPT !.seq = e.seq + 1] ELSE e : e \in entries}
        IN  Tamper(moved \cup {Entry(before, at, Eve)}, "a look")
    /\ UNCHANGED <<head, seals>>

Covered(at) == \E s \in seals : s.last >= at
Written(at) == \E a \in anchors : a.last >= at

\* The tail goes, and the head goes back; a seal tells. Or the seals go, too; an anchor tells.
CutOff ==
    \E at \in head.kept..head.seq, with \in BOOLEAN :
        LET left == IF at = 1 THEN Origin ELSE IF Has(at - 1) THEN At(at - 1).hash ELSE Origin
            kept == {s \in seals : s.last < at}
            ends == {s.last : s \in kept}
            top  == IF ends = {} THEN 0 ELSE CHOOSE n \in ends : \A m \in ends : m <= n
        IN  /\ at > head.kept \/ head.kept = 1
            /\ head' = [head EXCEPT !.seq = at - 1, !.hash = left, !.sealed = IF with \/ head.sealed < at THEN top ELSE at - 1]
            /\ seals' = IF with THEN kept ELSE seals
            /\ Tamper({e \in entries : e.seq < at},
                      IF Written(at) /\ with THEN "an anchor"
                      ELSE IF Covered(at) /\ ~with THEN "a look" ELSE "nothing")

\* The last entry is another one, and so is the head; a seal tells, or an anchor where the seal was made anew.
Rewrite ==
    \E with \in BOOLEAN :
        /\ Has(head.seq)
        /\ LET last == At(head.seq)
               new  == Entry(last.previous, last.seq, Eve)
           IN  /\ head' = [head EXCEPT !.hash = new.hash]
               /\ seals' = IF with THEN {IF s.last = last.seq THEN [s EXCEPT !.hash = new.hash] ELSE s : s \in seals}
                           ELSE seals
               /\ Tamper((entries \ {last}) \cup {new},
                         IF Written(head.seq) /\ with THEN "an anchor"
                         ELSE IF Covered(head.seq) /\ ~with THEN "a look" ELSE "nothing")

Next ==
    \/ \E w \in Writers :
        Look(w) \/ FindAgain(w) \/ AppendEntry(w) \/ MoveHead(w) \/ AddAlone(w) \/ Overtaken(w)
    \/ Seal \/ Anchor \/ Expire
    \/ Edit \/ Relink \/ Delete \/ Swap \/ Insert \/ CutOff \/ Rewrite

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------

\* What a look at the tables compares.
Numbered == {e.seq : e \in entries} = head.kept..head.seq /\ Cardinality(entries) = head.seq + 1 - head.kept
NoSeal == <<<<0, Eve, 0>>>>
BaseHash ==
    IF head.kept = 1 THEN Origin
    ELSE IF \E s \in seals : s.last = head.kept - 1 THEN (CHOOSE s \in seals : s.last = head.kept - 1).hash
    ELSE NoSeal
Linked ==
    \A e \in entries :
        /\ e.hash = HashOf(e.previous, e.seq, e.id, e.at)
        /\ e.previous = IF e.seq = head.kept THEN BaseHash ELSE IF Has(e.seq - 1) THEN At(e.seq - 1).hash ELSE Origin
Ended  == head.seq >= head.kept => (Has(head.seq) /\ At(head.seq).hash = head.hash)
Sealed ==
    /\ \A s \in seals : /\ s.last <= head.sealed
                        /\ s.last >= head.kept => (Has(s.last) /\ At(s.last).hash = s.hash)
    /\ head.sealed > 0 => \E s \in seals : s.last = head.sealed

IsWhole ==
    /\ Numbered \/ mistake = "numbers are not compared"
    /\ Linked \/ mistake = "links are not compared"
    /\ Ended \/ mistake = "the head is not looked at"
    /\ Sealed \/ mistake = "seals are not compared"
IsWritten == anchors \subseteq seals \/ mistake = "anchors are not compared"

Whole   == owed = "nothing happened" => IsWhole
Noticed == /\ owed = "a look" => ~IsWhole
           /\ owed = "an anchor" => ~(IsWhole /\ IsWritten)
Once    == \A e, f \in entries : e.id = f.id /\ e.id # Eve => e = f
Kept    == owed = "nothing happened" =>
               \A w \in Writers : writers[w].told => (\E e \in entries : e.id = w) \/ head.kept > 1

Right == Whole /\ Noticed /\ Once /\ Kept

Audit_Whole   == mistake = "none" => Whole
Audit_Noticed == mistake = "none" => Noticed
Audit_Once    == mistake = "none" => Once
Audit_Kept    == mistake = "none" => Kept

\* Each of these has to be violated: the mistake is noticed.
Unnoticed(what)    == ~(mistake = what /\ ~Right)
Unnoticed_Compare  == Unnoticed("the head is not compared")
Unnoticed_Alone    == Unnoticed("the head moves alone")
Unnoticed_Ids      == Unnoticed("ids are not looked for")
Unnoticed_Previous == Unnoticed("the hash before is not hashed")
Unnoticed_Numbers  == Unnoticed("numbers are not compared")
Unnoticed_Links    == Unnoticed("links are not compared")
Unnoticed_Head     == Unnoticed("the head is not looked at")
Unnoticed_Seals    == Unnoticed("seals are not compared")
Unnoticed_Anchors  == Unnoticed("anchors are not compared")
=============================================================================
