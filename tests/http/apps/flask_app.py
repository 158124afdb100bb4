"""Flask with its extension; authentication is a `before_request` function."""

from __future__ import annotations

from flask import Flask, Response, g, request

from semel import Semel
from semel.http import Route
from semel.http.flask import Idempotency
from tests.http import shop

METHODS = ["POST", "PUT", "PATCH", "DELETE", "GET"]

semel = shop.make_engine(Semel)
app = Flask(__name__)
Idempotency(
    app,
    semel=semel,
    scope=lambda request: request.state.get("caller"),
    routes=[*(Route(path, **given) for path, given in shop.route_settings().items()), Route("/**")],
)


@app.before_request
def authenticate() -> tuple[str, int] | None:
    """Leave the caller in `g`, and refuse who has lost the right."""
    g.caller = shop.caller_of(request.headers.get("Authorization", ""))
    return None if shop.may(g.caller) else ("forbidden", 403)


def answered() -> Response:
    body = request.get_data()
    derived = semel.current().derive("step") if request.path == "/derived" else ""
    reply = shop.answer(request.path, request.query_string.decode(), body, derived)
    response = Response(reply.body, reply.status)
    if reply.headers:
        del response.headers["Content-Type"]
    for name, value in reply.headers:
        if name == "Content-Length":
            response.headers[name] = value
        else:
            response.headers.add(name, value)
    return response


def streamed() -> Response:
    return Response(shop.chunks(request.path), headers=shop.stream_headers(request.path))


@app.get("/effects")
def effects() -> str:
    """How many effects there are."""
    return str(shop.effects())


for path in shop.PATHS:
    app.add_url_rule(path, path, answered, methods=METHODS)
for path in shop.STREAMS:
    app.add_url_rule(path, path, streamed, methods=METHODS)
