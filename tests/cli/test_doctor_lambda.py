"""`semel doctor --lambda`: how a function is set up, as its service tells it, and the queues that trigger it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.cli.conftest import Database, Run
from tests.servers.ministack import CREDENTIALS, REGION
from tests.servers.sqs import Queues

MODULE = """
from semel import Semel
from semel.events import Consumer

consumer = Consumer(Semel("{url}"), "billing", max_attempts=5)
"""
STREAM = f"arn:aws:kinesis:{REGION}:000000000000:stream/meters"
REPORTS = {"FunctionResponseTypes": ["ReportBatchItemFailures"]}


class Service:
    """Answers as Lambda does of one function, which takes up to 5 s."""

    def __init__(self) -> None:
        self.variables: dict[str, str] = {"TABLE_NAME": "assets"}
        self.longest = 5
        self.mappings: list[dict[str, Any]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, answer = service.answer(self.path)
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                if status != 200:
                    self.send_header("x-amzn-ErrorType", "ResourceNotFoundException")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        if path.startswith("/2015-03-31/functions/assets/configuration"):
            return 200, {
                "FunctionName": "assets",
                "Timeout": self.longest,
                "Environment": {"Variables": self.variables},
            }
        if path.startswith("/2015-03-31/event-source-mappings"):
            return 200, {"EventSourceMappings": self.mappings}
        return 404, {"Message": "Function not found"}

    def triggered_by(self, arn: str, **settings: Any) -> None:
        self.mappings.append({"EventSourceArn": arn, "State": "Enabled", **settings})


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    thread = Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


Ask = Callable[..., tuple[int, dict[str, dict[str, Any]]]]


@pytest.fixture
def environment(service: Service) -> dict[str, str]:
    return {**CREDENTIALS, "AWS_DEFAULT_REGION": REGION, "AWS_ENDPOINT_URL_LAMBDA": service.url}


@pytest.fixture
def ask(environment: dict[str, str], database: Database, call: Run, tmp_path: Path) -> Ask:
    database.completed("o-1")
    (tmp_path / "shop.py").write_text(MODULE.format(url=database.url))

    def asked(*options: str, **more: str) -> tuple[int, dict[str, dict[str, Any]]]:
        done = call("doctor", database.url, "--lambda", "assets", *options, "--json", **environment, **more)
        assert done.returncode in (0, 1), done.stderr
        return done.returncode, {one["topic"]: one for one in json.loads(done.stdout)["findings"]}

    return asked


def test_a_trigger_that_reads_no_failures_has_to_be_fixed(service: Service, ask: Ask) -> None:
    service.triggered_by(STREAM, MaximumRetryAttempts=-1)
    code, found = ask()
    assert (code, found["partial batch responses"]["verdict"]) == (1, "fix")
    assert "ReportBatchItemFailures" in found["partial batch responses"]["advice"]


def test_a_stream_that_is_set_up_well_is_fine(service: Service, ask: Ask) -> None:
    service.triggered_by(STREAM, MaximumRetryAttempts=-1, **REPORTS)
    code, found = ask("--consumer", "shop:consumer")
    topics = ("function", "TABLE_NAME", "partial batch responses", "retries")
    assert (code, [found[topic]["verdict"] for topic in topics]) == (0, ["ok"] * 4)
    assert "up to 5s" in found["function"]["found"]


@pytest.mark.parametrize(("retries", "verdict"), [(4, "fix"), (5, "note"), (10, "note")])
def test_a_stream_that_gives_up_before_the_consumer_has_to_be_fixed(
    service: Service, ask: Ask, retries: int, verdict: str
) -> None:
    service.triggered_by(STREAM, MaximumRetryAttempts=retries, **REPORTS)
    code, found = ask("--consumer", "shop:consumer")
    assert (code, found["retries"]["verdict"]) == (verdict == "fix", verdict)


@pytest.mark.parametrize("age", [-1, None])
def test_a_stream_whose_records_are_given_for_as_long_as_it_has_them_is_fine(
    service: Service, ask: Ask, age: int | None
) -> None:
    given = {} if age is None else {"MaximumRecordAgeInSeconds": age}
    service.triggered_by(STREAM, MaximumRetryAttempts=-1, **given, **REPORTS)
    assert "expired messages" not in ask()[1]


def test_an_age_above_which_lambda_drops_records_is_noted(service: Service, ask: Ask) -> None:
    service.triggered_by(STREAM, MaximumRetryAttempts=-1, MaximumRecordAgeInSeconds=7200, **REPORTS)
    code, found = ask("--consumer", "shop:consumer")
    assert (code, found["expired messages"]["verdict"]) == (0, "note")
    assert "dropped after 2h (MaximumRecordAgeInSeconds), processed or not" in found["expired messages"]["found"]
    assert "-1" in found["expired messages"]["advice"]


@pytest.mark.slow
@pytest.mark.parametrize(("visibility", "verdict"), [("30", "ok"), ("29", "note")])
def test_a_queue_is_compared_with_the_time_of_an_invocation(
    service: Service, ask: Ask, sqs: Queues, visibility: str, verdict: str
) -> None:
    queue = sqs.new_queue(VisibilityTimeout=visibility, MessageRetentionPeriod="86400")
    service.triggered_by(sqs.attributes(queue)["QueueArn"], **REPORTS)
    code, found = ask("--consumer", "shop:consumer", AWS_ENDPOINT_URL_SQS=sqs.endpoint.url)
    assert (code, found["visibility time-out"]["verdict"], found["redelivery"]["verdict"]) == (0, verdict, "ok")


def test_what_the_handler_does_not_take_has_to_be_fixed(service: Service, ask: Ask) -> None:
    service.triggered_by(f"arn:aws:dynamodb:{REGION}:000000000000:table/assets/stream/1", **REPORTS)
    code, found = ask()
    assert (code, found["triggers"]["verdict"]) == (1, "fix")


@pytest.mark.parametrize(("longest", "verdict"), [(2, "fix"), (3, "ok")])
def test_a_function_without_time_for_a_second_record_has_to_be_fixed(
    service: Service, ask: Ask, longest: int, verdict: str
) -> None:
    service.longest = longest
    service.triggered_by(STREAM, MaximumRetryAttempts=-1, **REPORTS)
    code, found = ask()
    assert (code, found["function"]["verdict"]) == (verdict == "fix", verdict)


def test_what_is_not_set_is_noted(service: Service, ask: Ask) -> None:
    service.variables = {}
    code, found = ask()
    assert (code, found["TABLE_NAME"]["verdict"], found["triggers"]["verdict"]) == (0, "note", "note")


def test_a_trigger_that_is_off_is_noted(service: Service, ask: Ask) -> None:
    service.triggered_by(STREAM, **REPORTS)
    service.mappings[0]["State"] = "Disabled"
    code, found = ask()
    assert (code, found["triggers"]["verdict"]) == (0, "note")


def test_a_service_that_does_not_answer_is_not_called_fine(ask: Ask, environment: dict[str, str]) -> None:
    environment["AWS_ENDPOINT_URL_LAMBDA"] = "http://127.0.0.1:1"
    code, found = ask(AWS_MAX_ATTEMPTS="1")
    assert (code, found["function"]["verdict"]) == (1, "fix")


def test_a_function_that_is_not_there_is_named(environment: dict[str, str], database: Database, call: Run) -> None:
    database.completed("o-1")
    done = call("doctor", database.url, "--lambda", "nowhere", **environment)
    assert done.returncode == 2
    assert "'nowhere': there is no such function" in done.stderr


@pytest.mark.parametrize("option", ["--queue", "--relay", "--consumer-timeout"])
def test_options_of_brokers_are_refused_beside_a_function(database: Database, call: Run, option: str) -> None:
    database.completed("o-1")
    done = call("doctor", database.url, "--lambda", "assets", option, "1h")
    assert done.returncode == 2
    assert f"{option} cannot be given beside --lambda" in done.stderr
