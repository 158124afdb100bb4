"""A person is erased from everything a store keeps, and from the journal of a client."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel import Semel
from semel.batch import Batches
from semel.client import INTENT, SUBJECT, Client
from semel.core.erasure.port import ErasureTally, SubjectErasure
from semel.core.events.letters import Letter, PutLetter, letter_id
from semel.core.flow import Flow, ask
from semel.engine.engine import engine_of
from semel.erasure import register_erasable
from semel.errors import UsageError
from semel.events import Consumer, Event, Outbox
from semel.server.engines import as_async

ANN = "patient-7"


@pytest.fixture
def semel(tmp_path: Path) -> Semel:
    return Semel(tmp_path / "clinic.db")


def _consumer(semel: Semel, **settings: Any) -> Consumer[Semel]:
    consumer = Consumer(semel, "billing", max_attempts=1, **settings)

    @consumer.on("patient.moved")
    def moved(event: Event) -> None:
        raise ValueError(f"about {event.subject}")

    return consumer


def _event(number: int, subject: str = ANN) -> Event:
    return Event(id=f"e-{number}", type="patient.moved", source="/clinic", subject=subject, data={"to": "ward 3"})


def test_dead_letters_go_with_the_records_of_their_events(semel: Semel) -> None:
    consumer = _consumer(semel)
    consumer.handle(_event(1))
    consumer.handle(_event(2, "patient-8"))
    assert semel.erase_subject(ANN, reason="request 17").erased == {"records": 1, "letters": 1}
    assert [letter.event.subject for letter in consumer.dead_letters() if letter.event] == ["patient-8"]
    assert consumer.handle(_event(1)).action == "dead_letter", "the handler ran again"


def test_a_letter_is_found_by_the_subject_of_its_event_whatever_its_record_is_about(semel: Semel) -> None:
    consumer = _consumer(semel, about=lambda _event: {"subject": "ward 3"})
    consumer.handle(_event(1))
    assert semel.erase_subject(ANN, reason="request 17").erased == {"records": 1, "letters": 1}
    assert list(semel.records(subject="ward 3")) == []


def test_a_letter_of_an_event_in_doubt_is_refused_and_stays(semel: Semel) -> None:
    consumer = _consumer(semel, in_doubt="hold")
    consumer.handle(_event(1))
    report = semel.erase_subject(ANN, reason="request 17")
    assert report.erased == {}
    assert set(report.refused) == {"letters", "records"}
    assert "semel resolve" in report.refused["letters"][0].why
    assert len(list(consumer.dead_letters())) == 1


@pytest.mark.parametrize("subject", ["", "ann\0", "\ud800"])
def test_a_subject_that_no_store_can_keep_is_refused(semel: Semel, subject: str) -> None:
    with pytest.raises(UsageError, match="nothing was erased"):
        semel.erase_subject(subject, reason="they asked")


def test_a_letter_without_a_record_is_erased(semel: Semel) -> None:
    fields: dict[str, Any] = {"type": "t", "subject": ANN, "content": b"{}", "readable": True, "attempts": 0}
    letter = Letter(
        id=letter_id("billing", None, b"{}"),
        consumer="billing",
        scope="",
        record=None,
        reason="invalid",
        error=None,
        keep_us=10**12,
        **fields,
    )
    engine = engine_of(semel)
    engine.perform_on(None, ask(PutLetter(letter)))
    assert semel.erase_subject(ANN, reason="request 17", dry_run=True).erased == {"letters": 1}
    assert semel.erase_subject(ANN, reason="request 17").erased == {"letters": 1}
    assert semel.erase_subject(ANN, reason="request 17").erased == {}


def _pay(item: Any) -> str:
    if item.id == "i2":
        raise ValueError("refused")
    return f"paid {item.data['name']}"


def test_items_of_batches_go_with_their_records_and_what_waits_is_refused(semel: Semel) -> None:
    batches = Batches(semel, scope="acme")
    items = [{"id": f"i{number}", "name": "Ann Personal"} for number in range(3)]
    settings: dict[str, Any] = {"operation": "pay", "item_id": "id", "about": lambda _item: {"subject": ANN}}
    done = batches.start("b1", items, **settings)
    done.run(_pay)
    waiting = batches.start("b2", items, **settings)
    assert semel.erase_subject(ANN, reason="request 17", scope="other").erased == {}
    report = semel.erase_subject(ANN, reason="request 17", scope="acme")
    assert report.erased == {"records": 3, "items": 3}
    (refusal,) = report.refused["items"]
    assert (refusal.number, refusal.names) == (3, ("b2:0", "b2:1", "b2:2"))
    assert "cancel it" in refusal.why
    assert "Ann Personal" not in repr(list(done.results()))
    waiting.cancel(reason="request 17")
    assert semel.erase_subject(ANN, reason="request 17").erased == {"items": 3}


def test_an_event_that_waits_is_refused_with_what_to_do(semel: Semel) -> None:
    Outbox(semel).add(_event(1), autonomous=True)
    report = semel.erase_subject(ANN, reason="request 17")
    assert report.erased == {}
    assert "let the relay catch up" in report.refused["events"][0].why
    assert Outbox(semel).erase(subject=ANN) == 1


class _Notes:
    """What a part that keeps personal data of its own registers."""

    def __init__(self) -> None:
        self.kept = {ANN: 2}

    def erase_subject(self, asked: SubjectErasure, tally: ErasureTally) -> Flow[None]:
        tally.add_erased("notes", self.kept.get(asked.subject, 0) if asked.dry_run else self.kept.pop(asked.subject, 0))
        return
        yield


def test_what_is_registered_with_the_engine_is_erased_too(semel: Semel) -> None:
    notes = _Notes()
    engine_of(semel).erasables.append(notes)
    assert semel.erase_subject(ANN, reason="request 17", dry_run=True).erased == {"notes": 2}
    assert semel.erase_subject(ANN, reason="request 17").erased == {"notes": 2}
    assert notes.kept == {}


def test_a_person_is_not_erased_inside_a_transaction(semel: Semel, tmp_path: Path) -> None:
    semel.run("k", lambda: "Ann", operation="admit", fingerprint=None, about={"subject": ANN})
    connection = sqlite3.connect(tmp_path / "clinic.db", isolation_level=None)
    connection.execute("BEGIN")
    with semel.within(connection), pytest.raises(UsageError, match="no part of a transaction"):
        semel.erase_subject(ANN, reason="request 17")
    connection.execute("ROLLBACK")
    connection.close()
    assert len(list(semel.records(subject=ANN))) == 1


def test_many_reasons_are_counted_and_only_the_first_are_named() -> None:
    tally = ErasureTally()
    for number in range(50):
        tally.add_refused("records", "running", f"r{number}")
    (refusal,) = tally.report().refused["records"]
    assert (refusal.number, len(refusal.names)) == (50, 20)


def test_an_intent_whose_refusal_was_erased_is_asked_with_its_next_key(tmp_path: Path) -> None:
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(422 if len(sent) == 1 else 201)

    journal, headers = tmp_path / "keys.db", {INTENT: "admit 7", SUBJECT: ANN}
    with Client(journal, transport=httpx.MockTransport(answer)) as client:
        assert client.post("https://clinic.example/patients", json={"bed": 0}, headers=headers).status_code == 422
        with Semel(journal) as semel:
            assert semel.erase_subject(ANN, reason="request 17").erased == {"records": 1}
        assert client.post("https://clinic.example/patients", json={"bed": 1}, headers=headers).status_code == 201
    assert len({request.headers["idempotency-key"] for request in sent}) == 2


def test_an_unfinished_request_of_a_journal_is_refused_and_keeps_its_place_and_subject(tmp_path: Path) -> None:
    def lost(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("gone", request=request)

    journal = tmp_path / "keys.db"
    with Client(journal, transport=httpx.MockTransport(lost), tries=1) as client:
        with pytest.raises(httpx.ReadError):
            client.post("https://clinic.example/patients", headers={INTENT: "admit 7", SUBJECT: ANN})
        with Semel(journal) as semel:
            report = semel.erase_subject(ANN, reason="request 17")
        assert report.erased == {}
        (pending,) = client.pending()
    assert (pending.place, pending.subject) == ("POST https://clinic.example/patients", ANN)
    assert (SUBJECT, ANN) in pending.headers


class Uploads:
    """Something of an application that keeps personal data."""

    def __init__(self) -> None:
        self.kept = {ANN: "x-ray", "patient-8": "scan"}

    def erase_subject(self, asked: SubjectErasure, tally: ErasureTally) -> Flow[None]:
        if asked.subject in self.kept:
            tally.add_erased("uploads")
            if not asked.dry_run:
                del self.kept[asked.subject]
        return
        yield  # a flow that asks its store nothing


def test_what_an_application_registers_is_erased_too(semel: Semel) -> None:
    uploads = Uploads()
    register_erasable(semel, uploads)
    assert semel.erase_subject(ANN, reason="request 17", dry_run=True).erased == {"uploads": 1}
    assert ANN in uploads.kept
    assert semel.erase_subject(ANN, reason="request 17").erased == {"uploads": 1}
    assert list(uploads.kept) == ["patient-8"]


def test_the_server_of_an_engine_for_threads_erases_what_was_registered_there(semel: Semel) -> None:
    uploads = Uploads()
    known = as_async(semel)
    register_erasable(semel, uploads)
    assert asyncio.run(known.erase_subject(ANN, reason="request 17")).erased == {"uploads": 1}


def test_what_cannot_erase_is_not_registered(semel: Semel) -> None:
    with pytest.raises(UsageError, match="has no erase_subject"):
        register_erasable(semel, object())  # type: ignore[arg-type]
