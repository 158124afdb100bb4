"""A plain WSGI application under the WSGI middleware; authentication is a middleware outside it."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from semel import Semel
from semel.http import Route
from semel.http.wsgi import IdempotencyMiddleware
from tests.http import shop

semel = shop.make_engine(Semel)


class Authentication:
    """Leaves the caller in the environ, and refuses who has lost the right."""

    def __init__(self, app: WSGIApplication) -> None:
        self.app = app

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Look at the Authorization header."""
        caller = shop.caller_of(environ.get("HTTP_AUTHORIZATION", ""))
        environ["caller"] = caller
        if not shop.may(caller):
            return _sent(shop.Reply(403, (("Content-Type", "text/plain"),), b"forbidden"), start_response)
        return self.app(environ, start_response)


def shopping(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    path = environ["PATH_INFO"]
    if path == "/effects":
        return _sent(shop.Reply(200, (("Content-Type", "text/plain"),), str(shop.effects()).encode()), start_response)
    if path not in (*shop.PATHS, *shop.STREAMS):
        return _sent(shop.Reply(404, (("Content-Type", "text/plain"),), b"not found"), start_response)
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    if path in shop.STREAMS:
        start_response("200 OK", list(shop.stream_headers(path).items()))
        return shop.chunks(path)
    derived = semel.current().derive("step") if path == "/derived" else ""
    return _sent(shop.answer(path, environ.get("QUERY_STRING", ""), body, derived), start_response)


def _sent(reply: shop.Reply, start_response: StartResponse) -> list[bytes]:
    says = reply.status in (204, 304) or "Content-Length" in dict(reply.headers)
    length = [] if says else [("Content-Length", str(len(reply.body)))]
    start_response(f"{reply.status} {HTTPStatus(reply.status).phrase}", [*reply.headers, *length])
    return [reply.body]


app = Authentication(
    IdempotencyMiddleware(
        shopping,
        semel=semel,
        scope=lambda request: request.state.get("caller"),
        routes=[*(Route(path, **given) for path, given in shop.route_settings().items()), Route("/**")],
    )
)
