"""One keyed request on its way through a FastAPI route: where dependency, endpoint and response meet.

What always holds: all of it runs in one task that no disconnecting client stops, with the uploaded files. Outside a
transaction the answer is looked at as it is sent, whichever exception handler made it; in one it is settled before the
commit, and what takes it back is raised through the session's own dependency.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, ExitStack
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response as Answered

from semel.core.flow import arun
from semel.engine.async_engine import AsyncAttempt, AsyncCall, AsyncEngine
from semel.engine.runtime import AsyncTurn
from semel.errors import UsageError
from semel.http.asgi import App, Call, Message, Receive, ResponseRecorder, Scope, SendMessage, take_back_cancel
from semel.http.exchange import Exchange, NoAnswer, Respond, RunApp
from semel.http.response import Response, kept_whole
from semel.http.transaction import CommitListener, running_in

Handler = Callable[[Request], Awaitable[Answered]]

KEYED_REQUEST: Final = "semel.http.keyed_request"
"""Where the ASGI scope holds the keyed request."""
_FILES: Final = "fastapi_middleware_astack"


class RespondInstead(Exception):
    """The dependency's verdict: the endpoint is not called, and this is sent. It never leaves the handler."""

    def __init__(self, response: Response) -> None:
        super().__init__("the endpoint is not called: a replay or a problem is sent")
        self.response = response


class MustWait(Exception):
    """The dependency's verdict: another request runs the key, so the session is given back and all is asked again."""


class RollbackAndRespond(Exception):
    """The transaction is taken back, and this is sent. The session's dependency sees it pass, and rolls back."""

    def __init__(self, response: Answered) -> None:
        super().__init__("the response does not say that it happened: what the endpoint wrote is rolled back")
        self.response = response


class KeyedRequest(Call):
    """A request with a key, from its body to its answer."""

    def __init__(
        self, app: App, scope: Scope, receive: Receive, send: SendMessage, exchange: Exchange[AsyncEngine]
    ) -> None:
        super().__init__(app, scope, receive, send, exchange)
        self.passes = False
        self.joined: Joined | None = None
        self.attempt: AsyncAttempt | None = None
        self.asked = b""
        self._route = app
        self._inside = ExitStack()
        self._recorder: ResponseRecorder | None = None
        self._opened: AsyncCall[Response] | None = None
        self._taken_back: Answered | None = None
        self._turn: AsyncTurn | None = None
        self._must_wait = False

    @property
    def is_open(self) -> bool:
        """Whether the dependency has claimed."""
        return self._opened is not None

    async def read(self, limit: int) -> bool:
        """Read the whole body; gives whether it is within the limit."""
        body = await self.body(limit)
        self.asked = body or b""
        return body is not None

    def turn(self, make: Callable[[], AsyncTurn]) -> AsyncTurn:
        """The turn of this request, the same however often its route is run.

        Raises:
            MustWait: another request of this process is at the key.
        """
        turn = self._turn = self._turn or make()
        if not turn.take():
            raise MustWait
        return turn

    def _end_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.end()

    def give_way(self) -> Answered:
        """End this run of the route without an answer: it is run again once the key is free."""
        self._must_wait = True
        return _Nothing()

    def begin(self, run_app: RunApp, exchange: Exchange[AsyncEngine], session: Any) -> None:
        """The dependency has claimed: this is the current attempt now, and the answer counts."""
        call = run_app.call
        assert isinstance(call, AsyncCall)  # noqa: S101 - the engine is of this colour
        self._opened = call
        self._inside.enter_context(running_in(session))
        self._inside.enter_context(call.current())
        if session is None:
            self._recorder = ResponseRecorder(self, run_app, exchange)
        else:
            self.joined = Joined(run_app, exchange, session)

    def note_raised(self, error: Exception) -> None:
        """The endpoint raised: what an exception handler answers to it, if there is one, counts by policy first."""
        if self._recorder is not None:
            self._recorder.error = error

    def leave_transaction(self) -> None:
        """It is about to end: what runs after the answer, such as background tasks, must not join it."""
        if self.joined is not None:
            self._inside.close()

    async def run_to_end(self) -> None:
        """Run the route, and send what comes of it."""
        try:
            await self._run_route()
            while self._must_wait:
                assert self._turn is not None  # noqa: S101 - that is what says so
                await self._turn.wait()
                self._must_wait = self._given = False
                await self._run_route()
        finally:
            self.allow_disconnect()
            self._end_turn()
        if self._taken_back is not None:
            await self._taken_back(self.scope, self._heard, self.send)
        elif self._recorder is not None and self._recorder.instead is not None:
            await self.answer(self._recorder.instead)

    async def _run_route(self) -> None:
        # The files of a form belong to the request: with the outer stack a client that leaves would close them.
        async with AsyncExitStack() as files:
            with self._inside:
                await self._routed({**self._shown(), KEYED_REQUEST: self, _FILES: files})

    async def _routed(self, scope: Scope) -> None:
        try:
            with self.stoppable():
                await self._route(scope, self._heard, self._sent)
            if (recorder := self._waiting()) is not None:
                await recorder.failed(NoAnswer("the route ended without a complete answer"))
        except RollbackAndRespond as end:
            self._taken_back = end.response
        except Exception as error:
            if (stopped := self._stopped()) is not None:
                await self.end_stopped(stopped)
            elif (recorder := self._waiting()) is None:
                raise  # nothing was claimed, or what happens after the answer is the application's own business
            else:
                await recorder.failed(error)
        except BaseException as error:
            if (stopped := self._stopped()) is not None:
                take_back_cancel()
                await self.end_stopped(stopped)
                return
            if self._waiting() is not None and self._opened is not None:
                await self._opened.abandon(error)
            raise

    def _stopped(self) -> ResponseRecorder | None:
        """The answer, where it was stopped before its end."""
        return None if self._recorder is None or self._recorder.stopped is None else self._recorder

    def _waiting(self) -> ResponseRecorder | None:
        """The answer, while it is not settled."""
        return None if self._recorder is None or self._recorder.run_app.is_settled else self._recorder

    async def _heard(self) -> Message:
        return await (self._received_again() if self.passes else self._received())

    async def _sent(self, message: Message) -> None:
        if self.joined is not None:
            await self.joined.check_commit()
        self._end_turn()  # the transaction is over: nobody has to wait for what comes after the answer
        await (self.send(message) if self._recorder is None else self._recorder.send(message))


class Joined:
    """An open call in the transaction of the endpoint's session, settled by the route before that commits."""

    def __init__(self, run_app: RunApp, exchange: Exchange[AsyncEngine], session: Any) -> None:
        self._run_app = run_app
        self._exchange = exchange
        self._listener = CommitListener(session)
        self._listening = ExitStack()
        self._is_recorded = False

    async def check_commit(self) -> None:
        """Called before anything is sent, when the session's dependency has ended: it must have committed.

        Raises:
            TakenBack: it has not, or that could not be seen.
        """
        if not self._is_recorded:
            return
        self._is_recorded = False
        self._listening.close()
        if not self._listener.has_heard:
            instead = await arun(self._exchange.check_commit(self._run_app), self._run_app.perform)
            if instead is not None:
                raise RollbackAndRespond(answer_of(instead.response))

    async def answered(self, response: Answered) -> Answered:
        """Record what the endpoint answered; what is given back is sent after the commit.

        Raises:
            TakenBack: it is not to be committed.
            UsageError: the answer is a stream.
        """
        body = getattr(response, "body", None)
        if not isinstance(body, bytes | memoryview) or hasattr(response, "body_iterator"):
            return await self.failed(_stream_refused())
        headers, most = _texts(response.raw_headers), self._run_app.route.settings.max_response
        answer = kept_whole(most, response.status_code, headers, bytes(body))
        verdict = await arun(self._exchange.on_response(self._run_app, answer), self._run_app.perform)
        if isinstance(verdict, Respond):
            raise RollbackAndRespond(answer_of(verdict.response))
        for name, value in verdict.marks:
            response.headers.append(name, value)
        if verdict.undo is not None:
            raise RollbackAndRespond(response) from verdict.undo
        self._is_recorded = True
        self._listening.enter_context(self._listener)
        return response

    async def failed(self, error: Exception) -> Answered:
        """Record an error by policy; it is raised again, and the session's dependency rolls back."""
        verdict = await arun(self._exchange.on_error(self._run_app, error), self._run_app.perform)
        if isinstance(verdict, Respond):
            raise RollbackAndRespond(answer_of(verdict.response)) from error
        raise error

    async def abandon(self, error: BaseException) -> None:
        """It was cut off."""
        call = self._run_app.call
        assert isinstance(call, AsyncCall)  # noqa: S101 - the engine is of this colour
        await call.abandon(error)


async def settle_response(handler: Handler, request: Request) -> Answered:
    """What the route answers; where the call joined a transaction, recorded in it."""
    keyed: KeyedRequest | None = request.scope.get(KEYED_REQUEST)
    try:
        return await (handler(request) if keyed is None else _call_handler(handler, request, keyed))
    except RespondInstead as end:
        return answer_of(end.response)
    except MustWait:
        assert keyed is not None  # noqa: S101 - nobody else raises it
        return keyed.give_way()
    finally:
        if keyed is not None:
            keyed.leave_transaction()


async def _call_handler(handler: Handler, request: Request, keyed: KeyedRequest) -> Answered:
    try:
        response = await handler(request)
    except Exception as error:
        if keyed.joined is not None:
            return await keyed.joined.failed(error)
        keyed.note_raised(error)
        raise
    except BaseException as error:
        if keyed.joined is not None:
            await keyed.joined.abandon(error)
        raise
    return response if keyed.joined is None else await keyed.joined.answered(response)


def _texts(raw: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in raw]


class _Nothing(Answered):
    """Sends nothing."""

    async def __call__(self, scope: Scope, receive: Receive, send: SendMessage) -> None:
        """Called by FastAPI where an answer would be sent."""


def answer_of(response: Response) -> Answered:
    """A response of ours, as FastAPI sends it."""
    made = Answered(response.body, response.status)
    made.raw_headers.extend(
        (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in response.headers
    )
    return made


def _stream_refused() -> UsageError:
    message = (
        "A route whose idempotency has transaction= answered with a stream or a file, which is not known before the "
        "commit; the transaction is rolled back. Answer with a whole response, or leave transaction= out."
    )
    return UsageError(message)
