"""Where a case is measured, and figures of it that are no ratio.

What always holds: a server that a case needs runs before its first variant is prepared, ends with the case, and counts
as part of what is measured, not as somebody else who disturbs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bench.machine import file_system


class Unavailable(Exception):
    """A case cannot be measured here; the message says what is missing and how to get it."""


@dataclass(frozen=True)
class Site:
    """What a case is measured on.

    Attributes:
        settings: how it is set, as it reports it itself: durability above all.
        processes: the servers, whose work belongs to what is measured.
    """

    settings: Mapping[str, object] = field(default_factory=dict)
    processes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Fact:
    """A figure that stands for itself: something counted, or a latency beside a line drawn elsewhere.

    Attributes:
        what: what was counted or measured.
        figure: the number.
        unit: of the number and of the bound.
        bound: the target, where there is one.
        kind: how the figure is held against the bound.
        source: whose line the bound is, where it is not semel's own target.
    """

    what: str
    figure: float
    unit: str = ""
    bound: float | None = None
    kind: Literal["exactly", "at most"] = "at most"
    source: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the figure is within the bound; None where there is none."""
        if self.bound is None:
            return None
        return self.figure == self.bound if self.kind == "exactly" else self.figure <= self.bound

    @property
    def target(self) -> str:
        """The bound in words."""
        if self.bound is None:
            return ""
        sign = "" if self.kind == "exactly" else "≤ "
        return f"{sign}{shown(self.bound)} {self.unit}".rstrip() + (f" ({self.source})" if self.source else "")


def shown(number: float) -> str:
    """A number as people read it."""
    return f"{number:,.0f}" if number == round(number) or abs(number) >= 100 else f"{number:,.2f}"


def reported(
    ask: Callable[[str], object],
    setting: str,
    names: Sequence[str],
    data_folder: str,
    count: str = "SELECT count(*) FROM semel_record",
) -> dict[str, object]:
    """How a server says that it is set, where its data is, and how many records it holds before anything is measured.

    Args:
        ask: gives the one value that a statement answers, in the database that is filled.
        setting: the statement for a setting, with `{}` for its name.
        names: the settings to tell.
        data_folder: the setting that says where the data is.
        count: the statement that counts records.
    """
    return {
        **{name: ask(setting.format(name)) for name in names},
        "file_system": file_system(Path(str(ask(setting.format(data_folder))))),
        "records_before": ask(count),
    }


@contextmanager
def in_this_process(folder: Path, rows: int) -> Iterator[Site]:
    """No server: everything happens in this process."""
    yield Site()
