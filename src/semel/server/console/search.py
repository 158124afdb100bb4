"""The search form: what an address says, as restrictions of `records`, and back into an address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, cast

from semel.core.key import SHARED
from semel.core.record import Status
from semel.engine.engine import RecordFilter
from semel.server.refusals import Invalid
from semel.texts import read_span

STUCK: Final = "stuck"
LOOKS_AT: Final = 50_000
"""How many records a page looks at for a search that no index leads to; without a bound it would be all."""
_PLAIN: Final = ("operation", "business_key", "subject", "process_instance", "requester", "reference")
_TRIMMED: Final = ("status", "reference", "after", "before", "order", "scan", "shared")


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the form."""

    name: str
    words: str
    hint: str = ""


FIELDS: Final = (
    Field("operation", "Operation"),
    Field("business_key", "Business key"),
    Field("subject", "Subject"),
    Field("process_instance", "Process instance"),
    Field("requester", "Requester"),
    Field("tag", "Tag", "name=value"),
    Field("scope", "Scope"),
    Field("reference", "Reference begins with", "hex digits"),
    Field("after", "Claimed after", "2h, or 2026-03-01T14:30"),
    Field("before", "Claimed before", "the same"),
)
NAMES: Final = ("status", *(field.name for field in FIELDS), "shared", "order", "scan")


class SearchForm(dict[str, str]):
    """What somebody asked for, as texts: every field is there, and empty where nothing was said."""

    @staticmethod
    def of(query: Mapping[str, str]) -> SearchForm:
        """The form as an address has it; blanks around a value count, except where none can have them."""
        given = {name: query.get(name, "") for name in NAMES}
        return SearchForm({name: value.strip() if name in _TRIMMED else value for name, value in given.items()})

    @property
    def pairs(self) -> dict[str, str]:
        """What is not empty."""
        return {name: value for name, value in self.items() if value}

    @property
    def is_empty(self) -> bool:
        """Whether it asks for everything."""
        return not self.pairs.keys() - {"order", "scan"}

    def to_filter(self, now: datetime) -> RecordFilter:
        """The restrictions.

        Raises:
            Invalid: a time or a tag cannot be read, or there is no such status.
        """
        status = self["status"]
        if status and status != STUCK and status not in set(Status):
            raise Invalid(f"There is no status {status!r}; nothing was read.", because="status")
        wanted = {name: self[name] or None for name in _PLAIN}
        found = cast("RecordFilter", wanted)
        found["reference"] = self["reference"].lower() or None
        found["status"] = None if status in ("", STUCK) else status
        found["stuck"] = status == STUCK
        found["scope"] = self._scope()
        found["tag"] = _tag(self["tag"])
        found["after"] = read_moment(self["after"], now)
        found["before"] = read_moment(self["before"], now)
        found["scan"] = self["scan"] == "1"
        found["newest_first"] = self["order"] != "oldest"
        return found

    def _scope(self) -> object:
        """The scope; that of nobody is a box of its own, because any word may be the name of a scope."""
        scope = read_scope(self["scope"], self["shared"])
        return SHARED if scope == "" else scope


def read_scope(scope: str, shared: str) -> str | None:
    """The scope that is searched by: empty is that of nobody, which has a box of its own; None is any.

    Raises:
        Invalid: both are asked for.
    """
    if shared != "1":
        return scope or None
    if scope:
        raise Invalid("A scope is given, and that of nobody is asked for; nothing was read.", because="scope")
    return ""


def _tag(text: str) -> tuple[str, str] | None:
    if not text:
        return None
    name, equals, value = text.partition("=")
    if not equals:
        raise Invalid("A tag is asked for as name=value; nothing was read.", because="tag")
    return name, value


def read_moment(text: str, now: datetime) -> datetime | None:
    """A moment as people write it: a date, a date and time (UTC where no zone is given), or so long ago.

    Raises:
        Invalid: it is none of these.
    """
    if not text:
        return None
    ago = read_span(text)
    if ago is not None:
        return now - ago
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(
            f"{text!r} is no moment; nothing was read. Write 2026-03-01, 2026-03-01T14:30, or 2h for two hours ago.",
            because="moment",
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
