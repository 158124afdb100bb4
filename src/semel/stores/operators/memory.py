"""The audit chain and tokens in memory, which every store has to be like."""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from semel.core.operators.audit import (
    AboutAudit,
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
    head_sealed,
)
from semel.core.operators.chain import ChainHead, Phase, Seal, StoredEntry, name_chain, new_head
from semel.core.operators.tokens import (
    AboutTokens,
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


class MemoryAudit:
    """Chains by their names. Tests reach into the tables to tamper with them."""

    def __init__(self) -> None:
        self.heads: dict[bytes, ChainHead] = {}
        self.entries: dict[bytes, dict[int, StoredEntry]] = {}
        self.seals: dict[bytes, dict[int, Seal]] = {}

    def apply(self, operation: AboutAudit, now: int) -> AuditAnswer:
        """Carry out `operation` at the instant `now`."""
        match operation:
            case AppendEntry():
                return self._append(operation, now)
            case ReadHeads(scope, after, limit):
                found = sorted(head.chain for head in self.heads.values() if scope is None or head.scope == scope)
                return HeadsFound(tuple(self.heads[chain] for chain in found if chain > after)[:limit], now)
            case FindStrays():
                return StraysFound(tuple(self._strays()))
            case ReadEntries(chain, after, upto, limit):
                rows = sorted(self.entries.get(chain, {}).items())
                return EntriesFound(tuple(row for seq, row in rows if after < seq <= upto)[:limit])
            case ReadSeals(chain, after, upto, limit):
                seals = sorted(self.seals.get(chain, {}).items())
                return SealsFound(tuple(seal for last, seal in seals if after < last <= upto)[:limit])
            case AddSeal(chain, seal):
                return self._seal(chain, seal)
            case ScanEntries():
                return EntriesFound(tuple(self._scan(operation)[: operation.limit]))
            case RedactEntry(chain, seq):
                entry = self.entries.get(chain, {}).get(seq)
                if entry is None or entry.written is None:
                    return EntryRedacted(is_done=False)
                self.entries[chain][seq] = replace(entry, written=None)
                return EntryRedacted(is_done=True)
            case KeepFrom():
                return self._drop(operation)
            case _:
                assert_never(operation)

    def _append(self, operation: AppendEntry, now: int) -> EntryAppended:
        chain = name_chain(operation.scope)
        head = self.heads.get(chain) or new_head(operation.scope, now)
        entries = self.entries.setdefault(chain, {})
        for known in entries.values():
            if known.id == operation.id:
                return EntryAppended(known, head)
        entry = entry_after(head, operation, now)
        entries[entry.seq] = entry
        self.heads[chain] = head_at(head, entry)
        return EntryAppended(entry, self.heads[chain])

    def _seal(self, chain: bytes, seal: Seal) -> SealAdded:
        head = self.heads.get(chain)
        if head is None or head.sealed != seal.first - 1:
            return SealAdded(is_done=False)
        self.seals.setdefault(chain, {})[seal.last] = seal
        self.heads[chain] = head_sealed(head, seal)
        return SealAdded(is_done=True)

    def _drop(self, operation: KeepFrom) -> EntriesDropped:
        chain, kept_from = operation.chain, operation.kept_from
        head = self.heads.get(chain)
        if head is None or head.sealed < kept_from - 1:
            return EntriesDropped(0)
        self.heads[chain] = replace(head, kept_from=max(head.kept_from, kept_from))
        old = sorted(seq for seq in self.entries.get(chain, {}) if seq < kept_from)[: operation.limit]
        for seq in old:
            del self.entries[chain][seq]
        return EntriesDropped(len(old))

    def _scan(self, operation: ScanEntries) -> list[StoredEntry]:
        wanted = None if operation.scopes is None else frozenset(map(name_chain, operation.scopes))
        found: list[tuple[tuple[int, int, bytes], StoredEntry]] = []
        for chain, entries in self.entries.items():
            ended = {entry.ends for entry in entries.values() if entry.ends}
            for entry in entries.values():
                place = (entry.at_us, entry.seq, chain)
                if wanted is not None and chain not in wanted:
                    continue
                if operation.before is not None and place >= operation.before:
                    continue
                shown = replace(entry, is_open=entry.phase == Phase.BEGUN and entry.seq not in ended)
                if _is_asked_for(operation, shown):
                    found.append((place, shown))
        return [entry for _, entry in sorted(found, key=lambda one: one[0], reverse=True)]

    def _strays(self) -> list[Stray]:
        strays: list[Stray] = []
        for chain in {*self.entries, *self.seals}:
            head = self.heads.get(chain)
            end = None if head is None else head.seq
            scope = "" if head is None else head.scope
            strays += [
                Stray(chain, entry.scope, seq, is_entry=True, head=end)
                for seq, entry in self.entries.get(chain, {}).items()
                if end is None or not 1 <= seq <= end
            ]
            sealed = None if head is None else head.sealed
            strays += [
                Stray(chain, scope, last, is_entry=False, head=sealed)
                for last in self.seals.get(chain, {})
                if sealed is None or last > sealed
            ]
        return strays


def _is_asked_for(operation: ScanEntries, entry: StoredEntry) -> bool:
    return (
        operation.actor in (None, entry.actor)
        and operation.action in (None, entry.action)
        and operation.target in (None, entry.target)
        and (entry.is_open or not operation.only_open)
    )


class MemoryTokens:
    """Tokens by name."""

    def __init__(self) -> None:
        self._tokens: dict[str, StoredToken] = {}

    def apply(self, operation: AboutTokens, now: int) -> TokenAnswer:
        """Carry out `operation` at the instant `now`."""
        match operation:
            case AddToken():
                token = self._tokens.setdefault(operation.name, token_of(operation, now))
                return TokenFound(token, now)
            case FindToken(id_):
                return TokenFound(self._by_id(id_), now)
            case TouchToken(id_, every_us):
                found = self._by_id(id_)
                if found is not None and (found.used_us is None or found.used_us <= now - every_us):
                    found = self._tokens[found.name] = replace(found, used_us=now)
                return TokenFound(found, now)
            case ListTokens(after, limit):
                names = sorted(name for name in self._tokens if name > after)
                return TokensFound(tuple(self._tokens[name] for name in names[:limit]), now)
            case RevokeToken(name, by):
                token_or_none = self._tokens.get(name)
                if token_or_none is None or token_or_none.revoked_us is not None:
                    return TokenFound(None, now)
                self._tokens[name] = replace(token_or_none, revoked_us=now, revoked_by=by)
                return TokenFound(self._tokens[name], now)
            case _:
                assert_never(operation)

    def _by_id(self, id_: bytes) -> StoredToken | None:
        return next((token for token in self._tokens.values() if token.id == id_), None)


def token_of(operation: AddToken, now: int) -> StoredToken:
    """The token that is kept."""
    return StoredToken(
        id=operation.id,
        name=operation.name,
        secret_hash=operation.secret_hash,
        roles=operation.roles,
        scopes=operation.scopes,
        created_us=now,
        created_by=operation.by,
        expires_us=now + operation.lasts_us,
    )
