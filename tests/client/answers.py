"""The table of answers that all clients share, `clients/answers.json`: the tests of the browser client read it too."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Ends = Literal["settled", "recorded", "refused", "nothing ran", "open"]
_TABLE = Path(__file__).parents[2] / "clients" / "answers.json"


@dataclass(frozen=True)
class Answer:
    """One row: how a call ends whose one try, the first under its key, is answered so.

    Attributes:
        status: None where the connection ends without an answer.
        headers: of the answer.
        body: of the answer.
        ends: how the call ends.
        again: whether the same call asks again.
    """

    status: int | None
    headers: tuple[tuple[str, str], ...]
    body: bytes
    ends: Ends
    again: bool

    def ends_behind(self, *, certain: bool) -> Ends:
        """How it ends behind other tries; `certain`: whether none of them may have run."""
        match self.ends:
            case "settled" | "recorded":
                return "settled"
            case "refused":
                return "settled" if certain else "open"
        return self.ends if certain else "open"


def _read() -> dict[str, Answer]:
    found = {}
    for name, row in json.loads(_TABLE.read_text())["answers"].items():
        headers, body = dict(row.get("headers", {})), b""
        if "problem" in row:
            headers["Content-Type"], body = "application/problem+json", json.dumps({"type": row["problem"]}).encode()
        found[name] = Answer(row.get("status"), tuple(headers.items()), body, row["ends"], row["again"])
    return found


ANSWERS = _read()
UNSETTLED = [name for name, answer in ANSWERS.items() if answer.ends in ("nothing ran", "open")]
