"""Django with `within`: response and rows commit together, before anything is sent, or neither is there.

The project runs in a process of its own, because Django's settings are made once. It asks each of its views twice with
one key, and tells what became of it; the same holds whether or not Django wraps every view in a transaction.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.servers.databases import Databases

pytestmark = pytest.mark.slow

WHAT = ("pays", "raises", "missing", "refuses", "gives-up", "streams", "commits")
PROGRAM = '''
import json, sqlite3, sys
from urllib.parse import urlsplit

import psycopg
from django.conf import settings

url, atomic_requests = sys.argv[1], sys.argv[2] == "ATOMIC_REQUESTS"
parts = urlsplit(url)
is_sqlite = parts.scheme == "sqlite"
settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF="__main__",
    MIDDLEWARE=["__main__.Witness", "semel.http.django.IdempotencyMiddleware"],
    LOGGING_CONFIG=None,
    REST_FRAMEWORK={"UNAUTHENTICATED_USER": None, "UNAUTHENTICATED_TOKEN": None},
    DATABASES={"default": {
        "ENGINE": "django.db.backends." + ("sqlite3" if is_sqlite else "postgresql"),
        "NAME": parts.path if is_sqlite else parts.path[1:],
        "HOST": parts.hostname or "", "PORT": parts.port or "",
        "USER": parts.username or "", "PASSWORD": parts.password or "",
        "ATOMIC_REQUESTS": atomic_requests,
    }},
)
import django
django.setup()
from django.db import connection, transaction
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.test import Client
from django.urls import path
from rest_framework.views import APIView
from semel import SHARED
from semel.http import Route
from semel.http import transaction as joined
from semel.http.django import atomic, idempotent
from semel.http.drf import IdempotencyMixin

routes = [Route("/middleware/*", transaction=atomic("default")), Route("/apart/*/*")]
settings.SEMEL = {"store": "django://default", "scope": SHARED, "routes": routes}
if is_sqlite:
    other = sqlite3.connect(parts.path, isolation_level=None)
else:
    other = psycopg.connect(url, autocommit=True)
committed, witnessed, ran = [], [], []


def rows():
    return other.execute("SELECT count(*) FROM payment").fetchone()[0]


class Witness:
    """Stands where the response is about to be sent."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        response = self.get_response(request)
        witnessed.append((rows(), len(committed)))
        return response


def insert():
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO payment VALUES (1)")


def chunks():
    yield b"one"
    insert()
    yield b"two"


def view(request, what):
    ran.append(what)
    assert what == "cannot-commit" or joined().alias == "default"
    insert()
    transaction.on_commit(lambda: committed.append(what))
    match what:
        case "raises":
            raise RuntimeError
        case "missing":
            raise Http404
        case "cannot-commit":
            transaction.on_commit(lambda: 1 / 0)
        case "refuses":
            return HttpResponse(status=422)
        case "gives-up":
            transaction.set_rollback(True)
        case "commits":
            with connection.cursor() as cursor:
                cursor.execute("COMMIT")
        case "streams":
            return StreamingHttpResponse(chunks())
    return HttpResponse("paid", status=201)


class Payments(IdempotencyMixin, APIView):
    idempotency = {"transaction": "default", "scope": SHARED}

    def post(self, request, what):
        return view(request, what)


class Apart(Payments):
    idempotency = {"scope": SHARED}


urlpatterns = [
    path("apart/middleware/<what>", view),
    path("apart/decorator/<what>", idempotent(view)),
    path("apart/drf/<what>", Apart.as_view()),
    path("middleware/<what>", view),
    path("decorator/<what>", idempotent(transaction="default")(view)),
    path("drf/<what>", Payments.as_view()),
]
with connection.cursor() as cursor:
    cursor.execute("CREATE TABLE payment (id integer)")
client = Client(raise_request_exception=False)
told = {}
works = [f"{door}/{what}" for door in ("middleware", "decorator", "drf") for what in sys.argv[3:]]
for work in (*works, "apart/middleware/cannot-commit", "apart/decorator/cannot-commit", "apart/drf/cannot-commit"):
    for seen in (committed, witnessed, ran):
        seen.clear()
    other.execute("DELETE FROM payment")
    answers = [client.post(f"/{work}", headers={"Idempotency-Key": "k1"}) for _ in range(2)]
    told[work] = {
        "statuses": [answer.status_code for answer in answers],
        "bodies": [b"".join(answer).decode() for answer in answers],
        "replayed": "Idempotency-Replayed" in answers[1].headers,
        "rows": rows(), "committed": len(committed), "witnessed": witnessed[0], "ran": len(ran),
    }
print(json.dumps(told))
'''


@dataclass(frozen=True)
class Told:
    """What became of two requests with one key."""

    statuses: list[int]
    bodies: list[str]
    replayed: bool
    rows: int
    committed: int
    witnessed: list[int]
    ran: int


Tell = Callable[[str], Told]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def new_database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], str]:
    if request.param == "sqlite":
        return lambda: f"sqlite://{tmp_path_factory.mktemp('within') / 'shop.db'}"
    databases: Databases = request.getfixturevalue("postgresql")
    return databases.new_database


@pytest.fixture(scope="module", params=["ATOMIC_REQUESTS", "plain"])
def everything(request: pytest.FixtureRequest, new_database: Callable[[], str]) -> Any:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, new_database(), request.param, *WHAT],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "ATOMIC_REQUESTS": request.param == "ATOMIC_REQUESTS"}


@pytest.fixture(params=["middleware", "decorator", "drf"])
def tell(request: pytest.FixtureRequest, everything: Any) -> Tell:
    return lambda what: Told(**everything[f"{request.param}/{what}"])


def test_response_and_row_are_there_before_anything_is_sent(tell: Tell) -> None:
    told = tell("pays")
    assert (told.rows, told.witnessed[0]) == (1, 1)


def test_a_duplicate_replays(tell: Tell) -> None:
    told = tell("pays")
    assert (told.statuses, told.bodies, told.replayed, told.ran) == ([201, 201], ["paid", "paid"], True, 1)


def test_hooks_on_commit_have_run_before_anything_is_sent(tell: Tell) -> None:
    told = tell("pays")
    assert (told.committed, told.witnessed[1]) == (1, 1)


@pytest.mark.parametrize(("what", "status"), [("raises", 500), ("missing", 404)])
def test_an_exception_leaves_neither(tell: Tell, what: str, status: int) -> None:
    told = tell(what)
    assert (told.statuses, told.replayed, told.rows, told.committed, told.ran) == ([status, status], False, 0, 0, 2)


def test_an_answer_that_says_no_leaves_neither(tell: Tell) -> None:
    told = tell("refuses")
    assert (told.statuses, told.replayed, told.rows, told.committed, told.ran) == ([422, 422], False, 0, 0, 2)


def test_a_view_that_gives_its_transaction_up_is_no_success(tell: Tell, everything: Any) -> None:
    told = tell("gives-up")
    assert (told.rows, told.committed) == (0, 0)
    if everything["ATOMIC_REQUESTS"]:  # it has given up the savepoint of Django's own: the answer is what it decided on
        assert (told.statuses, told.replayed, told.ran) == ([201, 201], True, 1)
    else:
        assert (told.statuses, told.replayed, told.ran) == ([500, 500], False, 2)


def test_a_view_that_commits_by_itself_is_no_success(tell: Tell) -> None:
    told = tell("commits")
    assert (told.statuses, told.replayed, told.rows, told.committed) == ([500, 500], False, 2, 0)


def test_a_stream_is_whole_and_committed_before_anything_is_sent(tell: Tell) -> None:
    told = tell("streams")
    assert (told.bodies, told.rows, told.witnessed[0]) == (["onetwo", "onetwo"], 2, 2)


@pytest.mark.parametrize("door", ["middleware", "decorator", "drf"])
def test_without_it_a_transaction_that_cannot_commit_is_no_success(everything: Any, door: str) -> None:
    told = Told(**everything[f"apart/{door}/cannot-commit"])
    assert (told.statuses, told.replayed, told.ran) == ([500, 500], False, 2)
