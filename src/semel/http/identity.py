"""Which request this is: its key, whose it is, and what it asks for. No I/O.

What always holds: everything that a request can be refused for before anything is looked up is refused here. Two
requests are the same only if key, scope, operation and everything that can change what they do are equal.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

from semel.core.key import Key, Shared, make_key
from semel.core.policy import Policy
from semel.errors import UsageError
from semel.http import problem
from semel.http.body import BadBody, joined, meaning
from semel.http.content_type import content_type_of
from semel.http.key_header import BadKey, key_of
from semel.http.problem import Refused
from semel.http.request import Request
from semel.http.route import Route, has_control_characters

VERSION: Final = "1"
"""Of what a fingerprint is made of. Another way of reading requests needs another number."""
_PLAIN: Final = 200
_HALF: Final = re.compile(r"[\ud800-\udfff]")
_CLOCKS: Final = timedelta(minutes=5)
_LONGEST_DATE: Final = 64


def check_path(request: Request) -> None:
    """Refuse a path of which a framework may overlook a part, and so take it for another than we do."""
    if has_control_characters(request.path):
        raise Refused(problem.path_malformed())


def key_in(request: Request, route: Route) -> str | None:
    """The key that the request carries; None where it carries none."""
    header = route.settings.key_header
    try:
        return key_of(request.headers.all(header), shortest=route.settings.shortest)
    except BadKey as bad:
        raise Refused(problem.malformed(header, str(bad))) from bad


def computed_key(request: Request, route: Route) -> Any:
    """The key that the rule of the route gives for a request without one; None where it is to pass."""
    settings = route.settings
    key = None if settings.key is None else settings.key(request)
    if key is None:
        if settings.required:
            raise Refused(problem.missing(settings.key_header))
        return None
    try:
        Key.of(key, operation="any")
    except UsageError as bad:
        raise Refused(problem.unusable()) from bad
    return key


def scope_of(who: Any) -> Any:
    """The scope that a rule gave; primary keys, which are mostly numbers or UUIDs, as text.

    A number and its text are one scope: one user may come with either, by the way of signing in.

    Raises:
        UsageError: it is something else, which may change while it means the same.
    """
    if isinstance(who, (str, tuple, Shared)):
        return who
    if isinstance(who, (int, UUID)) and not isinstance(who, bool):
        return str(who)
    message = (
        f"scope= gave something of type {type(who).__name__} for a request; nothing ran. Give text, a number, a UUID "
        f"or a tuple, such as the id of the user, or None where nobody is authenticated."
    )
    raise UsageError(message)


def identity_of(request: Request, route: Route, key: Any) -> Any:
    """The key within its operation: where several paths are one operation, the path belongs to it.

    Together they may be longer than a key can be; then their digest stands for them. It is text where the others are
    pairs, so the two never meet.
    """
    below, path = request.path_below, request.path
    if below.startswith("//"):  # which some frameworks route as if there were one slash
        below = "/" + below.lstrip("/")
        path = path.removesuffix(request.path_below) + below
    if route.is_exactly(below):
        return key
    rest = key if isinstance(key, tuple) else (key,)
    shown = "".join(map(str, (path, *rest)))
    if len(shown) <= _PLAIN and shown.isascii() and shown.isprintable():
        return (path, *rest)
    return make_key(path if _is_whole(path) else path.encode("utf-8", "surrogatepass"), *rest)


def _is_whole(path: str) -> bool:
    """Whether a path is text; servers leave bytes that are none as halves of characters."""
    return path.isascii() or _HALF.search(path) is None


def fingerprint_of(request: Request, route: Route) -> bytes:
    """What is compared when the key comes again: a digest of all that can change what the request does."""
    settings = route.settings
    # Of a header that was sent more than once some readers take the first line and others the last.
    content_type = ", ".join(request.headers.all("content-type"))
    coding = ", ".join(request.headers.all("content-encoding")).strip().lower()
    coding = "" if coding == "identity" else coding
    try:
        # What a packed body says cannot be seen, so its bytes count.
        said = meaning(request.body, content_type, exclude=settings.exclude, raw=settings.raw or coding != "")
    except BadBody as bad:
        raise Refused(problem.ambiguous(str(bad))) from bad
    kind = content_type_of(content_type).compared
    host = [", ".join(request.headers.all("host")).strip().lower()] if settings.compare_host else []
    head = _joined_texts(VERSION, request.method, request.path, request.query, kind, coding, *host)
    return sha256(head + joined((said,))).digest()


def _joined_texts(*texts: str) -> bytes:
    """Texts as `joined` puts their bytes together."""
    line = "".join([f"{len(text)}:{text}" for text in texts])
    if line.isascii():
        return line.encode()  # nearly all are: then there are as many bytes as characters
    # Half a character in a path or query, as some servers leave it there, is kept apart from every whole one.
    return joined([text.encode("utf-8", "surrogatepass") for text in texts])


def check_first_sent(request: Request, route: Route) -> None:
    """Refuse a request whose first try is older than what is kept, where the profile asks for the time of it."""
    wording = route.settings.wording
    if wording.first_sent is None:
        return
    given = request.headers.get(wording.first_sent)
    if not given:
        raise Refused(problem.missing(wording.first_sent))
    try:
        sent = None if len(given) > _LONGEST_DATE else parsedate_to_datetime(given)
    except (ValueError, OverflowError, TypeError) as bad:
        raise Refused(problem.malformed(wording.first_sent, "it is no date")) from bad
    if sent is None:
        raise Refused(problem.malformed(wording.first_sent, "it is no date"))
    if sent.tzinfo is None:
        raise Refused(problem.malformed(wording.first_sent, "it is no date in GMT"))
    now = datetime.now(UTC)
    if now - sent > (route.settings.policy or Policy()).keep_for or sent - now > _CLOCKS:
        raise Refused(problem.outside(wording))
