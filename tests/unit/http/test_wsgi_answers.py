"""The WSGI middleware once the application runs: its answer on the way, and its errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from wsgiref.validate import validator

import pytest

from semel import Policy, Semel
from semel.engine.call_flow import Result
from semel.engine.sync_engine import SyncCall
from semel.errors import UsageError
from semel.http.exchange import NoAnswer
from semel.http.response import Response
from semel.http.wsgi import EndWithheld
from tests.unit.http.wsgi_world import (
    PLAIN,
    App,
    Closing,
    Final,
    Got,
    ask,
    environ,
    lose_the_lease,
    noting,
    raising,
    served,
    status,
    under,
)


@pytest.fixture
def semel() -> Iterator[Semel]:
    with Semel("memory://", policy=Policy(final_errors=(Final,), in_doubt="hold")) as engine:
        yield engine


def test_the_attempt_is_current_in_the_call_and_in_every_chunk(semel: Semel) -> None:
    def chunks() -> Iterator[bytes]:
        yield semel.current().derive("step").encode()
        yield semel.current().derive("step").encode()

    class Called(App):
        def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
            self.calls.append(semel.current().derive("step").encode())
            return super().__call__(environ, start_response)

    app = Called(answer=chunks)
    assert ask(under(app, semel)).body == app.calls[0] * 2
    with pytest.raises(UsageError):
        semel.current()


def test_chunks_leave_as_they_come(semel: Semel) -> None:
    made: list[bytes] = []

    def chunks() -> Iterator[bytes]:
        for chunk in (b"one", b"two"):
            made.append(chunk)
            yield chunk

    stream = iter(under(App(answer=chunks), semel)(environ(), Got().start))
    assert (next(stream), made) == (b"one", [b"one"])
    assert (next(stream), made) == (b"two", [b"one", b"two"])


def test_the_end_is_held_until_it_is_recorded(semel: Semel) -> None:
    stream = iter(under(App(answer=lambda: iter([b"one"])), semel)(environ(), Got().start))
    next(stream)
    assert status(semel) == "running"
    with pytest.raises(StopIteration):
        next(stream)
    assert status(semel) == "completed"


def test_the_last_promised_byte_is_held_until_it_is_recorded(semel: Semel) -> None:
    app = App(headers=[PLAIN, ("Content-Length", "6")], answer=lambda: iter([b"one", b"two"]))
    stream = iter(under(app, semel)(environ(), Got().start))
    statuses = [(chunk, status(semel)) for chunk in stream]
    assert statuses == [(b"one", "running"), (b"two", "completed")]


@pytest.mark.parametrize("answer", [[b"a", b"b"], (b"a",), []])
def test_a_complete_answer_is_recorded_before_it_begins(semel: Semel, answer: Any) -> None:
    seen: list[Any] = []
    result: Any = under(App(answer=lambda: answer), semel)(environ(), noting(seen, lambda: status(semel)))
    assert (seen, list(result), len(result)) == (["completed"], list(answer), len(answer))


def test_a_refused_settlement_is_a_problem_while_nothing_has_left(
    semel: Semel, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_the_lease(monkeypatch)
    app = App(headers=[PLAIN, ("Content-Length", "2")])
    app.answer = lambda: Closing(app, iter([b"ab"]))
    assert (ask(under(app, semel)).status, app.closed) == (503, 1)


def test_a_refused_settlement_breaks_off_what_has_begun(semel: Semel, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_the_lease(monkeypatch)
    app = App()
    app.answer = lambda: Closing(app, iter([b"ab"]))
    with pytest.raises(EndWithheld):
        ask(under(app, semel))
    assert app.closed == 1


def test_a_server_that_asks_for_no_more_stops_nothing(semel: Semel) -> None:
    app = App()
    app.answer = lambda: Closing(app, iter([b"one", b"two", b"three"]))
    middleware = under(app, semel)
    stream: Any = middleware(environ(), Got().start)
    next(iter(stream))
    stream.close()
    assert app.closed == 1
    assert ask(middleware).body == b"onetwothree"


def test_an_answer_is_closed_once(semel: Semel) -> None:
    app = App()
    app.answer = lambda: Closing(app, [b"one"])
    ask(under(app, semel))
    assert app.closed == 1


def test_what_is_written_is_sent_and_replayed(semel: Semel) -> None:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        write = start_response("200 OK", [PLAIN])
        write(b"one ")
        write(b"two ")
        return [b"three"]

    middleware = under(validator(app), semel)
    assert [ask(middleware).body, ask(middleware).body] == [b"one two three"] * 2


def test_writing_to_a_client_that_has_left_stops_nothing(semel: Semel) -> None:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        write = start_response("200 OK", [PLAIN])
        write(b"one ")
        write(b"two")
        return []

    def broken(chunk: bytes) -> None:
        raise BrokenPipeError

    middleware = under(app, semel)
    assert list(middleware(environ(), lambda *_: broken)) == []
    assert ask(middleware).body == b"one two"


def test_an_answer_without_content_has_no_length(semel: Semel) -> None:
    middleware = under(App(status="204 No Content", headers=[], answer=lambda: iter([b""])), semel)
    ask(middleware)
    again = ask(middleware)
    assert (again.status, again.body, again.header("content-length")) == (204, b"", [])


def test_the_marks_of_a_profile_stand_beside_the_headers(semel: Semel) -> None:
    middleware = under(App(), semel, profile="stripe-v1")
    assert [ask(middleware).header("idempotent-replayed"), ask(middleware).header("idempotent-replayed")] == [
        [],
        ["true"],
    ]


@pytest.mark.parametrize(("method", "has_body"), [("GET", True), ("HEAD", False)])
def test_the_policy_is_served(semel: Semel, method: str, *, has_body: bool) -> None:
    got = ask(under(App(), semel), None, b"", REQUEST_METHOD=method, PATH_INFO="/.well-known/idempotency-policy")
    assert (got.status, bool(got.body), int(got.header("content-length")[0]) > 0) == (200, has_body, True)


@pytest.mark.parametrize(
    ("error", "told"), [(Final("no"), "failed"), (RuntimeError("?"), "in_doubt"), (KeyboardInterrupt(), "in_doubt")]
)
def test_an_error_is_recorded_by_policy_and_raised(semel: Semel, error: BaseException, told: str) -> None:
    with pytest.raises(type(error)):
        ask(under(App(answer=raising(error)), semel))
    assert status(semel) == told


@pytest.mark.parametrize("error", [RuntimeError("?"), SystemExit()])
def test_an_error_in_the_middle_of_a_stream_is_recorded_and_raised(semel: Semel, error: BaseException) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"one"
        raise error

    app = App()
    app.answer = lambda: Closing(app, chunks())
    with pytest.raises(type(error)):
        ask(under(app, semel))
    assert (status(semel), app.closed) == ("in_doubt", 1)


def test_an_application_without_an_answer_leaves_a_doubt(semel: Semel) -> None:
    with pytest.raises(NoAnswer):
        served(under(lambda environ, start_response: [], semel), environ())
    assert status(semel) == "in_doubt"


@pytest.mark.parametrize("chunk", ["text", None])
def test_an_answer_that_is_not_made_of_bytes_leaves_a_doubt(semel: Semel, chunk: Any) -> None:
    with pytest.raises(TypeError, match="made of bytes"):
        served(under(App(answer=lambda: iter([b"one", chunk])), semel), environ())
    assert status(semel) == "in_doubt"


def test_a_server_that_refuses_the_head_leaves_a_doubt(semel: Semel) -> None:
    def start(*_: Any) -> Any:
        raise ValueError("a header with a line break")

    with pytest.raises(ValueError, match="line break"):
        under(App(answer=lambda: iter([b"one"])), semel)(environ(), start)
    assert status(semel) == "in_doubt"


def test_an_application_may_begin_anew_while_it_has_given_nothing(semel: Semel) -> None:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [PLAIN])
        try:
            raise RuntimeError("?")
        except RuntimeError as error:
            start_response("404 Not Found", [PLAIN], (RuntimeError, error, error.__traceback__))
        return [b"none"]

    middleware = under(app, semel)
    assert [ask(middleware).status, ask(middleware).status] == [404, 404]


def test_an_application_cannot_begin_anew_once_it_has_given_something(semel: Semel) -> None:
    def app(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [PLAIN])
        yield b"one"
        try:
            raise RuntimeError("too late")
        except RuntimeError as error:
            start_response("500 Oops", [PLAIN], (RuntimeError, error, error.__traceback__))

    with pytest.raises(RuntimeError, match="too late"):
        ask(under(app, semel))


def somebody_else_was_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever fails from now on is told another's outcome."""

    def fail(opened: SyncCall[Any], error: Exception) -> Any:
        opened.abandon(error)
        return Result(Response(200, (PLAIN,), b"theirs"), replayed=True)

    monkeypatch.setattr(SyncCall, "fail", fail)


def test_the_outcome_of_somebody_else_is_sent_and_no_error_raised(
    semel: Semel, monkeypatch: pytest.MonkeyPatch
) -> None:
    somebody_else_was_faster(monkeypatch)
    got = ask(under(App(answer=raising(RuntimeError("?"))), semel))
    assert (got.status, got.body, got.header("idempotency-replayed")) == (200, b"theirs", ["true"])


def test_an_error_is_raised_where_an_answer_has_begun_and_another_counts(
    semel: Semel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"one"
        raise RuntimeError("?")

    somebody_else_was_faster(monkeypatch)
    with pytest.raises(RuntimeError):
        ask(under(App(answer=chunks), semel))
