"""The pages without a browser: what each button asks for, and who may press it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples.hospital.coder import Coder
from examples.hospital.domain import Codes
from examples.hospital.instances import Instances
from examples.hospital.serving import make_app
from examples.hospital.settings import Settings
from tests.hospital.conftest import Neighbours


@pytest.fixture
def settings(tmp_path: Path, neighbours: Neighbours) -> Settings:
    return Settings(f"sqlite:///{tmp_path}/hospital.db", *neighbours.addresses, tmp_path / "codes.db")


@pytest.fixture
def instances(settings: Settings) -> Iterator[Instances]:
    made = Instances(settings.database)
    made.create_tables()
    yield made
    made.close()


class Client:
    """Asks an application in this process, which ends after the answer; follows no redirect."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def request(self, method: str, path: str, form: dict[str, str] | None = None, **headers: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            app = make_app(self._settings)
            transport = httpx.ASGITransport(app)
            async with (
                app.router.lifespan_context(app),
                httpx.AsyncClient(transport=transport, base_url="http://hospital") as client,
            ):
                return await client.request(method, path, data=form, headers=headers)

        return asyncio.run(ask())

    def get(self, path: str) -> httpx.Response:
        return self.request("GET", path)

    def post(self, path: str, form: dict[str, str] | None = None, site: str | None = None) -> httpx.Response:
        return self.request("POST", path, form, **({} if site is None else {"Sec-Fetch-Site": site}))


@pytest.fixture
def client(settings: Settings, instances: Instances) -> Client:
    return Client(settings)


def test_a_claim_is_started_with_a_number_that_none_had(client: Client, instances: Instances) -> None:
    places = [client.post(path).headers["location"] for path in ("/instances", "/instances?refused")]
    started = {f"/instances/{one.id}": one.variables["claimId"] for one in instances.latest()}
    assert [started[place] for place in places] == ["CLAIM-001", "CLAIM-002"]
    assert client.get(places[0]).status_code == 200


def test_claims_that_are_started_at_once_have_numbers_of_their_own(client: Client, instances: Instances) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(client.post, ["/instances"] * 8))
    assert len({one.variables["claimId"] for one in instances.latest()}) == 8


def test_a_person_validates_codes_on_the_page(
    client: Client, instances: Instances, settings: Settings, claim: dict[str, str]
) -> None:
    instance = instances.add(claim)
    assert client.post(f"/instances/{instance}/codes", {"codes": "20101015 10101012"}).status_code == 303
    assert "validated by a person" in client.get(f"/instances/{instance}").text
    held = Coder(settings.codes).find(claim["medicalRecordId"], date.fromisoformat(claim["procedureDate"]))
    assert held == Codes(("20101015", "10101012"), "person")


@pytest.mark.parametrize("codes", ["", "123", "<b>", "20101015  10101012", "20101015 " * 20])
def test_what_are_no_codes_is_refused(
    client: Client, instances: Instances, settings: Settings, claim: dict[str, str], codes: str
) -> None:
    instance = instances.add(claim)
    answer = client.post(f"/instances/{instance}/codes", {"codes": codes})
    assert (answer.status_code, "Nothing was changed" in answer.text) == (422, True)
    assert Coder(settings.codes).find(claim["medicalRecordId"], date.fromisoformat(claim["procedureDate"])) is None


def test_starting_again_is_another_instance_of_the_same_claim(
    client: Client, instances: Instances, claim: dict[str, str]
) -> None:
    first = instances.add(claim)
    instances.save(first, "{}", {**claim, "patientBalance": "300.00", "idempotencyDuplicate": False})
    second = client.post(f"/instances/{first}/again").headers["location"].rpartition("/")[2]
    started = instances.get(second)
    assert started is not None
    assert second != first
    assert {name: value for name, value in started.variables.items() if name in claim} == claim
    assert "patientBalance" not in started.variables


def test_the_worker_that_runs_an_instance_is_the_one_to_die(
    client: Client, instances: Instances, claim: dict[str, str]
) -> None:
    instance = instances.add(claim)
    instances.take("worker-7")
    for _ in range(2):
        assert client.post(f"/instances/{instance}/kill").status_code == 303
    assert [instances.shall_die(name) for name in ("worker-1", "worker-7", "worker-7")] == [False, True, False]


def test_the_insurer_loses_one_reply(
    client: Client, instances: Instances, neighbours: Neighbours, claim: dict[str, str]
) -> None:
    instance = instances.add(claim)
    assert client.post(f"/instances/{instance}/lose").status_code == 303
    assert neighbours.insurer.faults()["lose_reply"] == 1
    assert "will lose its next reply" in client.get(f"/instances/{instance}").text


@pytest.mark.parametrize(
    "button", ["/instances", "/instances/{}/again", "/instances/{}/kill", "/instances/{}/codes", "/instances/{}/lose"]
)
def test_a_page_of_another_site_presses_no_button(
    client: Client, instances: Instances, neighbours: Neighbours, claim: dict[str, str], button: str
) -> None:
    instance = instances.add(claim)
    answer = client.post(button.format(instance), site="cross-site")
    assert answer.status_code == 403
    assert (instances.count(), instances.shall_die("worker-1")) == (1, False)
    assert neighbours.insurer.faults()["lose_reply"] == 0


def test_what_is_not_there_is_said(client: Client, instances: Instances) -> None:
    for method, path in (
        ("GET", "/instances/none"),
        ("POST", "/instances/none/again"),
        ("POST", "/instances/none/kill"),
        ("POST", "/instances/none/codes"),
    ):
        answer = client.request(method, path)
        assert (answer.status_code, "No such process" in answer.text) == (404, True)
    assert instances.count() == 0


def test_text_of_a_claim_is_escaped(client: Client, instances: Instances, claim: dict[str, str]) -> None:
    instance = instances.add({**claim, "claimId": "<b>C</b>"})
    instances.begin_task(instance, "<i>task</i>")
    text = client.get(f"/instances/{instance}").text
    assert "&lt;b&gt;C&lt;/b&gt;" in text
    assert "<b>C" not in text
    assert "<i>task" not in text


def test_a_page_is_shown_when_the_neighbours_do_not_answer(
    instances: Instances, settings: Settings, claim: dict[str, str]
) -> None:
    away = Settings(settings.database, "http://127.0.0.1:1", "http://127.0.0.1:1", settings.codes)
    client, instance = Client(away), instances.add(claim)
    assert client.get(f"/instances/{instance}").text.count("no answer") == 2
    assert client.post(f"/instances/{instance}/lose").status_code == 303
