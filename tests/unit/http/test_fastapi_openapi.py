"""FastAPI: the schema says which routes carry keys, and what becomes of them."""

from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Body, Depends, FastAPI, Header

from semel import SHARED, AsyncSemel
from semel.http.fastapi import Idempotency, IdempotentRoute

semel = AsyncSemel("memory://")


async def order(amount: Annotated[int, Body()]) -> int:
    return amount


def schema(once: Idempotency, endpoint: Any = order, **route: Any) -> Any:
    router = APIRouter(route_class=IdempotentRoute, dependencies=[Depends(once)])
    router.add_api_route("/orders/{number}", endpoint, methods=["POST"], **route)
    app = FastAPI()
    app.include_router(router, prefix="/v1")
    return app.openapi()["paths"]["/v1/orders/{number}"]["post"]


def once(**settings: Any) -> Idempotency:
    return Idempotency(semel, scope=SHARED, **settings)


def header(operation: Any) -> Any:
    [found] = [known for known in operation["parameters"] if known["in"] == "header"]
    return found


def test_the_header_is_a_parameter() -> None:
    found = header(schema(once(min_key_length=8)))
    assert (found["name"], found["required"]) == ("Idempotency-Key", False)
    assert found["schema"] == {"type": "string", "minLength": 8, "maxLength": 255}
    assert "not run again" in found["description"]


def test_a_required_header_is_required() -> None:
    assert header(schema(once(required=True, header="Payment-Key")))["required"] is True


def test_a_header_that_the_application_declares_is_there_once() -> None:
    async def declared(idempotency_key: Annotated[str, Header(max_length=20)]) -> None:
        pass

    assert header(schema(once(), declared))["schema"]["maxLength"] == 20


def test_a_header_that_the_application_describes_itself_is_replaced() -> None:
    said = {"parameters": [{"name": "idempotency-key", "in": "header"}]}
    assert header(schema(once(), openapi_extra=said))["name"] == "Idempotency-Key"


@pytest.mark.parametrize("status", ["400", "409", "422", "503"])
def test_problems_are_responses(status: str) -> None:
    found = schema(once())["responses"][status]
    assert found["description"].startswith("Nothing ran: ")
    assert found["content"]["application/problem+json"]["schema"]["required"] == ["type", "title", "status", "detail"]


def test_the_problem_stands_beside_the_validation_error() -> None:
    content = schema(once())["responses"]["422"]["content"]
    assert content["application/json"]["schema"]["$ref"].endswith("HTTPValidationError")
    assert "application/problem+json" in content


def test_statuses_are_those_of_the_settings() -> None:
    responses = schema(once(profile="paypal", in_progress_status=425))["responses"]
    assert "still runs" in responses["425"]["description"]
    assert "another request" in responses["400"]["description"]


def test_what_the_application_says_itself_is_kept() -> None:
    said = {"responses": {"409": {"description": "sold out"}}, "x-mine": 1}
    operation = schema(once(), openapi_extra=said)
    assert (operation["responses"]["409"]["description"], operation["x-mine"]) == ("sold out", 1)


def test_the_policy_is_an_extension() -> None:
    said = schema(once(ignore_fields=["sent_at"]))["x-idempotency"]
    assert (said["path"], said["notCompared"]) == ("/v1/orders/*", ["sent_at"])


def test_a_route_without_the_dependency_says_nothing() -> None:
    app = FastAPI()
    app.router.route_class = IdempotentRoute
    app.add_api_route("/orders", order, methods=["POST"])
    operation = app.openapi()["paths"]["/orders"]["post"]
    assert "x-idempotency" not in operation
    assert set(operation["responses"]) == {"200", "422"}


def test_a_method_that_carries_no_key_says_nothing() -> None:
    app = FastAPI()
    app.router.route_class = IdempotentRoute
    app.add_api_route("/orders", order, methods=["PUT"], dependencies=[Depends(once())])
    assert "x-idempotency" not in app.openapi()["paths"]["/orders"]["put"]
