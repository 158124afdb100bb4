"""Open an account once: however often the form is sent, there is one account, and one key to it.

The caller makes the API key and sends its SHA-256, so that no secret is in a response that is kept for replays.
"""

import re
from datetime import datetime
from typing import Any, Final

import msgspec
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from examples.payments.parts import Parts
from examples.payments.problems import Refused, key_reused, read_body
from examples.payments.tables import Account, Credential
from semel.http import transaction

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_EMAIL: Final = re.compile(r"[^@\s\x00]{1,64}@[^@\s\x00]{1,180}")


class Application(msgspec.Struct, frozen=True):
    """Who wants an account, and the digest of the API key that will open it."""

    name: str
    email: str
    api_key_sha256: str

    def __post_init__(self) -> None:
        if not self.name.strip() or len(self.name) > 80 or not self.name.isprintable():
            raise ValueError("a name has 1 to 80 characters")
        if not _EMAIL.fullmatch(self.email):
            raise ValueError("the email has no address")
        if not _DIGEST.fullmatch(self.api_key_sha256):
            raise ValueError("api_key_sha256 is a SHA-256 in hexadecimal digits")


async def open_account(
    session: AsyncSession, account_id: str, application: Application, now: datetime
) -> dict[str, Any]:
    """The account with its key, in the caller's transaction; the one that is there, where the key made it before."""
    opened = {"account_id": account_id, "name": application.name, "email": application.email}
    known = await session.get(Account, account_id)
    if known is not None:
        credential = await session.get(Credential, application.api_key_sha256)
        holder = None if credential is None else credential.account_id
        if (known.name, known.email, holder) != (application.name, application.email, account_id):
            raise key_reused("account")
        return opened
    if await session.scalar(select(Account.id).where(Account.email == application.email)):
        raise _email_taken("this address has an account. Sign in, or take another one.")
    if await session.get(Credential, application.api_key_sha256) is not None:
        raise _email_taken("this API key opens an account already. Make another one.")
    # Closes the race of two who ask at once for one address, or with one API key: the second waits for the first.
    try:
        async with session.begin_nested():
            session.add(Account(id=account_id, name=application.name, email=application.email, created_at=now))
            await session.flush()
            digest = application.api_key_sha256
            session.add(Credential(digest=digest, account_id=account_id, kind="key", created_at=now))
    except IntegrityError:
        raise _email_taken("this address or this API key has just got an account. Sign in, or take others.") from None
    return opened


def _email_taken(what: str) -> Refused:
    return Refused(409, "email-taken", f"Nothing was done: {what}")


async def handle(parts: Parts, request: Request) -> Response:
    """`POST /accounts`: account, key and response commit in one transaction."""
    application = await read_body(request, Application)
    account_id = f"acc_{parts.semel.current().derive('account')[:24]}"
    body = await open_account(transaction(), account_id, application, parts.settings.clock())
    return JSONResponse(body, 201)
