"""Plans of the audit chain and of tokens for the SQL stores: operations as commands, one plan for every server. No I/O.

- Entries of one chain that are asked for together are appended together: the head moves once for all of them.
- A head that has moved since it was seen is looked at again. Whoever is overtaken too often is told so, and tries again
  later; nothing of theirs was appended.
- Nothing of this is part of a caller's transaction: what is rolled back would be an action without a trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import fields, replace

from semel.core.operators.audit import (
    AddSeal,
    AppendEntry,
    AuditAnswer,
    EntriesDropped,
    EntriesFound,
    EntryAppended,
    EntryRedacted,
    FindStrays,
    HeadsFound,
    KeepFrom,
    ReadEntries,
    ReadHeads,
    ReadSeals,
    RedactEntry,
    ScanEntries,
    SealAdded,
    SealsFound,
    Stray,
    StraysFound,
    entry_after,
    head_at,
)
from semel.core.operators.chain import ChainHead, Seal, StoredEntry, hash_origin, name_chain
from semel.core.operators.tokens import (
    AddToken,
    FindToken,
    ListTokens,
    RevokeToken,
    StoredToken,
    TokenAnswer,
    TokenFound,
    TokensFound,
    TouchToken,
)
from semel.core.store import Answers, Plan
from semel.errors import RecordUnreadable, StoreUnavailable, UsageError
from semel.stores.rows import load_statements, storable
from semel.stores.sql.dialect import Asking, AuditDialect, Dialect, Row
from semel.stores.sql.errors import RowError

HEAD_COLUMNS: Final = tuple(field.name for field in fields(ChainHead))
ENTRY_COLUMNS: Final = tuple(field.name for field in fields(StoredEntry) if field.name != "is_open")
SEAL_COLUMNS: Final = tuple(field.name for field in fields(Seal))
TOKEN_COLUMNS: Final = tuple(field.name for field in fields(StoredToken))
_TRIES: Final = 20
_LATER: Final = ("among", "condition")


def shared_statements(parts: dict[str, str]) -> dict[str, str]:
    """The statements that all databases understand, in the words of one."""
    columns = {
        "head": ", ".join(HEAD_COLUMNS),
        "entry": ", ".join(ENTRY_COLUMNS),
        "a_entry": ", ".join(f"a.{name}" for name in ENTRY_COLUMNS),
        "seal": ", ".join(SEAL_COLUMNS),
        "token": ", ".join(TOKEN_COLUMNS),
        **{name: f"{{{name}}}" for name in _LATER},
    }
    return load_statements("semel.stores.sql.operators", "shared.sql", {**columns, **parts})


def entry_row(chain: bytes, entry: StoredEntry) -> Row:
    """The values of an entry: its chain, and then `ENTRY_COLUMNS`."""
    return (chain, *(getattr(entry, name) for name in ENTRY_COLUMNS))


def seal_row(chain: bytes, seal: Seal) -> Row:
    """The values of a seal: its chain, and then `SEAL_COLUMNS`."""
    return (chain, *(getattr(seal, name) for name in SEAL_COLUMNS))


def _refuse_joined(*, joined: bool) -> None:
    if joined:
        raise UsageError(
            "The audit chain and tokens are no part of your transaction; nothing was changed. Use them outside of it."
        )


def _append_entries(dialect: Dialect, operations: Sequence[AppendEntry], *, joined: bool) -> Plan:
    """Chain after chain, each as one list."""
    _refuse_joined(joined=joined)
    asked = [_stored(operation) for operation in operations]
    answers: dict[bytes, EntryAppended | Exception] = {}
    for scope in dict.fromkeys(operation.scope for operation in asked):
        mine = list({operation.id: operation for operation in asked if operation.scope == scope}.values())
        answers |= yield from _append_together(dialect.audit, scope, mine)
    return [answers[operation.id] for operation in asked]


def _append_together(
    audit: AuditDialect, scope: str, operations: Sequence[AppendEntry]
) -> Asking[dict[bytes, EntryAppended | Exception]]:
    """Entries of one chain as a list; if a single one is refused, one by one: the error is the answer of that one."""
    answers: dict[bytes, EntryAppended | Exception] = {}
    try:
        answers |= yield from _append_to_chain(audit, scope, operations)
    except RowError as problem:
        if len(operations) == 1:
            return {operations[0].id: (yield from _why_refused(audit, scope, problem.error))}
        for operation in operations:
            answers |= yield from _append_together(audit, scope, [operation])
    except Exception as error:  # noqa: BLE001 - of one chain, and of nobody else's
        return dict.fromkeys((operation.id for operation in operations), error)
    return answers


def _stored(operation: AppendEntry) -> AppendEntry:
    """An entry with texts as they come back, because they are hashed."""
    texts = {name: storable(getattr(operation, name)) for name in ("scope", "actor", "action", "target", "outcome")}
    return replace(operation, **texts)


def _append_to_chain(
    audit: AuditDialect, scope: str, operations: Sequence[AppendEntry]
) -> Asking[dict[bytes, EntryAppended]]:
    chain = name_chain(scope)
    for _ in range(_TRIES):
        head, now = yield from _head_of(audit, chain, scope)
        known = yield audit.command_among("known", [operation.id for operation in operations], chain)
        answers = {entry.id: EntryAppended(entry, head) for entry in map(_entry_of, known)}
        entries: list[StoredEntry] = []
        moved = head
        for operation in operations:
            if operation.id not in answers:
                entries.append(entry_after(moved, operation, now))
                moved = head_at(moved, entries[-1])
        if not entries or (yield from audit.append(head, moved, [entry_row(chain, entry) for entry in entries])):
            return answers | {entry.id: EntryAppended(entry, moved) for entry in entries}
    raise StoreUnavailable("Others appended to the audit chain at every try; nothing was appended.", conflict=True)


def _head_of(audit: AuditDialect, chain: bytes, scope: str) -> Asking[tuple[ChainHead, int]]:
    rows = yield audit.command("head", chain)
    if not rows:
        origin = hash_origin(scope)
        yield audit.command("insert_head", chain, scope, origin, origin)
        rows = yield audit.command("head", chain)
    *columns, now = rows[0]
    return ChainHead(**dict(zip(HEAD_COLUMNS, columns, strict=True))), now


def _why_refused(audit: AuditDialect, scope: str, error: Exception) -> Asking[Exception]:
    """The error of an entry that was refused: the chain goes on where its head says that it ends, or its own."""
    chain = name_chain(scope)
    head, _ = yield from _head_of(audit, chain, scope)
    if not (yield audit.command("entries", chain, head.seq, head.seq + 1, 1)):
        return error
    damaged = RecordUnreadable(
        f"The audit chain of the scope {scope!r} takes no entry: its head does not fit what follows it. Nothing was "
        f"appended. Run `semel audit verify`, and restore what it misses."
    )
    damaged.__cause__ = error
    return damaged


def _entry_of(row: Row) -> StoredEntry:
    return StoredEntry(**dict(zip(ENTRY_COLUMNS, row, strict=True)))


def _shown_entry(row: Row) -> StoredEntry:
    return replace(_entry_of(row[:-1]), is_open=bool(row[-1]))


def _read_heads(audit: AuditDialect, operation: ReadHeads) -> Asking[AuditAnswer]:
    if operation.scope is None:
        rows = yield audit.command("heads", operation.after, operation.limit)
        ((now,),) = yield audit.command("now")
        return HeadsFound(tuple(ChainHead(**dict(zip(HEAD_COLUMNS, row, strict=True))) for row in rows), now)
    chain = name_chain(storable(operation.scope) or "")
    rows = yield audit.command("head", chain)
    heads = tuple(ChainHead(**dict(zip(HEAD_COLUMNS, row[:-1], strict=True))) for row in rows)
    return HeadsFound(tuple(head for head in heads if head.chain > operation.after), rows[0][-1] if rows else 0)


def _find_strays(audit: AuditDialect, _operation: FindStrays) -> Asking[AuditAnswer]:
    entries = yield audit.command("stray_entries")
    seals = yield audit.command("stray_seals")
    strays = [Stray(chain, scope, seq, is_entry=True, head=head) for chain, scope, seq, head in entries]
    strays += [Stray(chain, scope, seq, is_entry=False, head=head) for chain, scope, seq, head in seals]
    return StraysFound(tuple(strays))


def _read_entries(audit: AuditDialect, operation: ReadEntries) -> Asking[AuditAnswer]:
    rows = yield audit.command("entries", operation.chain, operation.after, operation.upto, operation.limit)
    return EntriesFound(tuple(map(_entry_of, rows)))


def _read_seals(audit: AuditDialect, operation: ReadSeals) -> Asking[AuditAnswer]:
    rows = yield audit.command("seals", operation.chain, operation.after, operation.upto, operation.limit)
    return SealsFound(tuple(Seal(**dict(zip(SEAL_COLUMNS, row, strict=True))) for row in rows))


def _add_seal(audit: AuditDialect, operation: AddSeal) -> Asking[AuditAnswer]:
    return SealAdded((yield from audit.seal(operation.chain, operation.seal)))


def _scan(audit: AuditDialect, operation: ScanEntries) -> Asking[AuditAnswer]:
    conditions, values = ["1 = 1"], list[Any]()
    if operation.scopes is not None:
        chains = [name_chain(storable(scope) or "") for scope in operation.scopes]
        if not chains:
            return EntriesFound(())
        conditions.append(f"a.chain IN ({', '.join('?' * len(chains))})")
        values += chains
    for name in ("actor", "action", "target"):
        wanted = getattr(operation, name)
        if wanted is not None:
            conditions.append(f"a.{name} = ?")
            values.append(storable(wanted))
    if operation.before is not None:
        at_us, seq, chain = operation.before
        # The first of these is what an index is read by.
        conditions.append("a.at_us <= ? AND (a.at_us < ? OR a.seq < ? OR (a.seq = ? AND a.chain < ?))")
        values += [at_us, at_us, seq, seq, chain]
    name = "scan_open" if operation.only_open else "scan"
    rows = yield audit.command_where(name, " AND ".join(conditions), *values, operation.limit)
    return EntriesFound(tuple(map(_shown_entry, rows)))


def _redact(audit: AuditDialect, operation: RedactEntry) -> Asking[AuditAnswer]:
    rows = yield audit.command("has_written", operation.chain, operation.seq)
    if not rows or not rows[0][0]:
        return EntryRedacted(is_done=False)
    yield audit.command("redact", operation.chain, operation.seq)
    return EntryRedacted(is_done=True)


def _keep_from(audit: AuditDialect, operation: KeepFrom) -> Asking[AuditAnswer]:
    chain, kept_from = operation.chain, operation.kept_from
    yield audit.command("keep_from", kept_from, chain, kept_from, kept_from - 1)
    old = yield audit.command("old", chain, kept_from, operation.limit)
    if old:
        yield audit.command("drop", chain, old[-1][0], chain)
    return EntriesDropped(len(old))


def _token_of(row: Row) -> StoredToken:
    return StoredToken(**dict(zip(TOKEN_COLUMNS, row, strict=True)))


def _token_by(audit: AuditDialect, by: str, value: str | bytes | None) -> Asking[TokenFound]:
    rows = yield audit.command(by, value)
    return TokenFound(_token_of(rows[0][:-1]), rows[0][-1]) if rows else TokenFound(None, 0)


def _add_token(audit: AuditDialect, operation: AddToken) -> Asking[TokenAnswer]:
    name, scopes, by = storable(operation.name), storable(operation.scopes), storable(operation.by)
    new = (operation.id, name, operation.secret_hash, operation.roles, scopes, by, operation.lasts_us)
    yield audit.command("insert_token", *new)
    return (yield from _token_by(audit, "token_by_name", name))


def _find_token(audit: AuditDialect, operation: FindToken) -> Asking[TokenAnswer]:
    return (yield from _token_by(audit, "token_by_id", operation.id))


def _touch_token(audit: AuditDialect, operation: TouchToken) -> Asking[TokenAnswer]:
    yield audit.command("touch_token", operation.id, operation.every_us)
    return (yield from _token_by(audit, "token_by_id", operation.id))


def _list_tokens(audit: AuditDialect, operation: ListTokens) -> Asking[TokenAnswer]:
    rows = yield audit.command("tokens", storable(operation.after), operation.limit)
    ((now,),) = yield audit.command("now")
    return TokensFound(tuple(map(_token_of, rows)), now)


def _revoke_token(audit: AuditDialect, operation: RevokeToken) -> Asking[TokenAnswer]:
    name = storable(operation.name)
    found = yield from _token_by(audit, "token_by_name", name)
    if found.token is None or found.token.revoked_us is not None:
        return TokenFound(None, found.now_us)
    yield audit.command("revoke_token", storable(operation.by), name)
    return (yield from _token_by(audit, "token_by_name", name))


def _each(carry_out: Callable[[AuditDialect, Any], Asking[AuditAnswer | TokenAnswer]]) -> Callable[..., Plan]:
    def many(dialect: Dialect, operations: Sequence[Any], *, joined: bool) -> Plan:
        _refuse_joined(joined=joined)
        answers: Answers = []
        for operation in operations:
            answers.append((yield from carry_out(dialect.audit, operation)))
        return answers

    return many


OPERATOR_PLANS: Final[dict[type, Callable[..., Plan]]] = {
    AppendEntry: _append_entries,
    ReadHeads: _each(_read_heads),
    FindStrays: _each(_find_strays),
    ReadEntries: _each(_read_entries),
    ReadSeals: _each(_read_seals),
    AddSeal: _each(_add_seal),
    ScanEntries: _each(_scan),
    RedactEntry: _each(_redact),
    KeepFrom: _each(_keep_from),
    AddToken: _each(_add_token),
    FindToken: _each(_find_token),
    TouchToken: _each(_touch_token),
    ListTokens: _each(_list_tokens),
    RevokeToken: _each(_revoke_token),
}
