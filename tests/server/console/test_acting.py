"""Everything that can be done from a page, in a real browser: what would happen, the reason, and what came of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Page, expect

from semel import Happened, Record
from semel.batch import Batches
from semel.testing import Crash
from tests.server.console.sample import keep_letters, park_events
from tests.server.console.sample_site import Reader, Site, run_apart
from tests.server.console.test_browser import PAGES, look_at

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
WHY: Final = "the bank says so"


def give_reason(page: Page, button: str, **fields: str) -> None:
    """Say why, and press the button."""
    for label, text in fields.items():
        page.get_by_label(label.replace("_", " ")).fill(text)
    page.get_by_label("Reason").fill(WHY)
    page.get_by_role("button", name=button).click()


def is_done(page: Page) -> None:
    """Wait until the page says so."""
    expect(page.get_by_role("status").filter(has_text="done")).to_be_visible()


DEEDS: Final[dict[str, tuple[Callable[[Site, str], Record], dict[str, str], str]]] = {
    "It happened": (Site.in_doubt, {"The value": '{"id": 12345678901234567890}'}, "completed"),
    "It did not happen": (Site.in_doubt, {}, "failed"),
    "Cancel it": (Site.in_doubt, {}, "cancelled"),
    "It failed": (Site.in_doubt, {"The error": "no such account"}, "failed"),
    "Let it run again": (Site.failed, {}, "failed"),
}


@pytest.mark.parametrize("deed", DEEDS)
def test_a_record_is_decided_about_with_a_reason_that_is_kept(reader: Reader, deed: str) -> None:
    make, fields, status = DEEDS[deed]
    record = make(reader.site, f"decide {deed}")
    page = reader.opens(f"/records/{record.reference}", "operator")
    page.get_by_role("link", name=deed).click()
    give_reason(page, deed, **fields)
    is_done(page)
    now = reader.site.read(f"decide {deed}")
    assert now.status == status
    assert now.note is not None
    assert (now.note.by, now.note.reason) == ("olga", WHY)
    reader.opens(f"/audit?target={record.reference}", "admin")
    expect(page.locator("tbody tr").last).to_contain_text(WHY)


def test_a_stated_value_is_given_exactly_and_can_be_corrected(reader: Reader) -> None:
    record = reader.site.in_doubt("stated")
    reader.site.semel.resolve("stated", Happened(1), operation="probe", scope="acme", reason="x")
    page = reader.opens(f"/act?do=correct&target={record.reference}")
    give_reason(page, "Correct the value", The_value="not json")
    expect(page.get_by_role("alert")).to_contain_text("The value is no JSON")
    give_reason(page, "Correct the value", The_value="12345678901234567890123")
    is_done(page)
    assert reader.site.semel.value("stated", operation="probe", scope="acme") == 12345678901234567890123


def test_what_is_personal_is_erased_by_who_may(reader: Reader) -> None:
    record = reader.site.completed("personal", {"name": "Ann"})
    page = reader.opens(f"/records/{record.reference}", "eraser")
    page.get_by_role("link", name="Erase what is personal").click()
    expect(page.get_by_label("Reason")).to_be_visible()
    look_at(page, "erase")
    give_reason(page, "Erase what is personal")
    is_done(page)
    assert reader.site.read("personal").erased
    reader.opens("/audit", "admin")
    expect(page.locator("tbody tr").first).to_contain_text("emil")
    look_at(page, "audit")


def test_a_live_lease_is_ended_only_by_an_admin_who_types_its_reference(reader: Reader) -> None:
    record = reader.site.running("live")
    page = reader.opens(f"/records/{record.reference}", "operator")
    expect(page.locator("[data-live=actions]")).to_contain_text("still running: lease until")
    page.goto(reader.site.url(f"/act?do=cancel&target={record.reference}", "operator"))
    expect(page.locator("tbody")).to_contain_text("still running: lease until")
    expect(page.get_by_label("Reason")).to_have_count(0)
    reader.opens(f"/records/{record.reference}", "admin")
    page.get_by_role("link", name="Cancel it").click()
    expect(page.get_by_label("Reason")).to_be_visible()
    look_at(page, "end-a-live-lease")
    page.get_by_label(re.compile("To go on")).fill("00000000")
    give_reason(page, "Cancel it")
    expect(page.locator("main")).to_contain_text("type the first 8 digits of the reference")
    assert reader.site.read("live").status == "running"
    reader.opens(f"/act?do=cancel&target={record.reference}")
    page.get_by_label(re.compile("To go on")).fill(record.reference[:8])
    give_reason(page, "Cancel it")
    is_done(page)
    note = reader.site.read("live").note
    assert note is not None
    assert note.forced


def test_some_are_chosen_and_what_cannot_be_done_is_refused_in_words(reader: Reader) -> None:
    for number in range(3):
        reader.site.in_doubt(f"chosen {number}")
    reader.site.completed("chosen done")
    page = reader.opens("/records?operation=probe&after=1h", "operator")
    for key in ("chosen 0", "chosen 1", "chosen done"):
        page.locator("tbody tr").filter(has=page.get_by_text(key, exact=True)).locator("input").check()
    page.get_by_label("What to do").select_option("cancel")
    page.get_by_role("button", name="See what would happen").click()
    expect(page.locator("main")).to_contain_text("2 of 3 would be done")
    expect(page.locator("tbody")).to_contain_text("is completed, not in doubt; nothing was changed")
    look_at(page, "act")
    give_reason(page, "Cancel it: 2")
    expect(page.get_by_role("status").filter(has_text="2 of 2 done")).to_be_visible()
    look_at(page, "acted")
    assert [reader.site.read(f"chosen {number}").status for number in range(3)] == [
        "cancelled",
        "cancelled",
        "in_doubt",
    ]


def test_all_that_match_are_decided_about_with_progress_and_refusals(reader: Reader) -> None:
    for number in range(12):
        reader.site.in_doubt(f"bulk {number}", "bulky")
    reader.site.completed("bulk done", scope="bulky")
    page = reader.opens("/records?scope=bulky", "operator")
    page.get_by_label("Which records").select_option("all")
    page.get_by_label("What to do").select_option("release")
    page.get_by_role("button", name="See what would happen").click()
    figures = page.locator(".figures dd")
    expect(figures).to_have_text(["13", "12", "1"])
    look_at(page, "bulk-ask")
    give_reason(page, "It did not happen: 12")
    expect(page.locator("[data-live=head] .badge")).to_have_text("completed")
    expect(page.locator(".figures dd")).to_have_text(["100 %", "12", "1", "0", "0"])
    expect(page.locator("[data-live=refusals] td").last).to_have_text(
        re.compile("^The record .* is completed, not in doubt")
    )
    look_at(page, "bulk")
    assert all(reader.site.read(f"bulk {number}", "bulky").retryable for number in range(12))
    page.get_by_role("link", name="Actions on many").click()
    expect(page.locator("tbody")).to_contain_text("12 done, 1 refused")


def test_everything_there_is_cannot_be_meant_by_all_that_match(reader: Reader) -> None:
    page = reader.opens("/act?which=all&do=cancel", "operator")
    expect(page.get_by_role("alert")).to_contain_text("matches every record there is")


def test_letters_are_redriven_and_discarded(reader: Reader) -> None:
    page = reader.opens("/events/letters?consumer=billing", "operator")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(5)
    page.get_by_role("link", name="show").first.click()
    expect(page.locator("pre")).to_contain_text("order.placed")
    look_at(page, "letter")
    page.go_back()
    rows.nth(0).get_by_role("checkbox").check()
    page.get_by_role("button", name="See what would happen").click()
    give_reason(page, "Redrive")
    expect(page.locator("tbody")).to_contain_text("handed over: processed")
    page.get_by_role("link", name="Back").last.click()
    expect(rows).to_have_count(4)
    rows.nth(0).get_by_role("checkbox").check()
    page.get_by_label("What to do").or_(page.locator("#do")).first.select_option("discard")
    page.get_by_role("button", name="See what would happen").click()
    give_reason(page, "Discard")
    is_done(page)
    reader.opens("/events/letters?consumer=billing", "operator")
    expect(rows).to_have_count(3)


def test_a_parked_event_is_dropped_and_another_cannot_be_while_it_waits(reader: Reader) -> None:
    page = reader.opens("/events/parked?stream=default", "operator")
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator("tbody tr").nth(1)).to_contain_text("waits behind")
    expect(page.get_by_label("Choose position")).to_have_count(1)
    page.goto(reader.site.url("/act?do=publish&stream=default&position=2", "operator"))
    expect(page.locator("tbody")).to_contain_text("It waits behind another one of its key")
    reader.opens("/events/parked?stream=default", "operator")
    page.get_by_label("Choose all on this page").check()
    page.locator("#do").select_option("drop")
    page.get_by_role("button", name="See what would happen").click()
    give_reason(page, "Drop")
    is_done(page)
    reader.opens("/events/parked?stream=default", "operator")
    expect(page.locator("tbody tr")).to_have_count(1)  # what waited behind it goes out with the next turn
    expect(page.locator("tbody")).to_contain_text("waits behind, or released")
    reader.opens("/act?do=drop&stream=default&position=1", "operator")
    expect(page.locator("tbody")).to_contain_text("There is no parked event at position 1")


def test_a_parked_event_is_released_and_then_there_is_nothing_left_to_decide(filled: Path, reader: Reader) -> None:
    site = reader.site
    run_apart(park_events(site.path))
    position = reader.opens("/events/parked?stream=default", "operator").get_by_role("checkbox").last.input_value()
    page = reader.opens(f"/act?do=publish&stream=default&position={position}", "operator")
    give_reason(page, "Release")
    is_done(page)
    reader.opens(f"/act?do=drop&stream=default&position={position}", "operator")
    expect(page.locator("tbody")).to_contain_text("or was released and goes out with the next turn of its relay")


def test_all_events_of_a_stream_that_failed_are_released_together(reader: Reader) -> None:
    for key in ("order-8", "order-9"):
        run_apart(park_events(reader.site.path, key))
    page = reader.opens("/events/parked?stream=default", "operator")
    failed = page.get_by_label("Choose position").count()
    assert failed >= 2
    page.get_by_label("Which events").select_option("all")
    page.get_by_role("button", name="See what would happen").click()
    expect(page.locator("tbody")).to_contain_text(f"all of default that failed: {failed}")
    expect(page.locator("#reason-hint")).to_contain_text("Kept in the audit chain")  # an event keeps no reason
    give_reason(page, "Release")
    is_done(page)
    expect(page.locator("tbody")).to_contain_text(f"released: {failed}")
    expect(reader.opens("/events/parked?stream=default", "operator").get_by_label("Choose position")).to_have_count(0)
    reader.opens("/act?do=publish&which=all&stream=default", "operator")
    expect(page.locator("tbody")).to_contain_text("No event of default failed")


def test_events_are_never_dropped_all_together(reader: Reader) -> None:
    page = reader.opens("/act?do=drop&which=all&stream=default", "operator")
    expect(page.get_by_role("alert")).to_contain_text("never all together; nothing was changed")


def test_who_has_scopes_is_not_offered_all_events_of_a_stream(reader: Reader) -> None:
    run_apart(park_events(reader.site.path))
    page = reader.opens("/events/parked?stream=default", "acme")
    expect(page.get_by_label("What to do")).to_be_visible()
    expect(page.get_by_label("Which events")).to_have_count(0)
    reader.opens("/act?do=publish&which=all&stream=default", "acme")
    expect(page.get_by_role("alert")).to_contain_text("is not bound to a scope")


def test_a_batch_is_resumed_paused_retried_and_cancelled(reader: Reader) -> None:
    batch = Batches(reader.site.semel, "acme").get("payroll-2026-11")
    for button, state in (("Resume", "running"), ("Retry what failed", "running"), ("Pause", "paused")):
        page = reader.opens("/batch?scope=acme&batch=payroll-2026-11", "operator")
        page.get_by_role("link", name=button).click()
        give_reason(page, button)
        is_done(page)
        assert batch.status().state == state
    page = reader.opens("/batch?scope=acme&batch=payroll-2026-11", "operator")
    page.get_by_role("link", name="Cancel the batch").click()
    give_reason(page, "Cancel the batch")
    is_done(page)
    assert batch.status().state in ("cancelled", "failed")
    reader.opens("/batch?scope=acme&batch=payroll-2026-11", "operator")
    expect(page.locator("[data-live=actions]")).to_contain_text("Nothing can be done here")


def test_what_has_changed_since_it_was_looked_at_is_refused(reader: Reader) -> None:
    record = reader.site.failed("moved on")
    page = reader.opens(f"/act?do=reopen&target={record.reference}", "operator")
    reader.site.semel.reopen("moved on", operation="probe", scope="acme", reason="somebody was quicker")
    reader.site.failed("moved on")
    give_reason(page, "Let it run again")
    expect(page.locator("main")).to_contain_text("has changed since it was looked at")


MANY: Final[dict[str, tuple[Callable[[Site, str, str], Record], str, str, str]]] = {
    "cancel": (Site.in_doubt, "operator", "Cancel it: 3", "cancelled"),
    "fail": (Site.in_doubt, "operator", "It failed: 3", "failed"),
    "reopen": (Site.failed, "operator", "Let it run again: 3", "failed"),
    "erase": (Site.completed_in, "eraser", "Erase what is personal: 3", "completed"),
}


@pytest.mark.parametrize("deed", MANY)
def test_everything_that_can_be_done_to_many_is_done_to_all_that_match(reader: Reader, deed: str) -> None:
    make, role, button, status = MANY[deed]
    for number in range(3):
        make(reader.site, f"{deed} {number}", f"many-{deed}")
    page = reader.opens(f"/records?scope=many-{deed}", role)
    page.get_by_label("Which records").select_option("all")
    page.get_by_label("What to do").select_option(deed)
    page.get_by_role("button", name="See what would happen").click()
    give_reason(page, button, **({"The_error": "no such account"} if deed == "fail" else {}))
    expect(page.locator("[data-live=head] .badge")).to_have_text("completed")
    expect(page.locator(".figures dd")).to_have_text(["100 %", "3", "0", "0", "0"])
    records = [reader.site.read(f"{deed} {number}", f"many-{deed}") for number in range(3)]
    assert {record.status for record in records} == {status}
    assert all(record.erased for record in records) is (deed == "erase")
    assert all(record.retryable for record in records) is (deed == "reopen")


@pytest.mark.parametrize("deed", ["redrive", "discard"])
def test_all_letters_that_match_are_redriven_or_discarded(reader: Reader, deed: str) -> None:
    keep_letters(reader.site.semel, f"many-{deed}")
    page = reader.opens("/events/letters?consumer=billing&type=order.placed", "operator")
    page.get_by_label("Subject").fill(f"many-{deed}")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("tbody tr")).to_have_count(3)
    page.get_by_label("Which letters").select_option("all")
    page.locator("#do").select_option(deed)
    page.get_by_role("button", name="See what would happen").click()
    give_reason(page, f"{deed.capitalize()}: 3")
    expect(page.locator("[data-live=head] .badge")).to_have_text("completed")
    reader.opens(f"/events/letters?consumer=billing&subject=many-{deed}", "operator")
    expect(page.locator("main")).to_contain_text("No dead letters match.")


def test_an_action_on_many_is_paused_goes_on_and_is_cancelled(reader: Reader) -> None:
    for number in range(5):
        reader.site.in_doubt(f"slow {number}", "slowly")
    page = reader.opens("/act?which=all&do=cancel&scope=slowly", "operator")
    page.get_by_label("At most so many").fill("0.001")
    give_reason(page, "Cancel it: 5")
    state = page.locator("[data-live=head] .badge")
    for button, then in (("Pause", "paused"), ("Resume", re.compile("running|pending")), ("Cancel", "cancelled")):
        page.get_by_label("Reason").fill(WHY)
        page.get_by_role("button", name=button, exact=True).click()
        expect(state).to_have_text(then)
    expect(page.get_by_label("Reason")).to_have_count(0)
    left = [reader.site.read(f"slow {number}", "slowly").status for number in range(5)]
    assert sum(status == "in_doubt" for status in left) >= 3
    reader.opens("/audit?actor=olga", "admin")
    expect(page.locator("tbody")).to_contain_text("what: pause")


def test_items_in_doubt_run_again_by_decision(reader: Reader) -> None:
    def pay(data: object) -> None:
        raise Crash

    batch = Batches(reader.site.semel, "acme").start("doubtful", [{"id": "1"}], operation="pay", item_id="id")
    with pytest.raises(Crash):
        batch.run(pay, in_doubt="hold", lease_for=timedelta(seconds=1))
    batch.run(pay, in_doubt="hold", lease_for=timedelta(seconds=1))  # waits for the lease, and finds what it left
    assert batch.status().in_doubt == 1
    page = reader.opens("/batch?scope=acme&batch=doubtful", "operator")
    expect(page.locator("[data-live=items] tbody tr")).to_have_count(1)
    page.get_by_role("link", name="Retry what is in doubt").click()
    give_reason(page, "Retry what is in doubt")
    expect(page.locator("main")).to_contain_text("1 items run again")
    assert batch.status().in_doubt == 0


def test_a_viewer_looks_at_everything_and_is_offered_nothing(reader: Reader) -> None:
    reader.site.in_doubt("looked at by vera")
    page = reader.page
    for place, title in PAGES.values():
        if place == "/audit":
            continue  # it is for admins
        reader.opens(place, "viewer")
        expect(page.locator("h1")).to_have_text(title)
        chosen = 'input[name="target"], input[name="letter"], input[name="position"]'
        assert page.locator(chosen).count() == 0, place
        assert page.locator('a[href*="/act?"], form[action$="/act"], form[method=post]').count() == 0, place
    reader.opens("/audit", "viewer")
    expect(page.get_by_role("alert")).to_contain_text("vera may not audit")


def test_who_has_scopes_is_told_that_a_record_was_erased_and_not_led_to_it(reader: Reader) -> None:
    record = reader.site.completed("personal in a scope", {"name": "Ann"})
    page = reader.opens(f"/act?do=erase&target={record.reference}", "acme")
    give_reason(page, "Erase what is personal")
    expect(page.get_by_role("status").filter(has_text="1 of 1 done")).to_be_visible()
    assert reader.site.read("personal in a scope").erased
