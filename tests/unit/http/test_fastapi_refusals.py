"""FastAPI: what cannot be right is said when it is set up, or at the first request at the latest."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI

from semel import SHARED, AsyncSemel, Semel
from semel.errors import UsageError
from semel.http.fastapi import Idempotency, IdempotentRoute, describe

semel = AsyncSemel("memory://")
once = Idempotency(semel, scope=SHARED)


async def session() -> AsyncIterator[object]:
    yield object()


def joined(**settings: Any) -> Idempotency:
    return Idempotency(semel, scope=SHARED, transaction=Depends(session, scope="function"), **settings)


def keyed(*dependencies: Any) -> APIRouter:
    return APIRouter(route_class=IdempotentRoute, dependencies=[Depends(known) for known in dependencies])


async def order() -> None:
    pass


@pytest.mark.anyio
async def test_without_the_route_class_the_first_request_is_refused() -> None:
    app = FastAPI(dependencies=[Depends(once)])
    app.add_api_route("/orders", order, methods=["POST"])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
        with pytest.raises(UsageError, match=r"POST /orders depends on Idempotency .* nothing ran"):
            await client.post("/orders")


def test_without_the_route_class_the_policy_is_not_described() -> None:
    app = FastAPI()
    app.add_api_route("/orders", order, methods=["POST"], dependencies=[Depends(once)])
    with pytest.raises(UsageError, match="/orders depends on Idempotency"):
        describe(app)


def test_a_path_for_the_policy_begins_with_a_slash() -> None:
    with pytest.raises(UsageError, match="slash"):
        describe(FastAPI(), "policy")


def test_a_blocking_engine_is_refused() -> None:
    with pytest.raises(UsageError, match="FastAPI needs semel=AsyncSemel"):
        Idempotency(Semel("memory://"), scope=SHARED)  # type: ignore[arg-type]


def test_a_scope_is_a_rule_or_a_dependency() -> None:
    with pytest.raises(UsageError, match="scope="):
        Idempotency(semel, scope="alice")  # type: ignore[arg-type]


def test_a_setting_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="no setting 'requird'"):
        Idempotency(semel, scope=SHARED, requird=True)  # type: ignore[call-arg]


async def receipt(attempt: Annotated[Any, Depends(once)]) -> None:
    pass


@pytest.mark.parametrize("router", [keyed(receipt), keyed(once, receipt)], ids=["alone", "beside its own place"])
def test_inside_another_dependency_it_is_refused(router: APIRouter) -> None:
    with pytest.raises(UsageError, match=r"/orders depends on Idempotency inside another .* dependencies=\["):
        router.add_api_route("/orders", order, methods=["POST"])


def test_a_route_with_two_of_them_is_refused() -> None:
    with pytest.raises(UsageError, match="/orders depends on two Idempotency objects"):
        keyed(once, Idempotency(semel, scope=SHARED)).add_api_route("/orders", order, methods=["POST"])


@pytest.mark.parametrize(
    "within", [Depends(session), Depends(session, scope="request"), session, Depends(scope="function")]
)
def test_a_session_that_commits_after_the_response_is_refused(within: Any) -> None:
    with pytest.raises(UsageError, match='scope="function"'):
        Idempotency(semel, scope=SHARED, transaction=within)


@pytest.mark.parametrize("asked", [Depends(session), Depends(session, scope="function", use_cache=False)])
def test_an_endpoint_with_another_session_is_refused(asked: Any) -> None:
    async def write(db: Annotated[object, asked]) -> None:
        pass

    with pytest.raises(UsageError, match="/orders takes the session of transaction= in another way"):
        keyed(joined()).add_api_route("/orders", write, methods=["POST"])


def test_a_connection_of_a_session_that_commits_late_is_refused() -> None:
    def connection(db: Annotated[object, Depends(session)]) -> object:
        return db

    late = Idempotency(semel, scope=SHARED, transaction=Depends(connection, scope="function"))
    with pytest.raises(UsageError, match="/orders takes the session"):
        keyed(late).add_api_route("/orders", order, methods=["POST"])


def test_a_connection_of_a_session_that_commits_in_time_is_taken() -> None:
    def connection(db: Annotated[object, Depends(session, scope="function")]) -> object:
        return db

    early = Idempotency(semel, scope=SHARED, transaction=Depends(connection, scope="function"))
    keyed(early).add_api_route("/orders", order, methods=["POST"])


def test_a_session_that_an_object_gives_is_seen_through() -> None:
    class Sessions:
        async def __call__(self) -> AsyncIterator[object]:
            yield object()

    for sessions in (Sessions(), partial(Sessions())):

        def connection(db: Annotated[object, Depends(sessions)]) -> object:
            return db

        late = Idempotency(semel, scope=SHARED, transaction=Depends(connection, scope="function"))
        with pytest.raises(UsageError, match="/orders takes the session"):
            keyed(late).add_api_route("/orders", order, methods=["POST"])
