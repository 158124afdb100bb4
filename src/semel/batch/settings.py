"""What a run was told, checked, and the values it works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict

from msgspec.structs import replace

from semel.batch.items import ItemHandler, Skip
from semel.core.batch.operations import ItemEnd
from semel.core.batch.values import KEPT_US, SKIPPED, BatchPage, ItemStatus, StoredItem
from semel.core.codec import Shape
from semel.core.operations import Answer, Complete, Fail, Terms
from semel.core.policy import Doubt, Errors, Policy, StoreDown
from semel.engine.background import HeldLease
from semel.engine.call_flow import Request, terms_of
from semel.errors import UsageError
from semel.handlers import DoesNotDecode
from semel.validation import Duration

Commit = Literal["item", "page"]
MOST: Final = 100_000
MOST_RATE: Final = 1_000_000
_LONG: Final = timedelta(days=30)


def is_valid_rate(given: object) -> bool:
    """Whether it is a number of items in a second: positive, and not without end."""
    return isinstance(given, int | float) and not isinstance(given, bool) and 0 < given <= MOST_RATE


class ItemPolicyFields(TypedDict, total=False):
    """The fields of a policy that items can have.

    Whoever claimed an item works on it, so nobody waits; and records of items are kept as long as their batch.
    """

    lease_for: Duration
    max_runtime: Duration
    final_errors: Errors
    retry_errors: Errors
    in_doubt: Doubt
    reconcile: Callable[[Any], Any] | None
    reconcile_after: Duration
    store_down: StoreDown
    max_result: int
    redact: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What a run was told.

    Attributes:
        policy: of items; attempts are counted here, because only an error that was seen ends an item.
        page_policy: of pages, whose lease is kept for as long as somebody works on them.
        terms: what of the policy the store has to know; records of items are kept until their batch goes.
    """

    handler: ItemHandler
    shape: Shape
    policy: Policy
    page_policy: Policy
    terms: Terms
    concurrency: int
    page: int
    max_attempts: int
    max_failed: int | str | None
    rate: float | None
    transaction: Callable[[], Any] | None
    commit: Commit
    wait: bool

    @property
    def by_page(self) -> bool:
        """Whether whole pages are committed."""
        return self.commit == "page"

    def status_after(self, write: Complete | Fail) -> int | None:
        """What the row of an item says after this end; None: it is to be run again."""
        if isinstance(write, Complete):
            return ItemStatus.COMPLETED
        if write.ending == "final":
            return ItemStatus.SKIPPED if write.error.type == SKIPPED else ItemStatus.FAILED
        # A hook that could not tell was asked before the handler was called: a person has to look.
        is_held = self.policy.in_doubt == "hold" or (self.policy.in_doubt == "reconcile" and not write.started)
        return ItemStatus.IN_DOUBT if write.ending == "doubt" and is_held else None


class PageStopped(Exception):
    """The batch was paused or cancelled, or this process is to end, while a page was on its way in one transaction."""


@dataclass(slots=True)
class PageWork:
    """A page that is worked on here, under its claim, and how many of its items have not ended.

    `handler_error` is what a handler raised while the page ran as a whole.
    """

    page: BatchPage
    call: Any
    items: list[StoredItem]
    open: int
    handler_error: Exception | None = None


@dataclass(slots=True)
class ReadyItem:
    """An item that is to be run next: with the answer to its claim, where that was sent in advance.

    `held` keeps the lease of the claim alive until the item begins.
    """

    work: PageWork
    item: StoredItem | None
    request: Request | None = None
    answer: Answer | Exception | None = None
    claimed_at: float = 0.0
    held: HeldLease | None = None


@dataclass(slots=True)
class PendingEnd:
    """An end that waits to be sent, and what came of it. `done` is set then, where somebody waits for it."""

    work: PageWork
    end: ItemEnd
    done: Any = None
    answer: Any = None
    error: Exception | None = None
    is_done: bool = False

    def finish(self, answer: Any, error: Exception | None = None) -> None:
        """Tell whoever waits what came of it."""
        self.answer, self.error, self.is_done = answer, error, True
        if self.done is not None:
            self.done.set()


def make_settings(
    handler: ItemHandler,
    shape: Shape,
    policy: Policy,
    *,
    concurrency: int,
    page: int,
    max_attempts: int,
    max_failed: int | str | None,
    rate: float | None,
    transaction: Callable[[], Any] | None,
    commit: Commit,
    wait: bool,
) -> RunSettings:
    """Check what a run was told.

    Raises:
        UsageError: something of it makes no sense.
    """
    for name, value in (("concurrency", concurrency), ("page", page), ("max_attempts", max_attempts)):
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST:
            raise UsageError(f"{name} is a whole number from 1 to {MOST}, not {value!r}; nothing ran.")
    if not isinstance(wait, bool):
        raise UsageError(f"wait is True or False, not {wait!r}; nothing ran.")
    if commit not in ("item", "page"):
        raise UsageError(f'commit is "item" or "page", not {commit!r}; nothing ran.')
    if rate is not None and not is_valid_rate(rate):
        raise UsageError(
            f"rate is a positive number of items in a second, at most {MOST_RATE:,}, not {rate!r}; nothing ran."
        )
    most_failed(max_failed, 0)
    if commit == "page":
        _check_page_commit(handler, transaction)
    if "session" in handler.parameters and transaction is None:
        raise UsageError("The handler asks for a session, and there is none; nothing ran. Give transaction=.")
    own = policy.replace(
        when_running="reject",
        max_attempts=None,
        final_errors=(*policy.final_errors, Skip, DoesNotDecode),
    )
    page_policy = Policy(
        lease_for=policy.lease_for,
        max_runtime=_LONG,
        keep_for=timedelta(microseconds=KEPT_US),
        when_running="reject",
    )
    return RunSettings(
        handler=handler,
        shape=shape,
        policy=own,
        page_policy=page_policy,
        terms=replace(terms_of(own), keep_us=KEPT_US),
        concurrency=concurrency,
        page=page,
        max_attempts=max_attempts,
        max_failed=max_failed,
        rate=None if rate is None else float(rate),
        transaction=transaction,
        commit=commit,
        wait=wait,
    )


def _check_page_commit(handler: ItemHandler, transaction: Callable[[], Any] | None) -> None:
    if transaction is None:
        raise UsageError(
            'commit="page" is for effects in the database, which commit with their page; nothing ran. Give '
            'transaction=, or commit="item".'
        )
    if "attempt" in handler.parameters:
        raise UsageError(
            'The handler asks for its attempt, and under commit="page" items have none of their own; nothing ran. '
            'Use commit="item".'
        )


def most_failed(given: int | str | None, total: int) -> int | None:
    """How many items may fail: a number, or a percentage of the total, such as "5%".

    Raises:
        UsageError: it is neither.
    """
    if given is None:
        return None
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given
    if isinstance(given, str) and given.endswith("%"):
        try:
            percent = float(given[:-1])
        except ValueError:
            percent = -1
        if 0 <= percent <= 100:  # noqa: PLR2004 - all of them
            return int(total * percent / 100)
    raise UsageError(f'max_failed is a number of items, or a part of them such as "5%", not {given!r}; nothing ran.')
