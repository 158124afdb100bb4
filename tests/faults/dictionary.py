"""The rules of a store as a dictionary of dictionaries, written down from DESIGN sections 3 and 4.

It shares no code with the stores, not even the arbitration of claims: what both sides got wrong together would not
show. Answers are tuples, records are dictionaries; `views.py` brings real answers into the same form.
"""

from typing import Any

Row = dict[str, Any]
Seen = tuple[Any, ...]
LOST: Seen = ("lost",)
SETTLED = ("completed", "failed", "cancelled")
NOTHING_TO_COMPARE = b""
ERASED = b"\x95\x01\xa4none\xa0\xa0\xc4\x0dit was erased"


class Dictionary:
    """Records by digest."""

    def __init__(self) -> None:
        self.rows: dict[bytes, Row] = {}

    def claim(self, claim: Row, now: int) -> Seen:
        """Become the one who runs, or learn why not."""
        row = self.rows.get(claim["digest"])
        if row is None or self._expired(row, now):
            fence = 1 if row is None else row["fence"] + 1
            row = {**self._running(claim, now), "fence": fence, "attempts": 1, "doubtful": False, "created": now}
            row |= {"error": None, "resolution": None, "steps": []}
            return self._granted(claim, row)
        if row["nonce"] == claim["nonce"] and row["status"] == "running":
            return self._granted(claim, row)  # its reply was lost, so it was sent again
        if row["fingerprint"] not in (claim["fingerprint"], NOTHING_TO_COMPARE):
            return ("reused", row)
        if row["status"] in ("completed", "cancelled") or (row["status"] == "failed" and not row["retryable"]):
            return ("replay", row)
        if row["status"] == "running" and row["lease"] > now:
            return ("running", row["lease"] - now)
        if row["status"] == "failed" and not row["doubtful"]:
            return self._next_attempt(claim, row, now)
        return self._take_over(claim, row, now)

    def claim_together(self, claims: list[Row], now: int) -> list[Seen]:
        """Claims of one list are concurrent: who cannot win is told so first, then the others come one by one."""
        before = dict(self.rows)
        answers = []
        for claim in claims:
            answers.append(self.claim(claim, now))
            self.rows = dict(before)
        return [
            self.claim(c, now) if answer[0] == "granted" else answer for c, answer in zip(claims, answers, strict=True)
        ]

    def _take_over(self, claim: Row, row: Row, now: int) -> Seen:
        """Whoever began may have had its effect: both policies must allow another attempt."""
        words = {row["in_doubt"], claim["in_doubt"]}
        if "hold" in words or (claim["in_doubt"] == "rerun" and row["in_doubt"] == "reconcile"):
            return ("doubtful", row, None)
        if claim["in_doubt"] == "reconcile":
            remaining: int = row["lease"] + max(row["reconcile_after"], claim["reconcile_after"]) - now
            if remaining > 0:
                return ("doubtful", row, remaining)
        return self._next_attempt(claim, row, now)

    def _next_attempt(self, claim: Row, row: Row, now: int) -> Seen:
        doubtful = row["doubtful"] or row["status"] in ("running", "in_doubt")
        kept = {name: row[name] for name in ("created", "error", "resolution", "steps")}
        counts = {"fence": row["fence"] + 1, "attempts": row["attempts"] + 1, "doubtful": doubtful}
        return self._granted(claim, {**self._running(claim, now), **kept, **counts})

    def _running(self, claim: Row, now: int) -> Row:
        key = ("digest", "scope", "operation", "value")
        taken = (*key, "fingerprint", "nonce", "in_doubt", "reconcile_after", "business_key", "keep")
        row = {name: claim[name] for name in taken}
        row |= {"status": "running", "retryable": False, "lease": now + claim["lease"], "expires": now + claim["keep"]}
        return row | {
            "outcome": None,
            "started": now,
            "updated": now,
            "completed": None,
            "replays": 0,
            "replayed": None,
        }

    def _granted(self, claim: Row, row: Row) -> Seen:
        self.rows[claim["digest"]] = row
        return ("granted", row, row["doubtful"], row["doubtful"] and row["in_doubt"] == "reconcile")

    def _expired(self, row: Row, now: int) -> bool:
        return row["status"] in SETTLED and bool(row["expires"] <= now)

    def _owned(self, lease: Row) -> Row | None:
        row = self.rows.get(lease["digest"])
        shown = (lease["nonce"], lease["fence"])
        return row if row is not None and (row["nonce"], row["fence"]) == shown else None

    def renew(self, lease: Row, length: int, now: int) -> Seen:
        """Hold on to a lease that nobody took over."""
        row = self._owned(lease)
        if row is None or row["status"] != "running":
            return LOST
        self._put(row, now, lease=now + length)
        return ("held", now + length)

    def complete(self, lease: Row, outcome: bytes, now: int) -> Seen:
        """Record a value; sent again, the answer is that of the first time."""
        row = self._owned(lease)
        if row is None or row["status"] not in ("running", "completed"):
            return LOST
        if row["status"] == "running":
            self._settle(row, now, status="completed", outcome=outcome, error=None)
        return ("recorded", self.rows[lease["digest"]]["completed"])

    def fail(self, lease: Row, ending: str, error: tuple[str, str], *, doubtful: bool, started: bool, now: int) -> Seen:
        """Record an end without a value; sent again, the answer is that of the first time."""
        row = self._owned(lease)
        if row is None or row["status"] == "completed":
            return LOST
        if row["status"] != "running":
            return ("recorded", row["updated"]) if row["error"] == error else LOST
        changes = {"error": error, "doubtful": doubtful, "attempts": row["attempts"] - (not started)}
        if ending == "doubt":
            self._put(row, now, status="in_doubt", lease=min(row["lease"], now), **changes)
        else:
            self._settle(row, now, status="failed", retryable=ending == "retry", **changes)
        return ("recorded", now)

    def checkpoint(self, lease: Row, step: tuple[int, str, bytes], now: int) -> Seen:
        """Record a finished step, once."""
        row = self._owned(lease)
        if row is None or row["status"] != "running":
            return LOST
        if step not in row["steps"]:
            self._put(row, now, steps=sorted([*row["steps"], step]))
        return ("recorded", now)

    def _put(self, row: Row, now: int, **changes: Any) -> None:
        self.rows[row["digest"]] = {**row, "updated": now, **changes}

    def _settle(self, row: Row, now: int, **changes: Any) -> None:
        """The end of a life: kept from the claim on, but from now on where the run used up half of that time."""
        expires = row["expires"] if row["expires"] - now > row["keep"] // 2 else now + row["keep"]
        self._put(row, now, completed=now, expires=expires, lease=min(row["lease"], now), **changes)

    def resolve(self, decision: Row, now: int) -> Seen:
        """End a doubt, or by force what runs. The new nonce and fence shut everybody else out."""
        digest, nonce, status = decision["digest"], decision["nonce"], decision["status"]
        row = self.rows.get(digest)
        if row is not None and row["nonce"] == nonce:
            return ("resolved", row)
        runs = row is not None and row["status"] == "running" and (decision["force"] or self._lapsed(row, now))
        if row is None or not (runs or row["status"] == "in_doubt"):
            return ("unresolvable", row)
        stated = decision["error"]
        changes = {"retryable": status == "failed" and stated is None, "error": stated or row["error"]}
        changes |= {"doubtful": False, "nonce": nonce, "fence": row["fence"] + 1, "outcome": decision["outcome"]}
        self._settle(row, now, status=status, resolution=decision["note"], **changes)
        return ("resolved", self.rows[digest])

    def reopen(self, digest: bytes, nonce: bytes, saw: bytes, note: str, now: int) -> Seen:
        """Let a key run again that failed for good or was cancelled: the very record that was looked at."""
        row = self.rows.get(digest)
        if row is not None and row["nonce"] == nonce:
            return ("reopened", row)
        over = row is not None and (
            row["status"] == "cancelled" or (row["status"] == "failed" and not row["retryable"])
        )
        if row is None or not over or row["nonce"] != saw or row["fingerprint"] == NOTHING_TO_COMPARE:
            return ("unresolvable", row)
        error = row["error"] or ("semel.Reopened", "it was cancelled, and reopened since")
        changes = {"status": "failed", "retryable": True, "attempts": 0, "nonce": nonce}
        self._settle(row, now, error=error, resolution=note, **changes)
        return ("reopened", self.rows[digest])

    def count(self, count: Row, most: int | None, now: int) -> Seen:
        """An attempt that was rolled back with its caller's transaction: one failure more, where one may be tried."""
        row = self.rows.get(count["digest"])
        if row is not None and row["nonce"] == count["nonce"] and row["status"] == "failed":
            return ("counted", row)
        if row is None or self._expired(row, now):
            fence = 0 if row is None else row["fence"]
            row = {**self._running(count, now), "fence": fence, "attempts": 0, "doubtful": False, "created": now}
            row |= {"resolution": None, "steps": [], "lease": now}
        elif row["status"] != "failed" or not row["retryable"] or row["fingerprint"] != count["fingerprint"]:
            return ("unresolvable", row)
        attempts = row["attempts"] + 1
        changes = {"status": "failed", "retryable": most is None or attempts < most, "attempts": attempts}
        changes |= {"nonce": count["nonce"], "fence": row["fence"] + 1, "error": count["error"], "started": now}
        self._settle(row, now, **changes)
        return ("counted", self.rows[count["digest"]])

    def erase(self, digest: bytes, note: str) -> Seen:
        """Take out what may be personal; whatever was tried before, it is final now."""
        row = self.rows.get(digest)
        if row is None or row["status"] not in SETTLED:
            return ("unresolvable", row)
        gone: Row = {
            "scope": "",
            "value": "",
            "fingerprint": NOTHING_TO_COMPARE,
            "business_key": None,
            "steps": [],
            "resolution": note,
        }
        gone |= {"retryable": False, "doubtful": False, "outcome": None, "error": None}
        if row["status"] == "completed":
            gone["outcome"] = ERASED
        elif row["status"] == "failed":
            gone["error"] = ("semel.Erased", "it was erased")
        self.rows[digest] = {**row, **gone}
        return ("erased", self.rows[digest])

    def _lapsed(self, row: Row, now: int) -> bool:
        return row["status"] == "running" and bool(row["lease"] <= now)

    def expired(self, now: int) -> set[bytes]:
        """What may be deleted."""
        return {digest for digest, row in self.rows.items() if self._expired(row, now)}

    def lapsed(self, now: int) -> set[bytes]:
        """What may be marked in doubt."""
        return {digest for digest, row in self.rows.items() if self._lapsed(row, now)}

    def lapse(self, digest: bytes, now: int) -> None:
        """Mark one record."""
        ended = ("semel.LeaseEnded", "the lease ended without an outcome")
        self._put(self.rows[digest], now, status="in_doubt", doubtful=True, error=ended)

    def tally(self, digest: bytes, replays: int, now: int) -> Seen:
        """Count replays; that is no change of the record."""
        row = self.rows.get(digest)
        if row is not None:
            self.rows[digest] = {**row, "replays": row["replays"] + replays, "replayed": now}
        return ("recorded", now)

    def listed(self, **wanted: Any) -> list[Row]:
        """Records with these values, oldest first."""
        found = [row for row in self.rows.values() if all(row[name] == value for name, value in wanted.items())]
        return sorted(found, key=lambda row: (row["created"], row["digest"]))
