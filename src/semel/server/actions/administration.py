"""What an admin does: read the audit chain, check it, take out of it what is personal, and give out tokens.

- Entries belong to the scope of what they are about, and exist only for users who reach it.
- Old entries are deleted at the command line alone, by a user of the database who may: whoever gets hold of the secret
  of an admin cannot have what they did forgotten.
- Tokens belong to no scope: only an admin of all scopes gives them out.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Final

from semel.server.access import Permission, User
from semel.server.actions.checks import ActionsBase, check_reason, not_found_error
from semel.server.audit import Anchor, Audit, AuditEntry, AuditReport, read_anchors
from semel.server.refusals import NotFound, NotPossible
from semel.server.tokens import NewToken, Token, Tokens

PAGE: Final = 50
MOST: Final = 200


class Administration(ActionsBase):
    """The audit chain: entries, verify, redact. Tokens: list, add, revoke."""

    tokens: Tokens | None = None
    anchor: str | None = None
    """The file that seals are written down in; None: nowhere."""

    async def audit_entries(
        self,
        user: User,
        *,
        scope: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        target: str | None = None,
        only_open: bool = False,
        before: str | None = None,
        limit: int = PAGE,
    ) -> tuple[AuditEntry, ...]:
        """Entries that exist for a user, newest first; `before` is the place of the last one that was seen."""
        self.demand(user, Permission.AUDIT)
        scopes = self.scopes_asked(user, scope)
        if not scopes:
            return ()
        found = self._chain().entries(
            scope=None if None in scopes else [one for one in scopes if one is not None],
            actor=actor,
            action=action,
            target=target,
            only_open=only_open,
            before=before,
            limit=max(1, min(limit, MOST)),
        )

        async def read() -> tuple[AuditEntry, ...]:
            return tuple([entry async for entry in found])

        return await self.told(read())

    async def verify_audit(self, user: User, *, scope: str | None = None) -> tuple[AuditReport, ...]:
        """Compare the chains that exist for a user with what was written: one report, or one for each scope.

        Seals that were written down elsewhere are compared, where this server writes them down.
        """
        self.demand(user, Permission.AUDIT)
        scopes, chain = self.scopes_asked(user, scope), self._chain()
        anchors = await self.told(asyncio.to_thread(self._read_anchors))
        return tuple([await self.told(chain.verify(scope=one, anchors=anchors)) for one in scopes])

    async def redact_audit(self, user: User, scope: str, seq: int, *, reason: str) -> AuditEntry:
        """Take out of an entry what a person wrote, reason and details; answers the entry that says so.

        Raises:
            NotFound: there is no such entry for the user, or nothing is left in it.
        """
        self.demand(user, Permission.AUDIT)
        why = check_reason(reason)
        if not user.reaches(scope):
            raise NotFound(f"There is nothing to take out of entry {seq}; nothing was changed.")
        return await self.told(self._chain().redact(scope=scope, seq=seq, actor=user.name, reason=why))

    def _read_anchors(self) -> list[Anchor]:
        return read_anchors(self.anchor) if self.anchor is not None and Path(self.anchor).exists() else []

    async def list_tokens(self, user: User) -> tuple[Token, ...]:
        """All tokens, by name, those that are of no use any more too."""
        self.demand_everywhere(user, Permission.TOKENS)
        kept = self._tokens()

        async def read() -> tuple[Token, ...]:
            return tuple([token async for token in kept.list()])

        return await self.told(read())

    async def add_token(
        self, user: User, name: str, *, roles: list[str], scopes: list[str] | None, expires_in: timedelta
    ) -> NewToken:
        """Make a token; its secret is shown now and never again."""
        self.demand_everywhere(user, Permission.TOKENS)
        made = self._tokens().create(name, roles=roles, scopes=scopes, expires_in=expires_in, by=user.name)
        return await self.told(made)

    async def revoke_token(self, user: User, name: str) -> None:
        """Have a token be of no use from now on.

        Raises:
            NotFound: there is none of that name, or it was revoked before.
        """
        self.demand_everywhere(user, Permission.TOKENS)
        if not await self.told(self._tokens().revoke(name, by=user.name)):
            raise not_found_error(f"token {name!r} that could be revoked")

    def _chain(self) -> Audit:
        if self.audit is None:
            raise NotPossible("This store keeps no audit chain; nothing was done.", because="not_kept")
        return self.audit

    def _tokens(self) -> Tokens:
        if self.tokens is None:
            raise NotPossible(
                "Users are not known by tokens here; nothing was done. Ask those who run the application.",
                because="not_kept",
            )
        return self.tokens
