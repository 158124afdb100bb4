------------------------------- MODULE Search -------------------------------
(***************************************************************************)
(* One key, and the rows beside its record by which the record is found.   *)
(*                                                                         *)
(* A caller says of its claim what it is about: something of its own, and  *)
(* something that others say as well. Every such value is a row of a side  *)
(* table. Some callers claim by themselves, in one statement. Others have  *)
(* a transaction open: they look first, claim later, and commit or roll    *)
(* back. Who claims in a transaction drops the rows that it saw when it    *)
(* looked, and may leave some that were committed since: a repeatable      *)
(* reader of MySQL sees no others.                                         *)
(*                                                                         *)
(* The rows only lead to a record. What it is about stands in the record   *)
(* itself, and decides.                                                    *)
(*                                                                         *)
(* `mistake' names one mistake that the store could make, or none. It is   *)
(* here to show that the invariants notice each of them.                   *)
(***************************************************************************)
EXTENDS Naturals

CONSTANTS
    Callers,    \* each says something of its own
    None,       \* nobody
    MaxLives,   \* how many records in a row the key may have
    Mistakes    \* {"none"}, or the mistakes that are looked for

VARIABLES
    record,     \* what is committed: its status, who claimed it last, and its life
    rows,       \* what is committed beside it
    open,       \* caller -> its transaction
    mistake

vars == <<record, rows, open, mistake>>

Statuses == {"absent", "running", "failed", "completed", "erased"}
Terms    == Callers \cup {"shared"}
Rows     == [term : Terms, life : 0..MaxLives]
Closed   == [is |-> "closed", saw |-> {}, record |-> None, rows |-> {}]

TypeOK ==
    /\ record.status \in Statuses
    /\ record.by \in Callers \cup {None}
    /\ record.life \in 0..MaxLives
    /\ rows \subseteq Rows
    /\ \A c \in Callers : open[c].is \in {"closed", "looking", "claimed"}
    /\ mistake \in Mistakes

Init ==
    /\ record = [status |-> "absent", by |-> None, life |-> 0]
    /\ rows = {}
    /\ open = [c \in Callers |-> Closed]
    /\ mistake \in Mistakes

-----------------------------------------------------------------------------

Said(c)     == {c, "shared"}
Claimable   == /\ record.status \in {"absent", "running", "failed"}
               /\ record.status = "absent" => record.life < MaxLives
Life        == IF record.status = "absent" THEN record.life + 1 ELSE record.life
Won(c)      == [status |-> "running", by |-> c, life |-> Life]

\* The rows after a claim of c, who has seen `saw' of those that are there.
Kept(c, saw) ==
    LET own  == {[term |-> t, life |-> Life] : t \in Said(c)}
        left == {r \in rows \ saw : r.term \notin Said(c)}
    IN  IF mistake = "rows are not written" THEN left ELSE left \cup own

\* An open transaction that has claimed the key holds it.
Held == \E c \in Callers : open[c].is = "claimed"

Claim(c) ==
    /\ open[c] = Closed /\ Claimable /\ ~Held
    /\ record' = Won(c)
    /\ rows' = Kept(c, rows)
    /\ UNCHANGED <<open, mistake>>

Look(c) ==
    /\ open[c] = Closed
    /\ open' = [open EXCEPT ![c] = [Closed EXCEPT !.is = "looking", !.saw = rows]]
    /\ UNCHANGED <<record, rows, mistake>>

ClaimWithin(c) ==
    /\ open[c].is = "looking" /\ Claimable /\ ~Held
    /\ open' = [open EXCEPT ![c].is = "claimed", ![c].record = Won(c),
                            ![c].rows = Kept(c, open[c].saw)]
    /\ rows' = IF mistake = "rows are written outside" THEN Kept(c, rows) ELSE rows
    /\ UNCHANGED <<record, mistake>>

Commit(c) ==
    /\ open[c].is = "claimed"
    /\ record' = open[c].record
    /\ rows' = open[c].rows
    /\ open' = [open EXCEPT ![c] = Closed]
    /\ UNCHANGED mistake

\* The caller rolls back, or is gone: to the server that is the same.
RollBack(c) ==
    /\ open[c].is # "closed"
    /\ open' = [open EXCEPT ![c] = Closed]
    /\ UNCHANGED <<record, rows, mistake>>

End ==
    /\ record.status = "running" /\ ~Held
    /\ \E status \in {"failed", "completed"} : record' = [record EXCEPT !.status = status]
    /\ UNCHANGED <<rows, open, mistake>>

Erase ==
    /\ record.status \in {"failed", "completed"} /\ ~Held
    /\ record' = [record EXCEPT !.status = "erased", !.by = None]
    /\ rows' = IF mistake = "erasing leaves rows" THEN rows ELSE {}
    /\ UNCHANGED <<open, mistake>>

Purge ==
    /\ record.status \in {"failed", "completed", "erased"} /\ ~Held
    /\ record' = [record EXCEPT !.status = "absent", !.by = None]
    /\ rows' = IF mistake = "deleting leaves rows" THEN rows ELSE {}
    /\ UNCHANGED <<open, mistake>>

Next ==
    \/ \E c \in Callers :
        Claim(c) \/ Look(c) \/ ClaimWithin(c) \/ Commit(c) \/ RollBack(c)
    \/ End \/ Erase \/ Purge

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------

About == IF record.by = None THEN {} ELSE Said(record.by)

\* Whether a search for t shows the record.
Shown(t) ==
    /\ record.status # "absent"
    /\ [term |-> t, life |-> record.life] \in rows
    /\ (mistake = "the text is not compared") \/ t \in About

FoundExactly == \A t \in Terms : Shown(t) <=> (record.status # "absent" /\ t \in About)

NothingLeft == record.status \in {"absent", "erased"} => rows = {}

Search_FindsExactly == mistake = "none" => FoundExactly
Search_NothingLeft  == mistake = "none" => NothingLeft

\* Each of these has to be violated: the mistake is noticed.
Unnoticed(what)  == ~(mistake = what /\ ~(FoundExactly /\ NothingLeft))
Unnoticed_Missing  == Unnoticed("rows are not written")
Unnoticed_Outside  == Unnoticed("rows are written outside")
Unnoticed_Erased   == Unnoticed("erasing leaves rows")
Unnoticed_Deleted  == Unnoticed("deleting leaves rows")
Unnoticed_Text     == Unnoticed("the text is not compared")
=============================================================================
