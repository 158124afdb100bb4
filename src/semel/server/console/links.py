"""Links from a record to where more is known of it: its trace, its process in the engine, the business object.

A template is an address with names in braces. A link is shown only where the record has all that its template names,
every value is quoted, and only the web is linked to.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from semel.core.observer import TRACE_TAG
from semel.core.record import Record
from semel.errors import UsageError

FIELDS: Final = (
    "reference",
    "operation",
    "scope",
    "key",
    "business_key",
    "process_instance",
    "subject",
    "requester",
    "trace_id",
)
_TAG: Final = "tag_"
_SCHEMES: Final = ("https://", "http://", "/")
_TRACE_TAGS: Final = ("trace_id", "traceparent", TRACE_TAG)
_TRACE_DIGITS: Final = 32


@dataclass(frozen=True, slots=True)
class Link:
    """Where it leads, and what it is called."""

    words: str
    url: str


class Links:
    """Templates of links, by what they are called.

    Raises:
        UsageError: a template names what no record has, or leads to something else than the web.
    """

    def __init__(self, templates: Mapping[str, str]) -> None:
        self._templates = dict(templates)
        for words, template in self._templates.items():
            _check(words, template)

    def of(self, record: Record) -> list[Link]:
        """The links of a record."""
        return self.of_values(_values_of(record))

    def of_values(self, values: Mapping[str, str]) -> list[Link]:
        """The links whose templates name nothing else than what has a value."""
        given = {name: quote(value, safe="") for name, value in values.items() if value}
        return [
            Link(words, _fill(template, given))
            for words, template in self._templates.items()
            if _names_in(template) <= given.keys()
        ]


def _values_of(record: Record) -> dict[str, str]:
    about = record.about
    values = {
        "reference": record.reference,
        "operation": record.key.operation,
        "scope": record.key.scope,
        "key": record.key.value,
        "business_key": about.business_key,
        "process_instance": about.process_instance,
        "subject": about.subject,
        "requester": about.requester,
        "trace_id": trace_of(about.tags),
        **{_TAG + name: value for name, value in about.tags.items()},
    }
    return {name: value for name, value in values.items() if value}


def trace_of(tags: Mapping[str, str]) -> str | None:
    """The trace that a record says it belongs to: its tag `trace_id`, or that part of a tag with a span."""
    for name in _TRACE_TAGS:
        for part in tags.get(name, "").lower().split("-"):
            if len(part) == _TRACE_DIGITS and set(part) <= set(string.hexdigits):
                return part
    return None


def _names_in(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


def _fill(template: str, given: Mapping[str, str]) -> str:
    """The template with values for its names, and nothing else: a dot in the name of a tag means nothing."""
    parts = string.Formatter().parse(template)
    return "".join(text + ("" if name is None else given[name]) for text, name, _, _ in parts)


def _check(words: str, template: str) -> None:
    if not template.startswith(_SCHEMES) or template.startswith("//"):
        raise UsageError(f"The link {words!r} has to begin with https://, http:// or /; nothing was made.")
    try:
        names = _names_in(template)
        is_plain = not any(form or how for _, _, form, how in string.Formatter().parse(template))
    except ValueError as error:
        raise UsageError(f"The link {words!r} cannot be read: {error}; nothing was made.") from error
    if not is_plain:
        raise UsageError(f"The link {words!r} has more than a name in its braces; nothing was made.")
    unknown = sorted(name for name in names if name not in FIELDS and not name.startswith(_TAG))
    if unknown:
        raise UsageError(
            f"The link {words!r} names {unknown[0]!r}, which no record has; nothing was made. There are "
            f"{', '.join(FIELDS)}, and {_TAG}NAME for a tag."
        )
