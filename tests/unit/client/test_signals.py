"""What an answer says."""

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from semel.client.models import Headers, Reply
from semel.client.response_class import Done, Refusal, Retry, classify

NOW = datetime(2030, 1, 1, tzinfo=UTC).timestamp()
PROBLEM = ("Content-Type", "application/problem+json; charset=utf-8")


def said(status: int, *headers: tuple[str, str], body: bytes = b"") -> object:
    return classify(Reply(status, headers, body), NOW)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 206, 301, 302, 303, 304, 307, 308])
def test_success_and_redirection_are_done(status: int) -> None:
    assert said(status) == Done()


@pytest.mark.parametrize(
    "status", [400, 402, 404, 405, 406, 410, 411, 412, 413, 414, 415, 417, 421, 422, 423, 428, 451]
)
def test_other_errors_of_the_caller_are_refusals(status: int) -> None:
    assert said(status) == Refusal()


@pytest.mark.parametrize("status", [425, 429])
def test_not_now_means_that_it_did_not_run(status: int) -> None:
    assert said(status) == Retry(certain=True)
    assert said(status, ("retry-after", "3")) == Retry(3.0, certain=True)


def test_too_slow_may_be_about_the_service_itself() -> None:
    assert said(408) == Retry()


@pytest.mark.parametrize("status", [401, 403, 407])
def test_not_you_means_that_it_did_not_run_and_that_asking_again_is_of_no_use(status: int) -> None:
    assert said(status, ("Retry-After", "3")) == Retry(certain=True, soon=False)


@pytest.mark.parametrize("status", [500, 502, 503, 504, 507, 520, 599])
def test_an_error_of_the_service_leaves_it_open(status: int) -> None:
    assert said(status) == Retry()
    assert said(status, ("Retry-After", "3")) == Retry(3.0)


@pytest.mark.parametrize("status", [501, 505])
def test_what_the_service_cannot_do_is_not_asked_again_soon(status: int) -> None:
    assert said(status) == Retry(soon=False)


@pytest.mark.parametrize(
    ("headers", "body", "meaning"),
    [
        ((), b"", Retry()),
        ((("Retry-After", "2"),), b"", Retry(2.0)),
        ((PROBLEM,), b'{"type": "https://shop.example/sold-out"}', Refusal()),
        ((PROBLEM, ("Retry-After", "2")), b'{"type": "https://shop.example/busy"}', Retry(2.0)),
        ((PROBLEM,), b'{"type": "urn:semel:problem:in-doubt"}', Retry(soon=False)),
        ((PROBLEM,), b'{"type": "urn:semel:problem:response-not-kept"}', Retry(soon=False)),
        ((PROBLEM, ("Retry-After", "1")), b'{"type": "urn:semel:problem:in-progress"}', Retry(1.0)),
        ((PROBLEM,), b'{"type": "about:blank"}', Retry()),
        ((PROBLEM,), b'{"type": 7}', Retry()),
        ((PROBLEM,), b'{"title": "no type"}', Retry()),
        ((PROBLEM,), b'["no", "object"]', Retry()),
        ((PROBLEM,), b'{"type": ', Retry()),
        ((PROBLEM,), b"\xff\xfe", Retry()),
        ((("Content-Type", "application/json"),), b'{"type": "https://shop.example/sold-out"}', Retry()),
    ],
)
def test_a_conflict_is_still_running_unless_it_is_plainly_another(
    headers: Headers, body: bytes, meaning: object
) -> None:
    assert said(409, *headers, body=body) == meaning


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        (" 12 ", 12.0),
        (format_datetime(datetime.fromtimestamp(NOW + 90, UTC), usegmt=True), 90.0),
        (format_datetime(datetime.fromtimestamp(NOW - 90, UTC), usegmt=True), 0.0),
        ("9" * 30, 365 * 24 * 3600.0),
        ("soon", None),
        ("", None),
        ("-3", None),
        ("1.5", None),
        ("Wed, 99 Foo 2030 99:99:99 GMT", None),
        ("²", None),
        ("٣", 3.0),
    ],
)
def test_retry_after_is_a_number_or_a_date(text: str, seconds: float | None) -> None:
    assert said(503, ("RETRY-AFTER", text)) == Retry(seconds)
