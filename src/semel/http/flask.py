"""Keys for Flask, claimed after its `before_request` functions and before its views.

What always holds: authentication in `before_request` comes first, so who lost the right gets the refusal and no replay.
A view finds its body as always. Its answer, and every replay, goes through the `after_request` functions; what they add
is not stored. The last of an answer leaves only after the outcome was recorded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, TypeVar, Unpack, cast

from semel.core.key import Shared
from semel.engine.sync_engine import SyncSemelBase
from semel.errors import UsageError
from semel.extras import requires
from semel.http.exchange import POLICY_PATH, Exchange, PassThrough, Respond, demand
from semel.http.policy_document import document
from semel.http.problem import Refused
from semel.http.response import Response
from semel.http.route import PolicyFor, Route, RouteOptions, Routes, Scope, settings_of
from semel.http.wsgi import Stream, SyncRecorder, body_of, request_of, take

with requires("semel.http.flask", "flask"):
    import flask
    from flask.typing import ResponseReturnValue

V = TypeVar("V", bound=Callable[..., Any])
Dispatch = Callable[[], ResponseReturnValue]

NAME: Final = "semel"
"""Under which `app.extensions` knows it."""
_MARK: Final = "_semel_once"
_BODY: Final = "semel.body"
_CHANGING: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_VARIABLE: Final = re.compile(r"[^/]*<[^<>]*>[^/]*")


class Idempotency:
    """Runs each keyed request once.

    Args:
        app: the application; or give it to `init_app` later.
        semel: the engine, a `Semel`.
        scope: from the request to whom the key belongs, taken from authenticated state; None means not authenticated.
            `request.state` holds what `before_request` functions left in `flask.g`. `SHARED` opts out.
        routes: which requests carry keys, beside the views under `once`; without it, every POST and PATCH that carries
            one.
        policy_path: where the policy document is served; None: nowhere.
        settings: what holds for every route and view that says nothing else; see `Route`.
    """

    def __init__(
        self,
        app: flask.Flask | None = None,
        *,
        semel: SyncSemelBase,
        scope: Scope | Shared,
        routes: Iterable[Route] | None = None,
        policy_path: str | None = POLICY_PATH,
        **settings: Unpack[RouteOptions],
    ) -> None:
        engine = demand(semel, SyncSemelBase, "A Flask application", "Semel")
        self._exchange = Exchange(engine, scope, routes, policy_path, settings)
        self._common = RouteOptions(methods=_CHANGING, policy=engine.policy) | settings
        if app is not None:
            self.init_app(app)

    def init_app(self, app: flask.Flask) -> None:
        """Stand before the views of `app`.

        Raises:
            UsageError: something of semel stands there already.
        """
        if NAME in app.extensions:
            raise UsageError(
                "This application has an Idempotency already; nothing was set up. One takes all its views."
            )
        app.extensions[NAME] = self
        dispatch = app.dispatch_request
        app.dispatch_request = partial(self._dispatched, app, dispatch)  # type: ignore[method-assign]
        # The first of all: once another function has parsed a form, nobody can have the bytes of the body any more.
        app.before_request_funcs.setdefault(None, []).insert(0, partial(self._prefetch_body, app))
        if self._exchange.policy_path is not None:
            view = partial(self._described, app)
            app.add_url_rule(self._exchange.policy_path, "semel_idempotency_policy", view, methods=["GET"])

    def once(self, **settings: Unpack[RouteOptions]) -> Callable[[V], V]:
        """Decorate a view, below `route`: it takes keys under these settings, whatever `routes=` says."""
        settings_of(settings)  # what is wrong with it is said here

        def decorate(view: V) -> V:
            setattr(view, _MARK, _Marked(settings, self._common, self._exchange.engine.policy_for))
            return view

        return decorate

    def _route(self, app: flask.Flask, request: flask.Request) -> Route | None:
        """The route of a request: that of its view, or the first of `routes=` that fits."""
        rule = request.url_rule
        marked = None if rule is None else _marked(app, rule.endpoint)
        if rule is None or marked is None:
            return self._exchange.find(request.method, request.path)
        route = marked.route(rule.rule)
        return route if request.method in route.settings.methods else None

    def _prefetch_body(self, app: flask.Flask) -> None:
        """Read the body of a request with a key, before any other function can take it."""
        request = flask.request
        route = self._route(app, request)
        if route is None:
            return
        settings = route.settings
        if settings.key is not None or settings.key_header in request.headers:
            try:
                request.environ[_BODY] = body_of(request.environ, settings.max_body)
            except Refused as refused:
                request.environ[_BODY] = refused

    def _dispatched(self, app: flask.Flask, dispatch: Dispatch) -> ResponseReturnValue:
        native = cast("Any", flask.request)._get_current_object()  # noqa: SLF001 - the documented way to the object
        route = self._route(app, native)
        if route is None:
            return dispatch()
        request = request_of(native.environ, vars(flask.g), native, (native.root_path, native.path))
        verdict = take(self._exchange, request, route, lambda _: _body(native.environ))
        match verdict:
            case PassThrough():
                return dispatch()
            case Respond(response):
                return _response(app, response)
            case SyncRecorder():
                return self._run(app, dispatch, verdict)

    def _run(self, app: flask.Flask, dispatch: Dispatch, recorder: SyncRecorder) -> flask.Response:
        try:
            with recorder.inside():
                response, handled = _viewed(app, dispatch)
            return _record(app, recorder, response, handled)
        except Exception as error:
            if recorder.done:
                raise
            return _response(app, recorder.on_error(error))
        except BaseException as error:
            if not recorder.done:
                recorder.abandon(error)
            raise

    def _described(self, app: flask.Flask) -> flask.Response:
        views = (
            marked.route(rule.rule)
            for rule in app.url_map.iter_rules()
            if (marked := _marked(app, rule.endpoint)) is not None
        )
        routes = Routes((*views, *self._exchange.routes.every), self._exchange.policy_path)
        return _response(app, document(routes))


def _viewed(app: flask.Flask, dispatch: Dispatch) -> tuple[flask.Response, Exception | None]:
    """The response of the view; or that of the error handler for what it raised, and what that was."""
    try:
        return app.make_response(dispatch()), None
    except Exception as error:  # noqa: BLE001 - Flask raises again what has no handler
        return app.make_response(app.handle_user_exception(error)), error


def _record(
    app: flask.Flask, recorder: SyncRecorder, response: flask.Response, handled: Exception | None
) -> flask.Response:
    """The response, recorded already or once its last chunk is there."""
    stream = Stream(recorder, holds_all=not response.is_streamed, error=handled)
    given: Any = response.response
    try:
        stream.head(response.status_code, list(response.headers))
        chunks = given if response.direct_passthrough else response.iter_encoded()
        stream.take(lambda: chunks, getattr(given, "close", None))
        stream.ready()
    except BaseException:
        response.close()
        raise
    if stream.instead is not None:
        response.close()
        return _response(app, stream.instead)
    response.headers.extend(stream.marks)
    stream.begun = True
    response.direct_passthrough = False
    response.response = stream.rest() if recorder.done else stream
    response.call_on_close(stream.close)  # also where another function puts its own iterable around this one
    return response


def _response(app: flask.Flask, response: Response) -> flask.Response:
    """A response of ours, as Flask has them."""
    made = app.response_class(response.body, response.status)
    del made.headers["Content-Type"]
    made.headers.extend(response.headers)
    return made


def _body(environ: dict[str, Any]) -> bytes | None:
    """What was read ahead."""
    read = environ[_BODY]
    if isinstance(read, Refused):
        raise read
    return cast("bytes | None", read)


class _Marked:
    """The settings of one view under `once`, and the routes that lead to it."""

    def __init__(self, given: RouteOptions, common: RouteOptions, policy_for: PolicyFor) -> None:
        self._given = given
        self._policy_for = policy_for
        self._common = common
        self._routes: dict[str, Route] = {}

    def route(self, rule: str) -> Route:
        """The route of one of its URL rules."""
        if rule not in self._routes:
            self._routes[rule] = Route(_pattern(rule), **self._given).over(self._common).declare(self._policy_for)
        return self._routes[rule]


def _marked(app: flask.Flask, endpoint: str) -> _Marked | None:
    return cast("_Marked | None", getattr(app.view_functions.get(endpoint), _MARK, None))


def _pattern(rule: str) -> str:
    """A URL rule as a path pattern: a variable stands for any segment, one of several segments for any rest."""
    before, several, _ = rule.partition("<path:")
    return f"{before.rpartition('/')[0]}/**" if several else _VARIABLE.sub("*", rule)
