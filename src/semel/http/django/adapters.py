"""Django's requests and responses, and ours: the one turned into the other.

What always holds: rules see every header line that the server gives. Django keeps one value for each header of a
response, so repeated ones are sent as one, with commas between.

The body of a Django request, read before its view.

What always holds: it is read only where it fits the limits, it stays readable for the view, and one that was cut off is
never taken for whole. A body in chunks is a body, although Django takes it for an empty one under WSGI.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpResponse, RawPostDataException, UnreadablePostError

from semel.errors import UsageError
from semel.http import problem
from semel.http.problem import Refused
from semel.http.request import Headers, Request, State
from semel.http.response import Response, has_no_body


class Attributes(Mapping[str, Any]):
    """What middleware left with a request, looked up when it is asked for: `request.user` may cost a query."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self._native, name)
        except AttributeError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(vars(self._native))

    def __len__(self) -> int:
        return len(vars(self._native))


def request_of(django: Any, native: Any = None) -> Request:
    """A request as rules see it.

    Args:
        django: Django's request.
        native: what rules are given as `request.native`; the same where nothing else is named.
    """
    shown = django if native is None else native
    query, mount = django.META.get("QUERY_STRING", ""), django.META.get("SCRIPT_NAME", "").rstrip("/")
    headers, state = Headers(_lines(django)), State(Attributes(shown))
    return Request(django.method, django.path, query, headers, state, shown, b"", mount)


def _lines(django: Any) -> Iterable[tuple[str, str]]:
    """All header lines; servers of WSGI have joined repeated ones already."""
    scope = getattr(django, "scope", None)
    if scope is None:
        return tuple(django.headers.items())
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])


def response_of(response: Response, *, head: bool = False) -> Any:
    """A response of ours, as Django sends it."""
    made = HttpResponse(b"" if head else response.body, status=response.status)
    del made.headers["Content-Type"]  # what Django assumes where nothing is said
    add(made, response.headers)
    if not has_no_body(response.status):
        made.headers["Content-Length"] = str(len(response.body))
    return made


def add(response: Any, pairs: Iterable[tuple[str, str]]) -> None:
    """Put headers beside those a response has; a name that is there gets one more value."""
    for name, value in pairs:
        known = response.headers.get(name)
        response.headers[name] = value if known is None else f"{known}, {value}"


def pairs_of(response: Any) -> list[tuple[str, str]]:
    """The headers of Django's response."""
    return [(str(name), str(value)) for name, value in response.items()]


def ends_with_head(response: Any) -> bool:
    """Whether a client has all of the answer once it has its head; a server may send that before it asks for chunks."""
    return has_no_body(response.status_code) or response.headers.get("Content-Length") == "0"


def is_unrendered(response: Any) -> bool:
    """Whether the bytes of the response are still to be made."""
    return hasattr(response, "is_rendered") and not response.is_rendered


def rendered(response: Any) -> Any:
    """The response with its bytes made."""
    return response.render() if is_unrendered(response) else response


def body_of(django: Any, limit: int) -> bytes | None:
    """The whole body; None where it is over the limit.

    Raises:
        Refused: it is over Django's own limit, was cut off, or nobody can tell how long it is.
        UsageError: something before us has read it and kept nothing.
    """
    promised = problem.length_of(django.META.get("CONTENT_LENGTH"))
    if promised > limit:
        return None
    if hasattr(django, "environ") and "HTTP_TRANSFER_ENCODING" in django.META:
        _take_chunks(django, limit)
    body = _read(django)
    if len(body) < promised:
        raise Refused(problem.incomplete())
    return None if len(body) > limit else body


def _read(django: Any) -> bytes:
    try:
        body: bytes = django.body
    except RequestDataTooBig as large:
        raise Refused(problem.too_large(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)) from large
    except UnreadablePostError as cut:
        raise Refused(problem.incomplete()) from cut
    except RawPostDataException as read:
        message = (
            "The body of a request with a key was read as a stream before semel saw it; nothing ran. Let no middleware "
            "above semel's read request.POST or request.read(), or let it read request.body first."
        )
        raise UsageError(message) from read
    return body


def _take_chunks(django: Any, limit: int) -> None:
    """Put the body where Django keeps one that was read; a byte over the limit is enough to know."""
    if hasattr(django, "_body"):
        return
    if not django.environ.get("wsgi.input_terminated"):
        raise Refused(problem.length_required())
    try:
        body = django.environ["wsgi.input"].read(limit + 1)
    except OSError as cut:
        raise Refused(problem.incomplete()) from cut
    django._body, django._stream = body, BytesIO(body)  # noqa: SLF001 - as its property `body` does
    django.META["CONTENT_LENGTH"] = str(len(body))
    del django.META["HTTP_TRANSFER_ENCODING"]
