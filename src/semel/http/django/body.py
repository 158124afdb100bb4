"""The body of a Django request, read before its view.

What always holds: it is read only where it fits the limits, it stays readable for the view, and one that was cut off is
never taken for whole. A body in chunks is a body, although Django takes it for an empty one under WSGI.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import RawPostDataException, UnreadablePostError

from semel.errors import UsageError
from semel.http import body_problems, problem
from semel.http.problem import Refused


def body_of(django: Any, limit: int) -> bytes | None:
    """The whole body; None where it is over the limit.

    Raises:
        Refused: it is over Django's own limit, was cut off, or nobody can tell how long it is.
        UsageError: something before us has read it and kept nothing.
    """
    promised = body_problems.length_of(django.META.get("CONTENT_LENGTH"))
    if promised > limit:
        return None
    if hasattr(django, "environ") and "HTTP_TRANSFER_ENCODING" in django.META:
        _take_chunks(django, limit)
    body = _read(django)
    if len(body) < promised:
        raise Refused(body_problems.incomplete())
    return None if len(body) > limit else body


def _read(django: Any) -> bytes:
    try:
        body: bytes = django.body
    except RequestDataTooBig as large:
        raise Refused(problem.too_large(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)) from large
    except UnreadablePostError as cut:
        raise Refused(body_problems.incomplete()) from cut
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
        raise Refused(body_problems.length_required())
    try:
        body = django.environ["wsgi.input"].read(limit + 1)
    except OSError as cut:
        raise Refused(body_problems.incomplete()) from cut
    django._body, django._stream = body, BytesIO(body)  # noqa: SLF001 - as its property `body` does
    django.META["CONTENT_LENGTH"] = str(len(body))
    del django.META["HTTP_TRANSFER_ENCODING"]
