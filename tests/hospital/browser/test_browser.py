"""The pages, in a real browser: a claim is followed on its diagram, through everything its buttons can do to it."""

from __future__ import annotations

import signal

import pytest
from playwright.sync_api import expect

from tests.hospital.browser.conftest import Desk

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_second_start_is_replayed_and_pays_once(desk: Desk) -> None:
    desk.start()
    desk.ends()
    desk.sees(SUB_05="ran", SUB_06="ran", SUB_08="ran", SUB_APPEAL="idle")
    desk.has(claims=1, payments=1)
    expect(desk.page.locator("#balance dd")).to_have_text("300.00")
    desk.start("#again")
    desk.ends()
    desk.sees(SUB_05="replayed", SUB_06="replayed", SUB_08="replayed")
    desk.has(claims=1, payments=1)
    expect(desk.page.locator(".runs tbody tr")).to_have_count(3)
    expect(desk.page.locator("#at-insurer")).to_contain_text("asked for 1 time")


def test_codes_that_a_person_validated_hold_over_a_second_start(desk: Desk) -> None:
    desk.start()
    desk.ends()
    expect(desk.page.locator("#codes")).to_contain_text("suggested by the coder")
    desk.page.get_by_label("Codes of eight digits").fill("20101015")
    desk.page.locator("#validate").click()
    expect(desk.page.locator("#codes")).to_contain_text("20101015")
    desk.start("#again")
    desk.ends()
    expect(desk.page.locator("#codes")).to_contain_text("20101015")
    expect(desk.page.locator("#codes")).to_contain_text("validated by a person")
    desk.has(claims=1, payments=1)


def test_a_lost_reply_is_in_doubt_and_then_one_claim(desk: Desk) -> None:
    desk.hold()
    desk.page.locator("#lose").click()
    expect(desk.page.locator("#loses")).to_be_visible()
    desk.neighbours.insurer.faults(delay=0)
    desk.ends()
    expect(desk.page.locator('.runs [data-task="SUB_06"] .badge')).to_have_text(["in doubt", "ran"])
    desk.has(claims=1, payments=1)
    expect(desk.page.locator("#at-insurer")).to_contain_text("asked for 2 times")
    expect(desk.page.locator("#loses")).to_have_count(0)


def test_a_killed_worker_leaves_a_doubt_and_the_next_one_ends_it(desk: Desk) -> None:
    desk.hold()
    desk.page.locator("#kill").click()
    assert desk.worker.wait() == -signal.SIGKILL
    desk.neighbours.insurer.faults(delay=0)
    desk.worker.start()
    desk.ends()
    expect(desk.page.locator('.runs [data-task="SUB_06"] .badge')).to_have_text(["in doubt", "ran"])
    expect(desk.page.locator('.runs [data-task="SUB_06"] .why').first).to_have_text("The worker died here.")
    desk.has(claims=1, payments=1)


def test_a_refused_claim_goes_to_its_appeal_on_a_telephone_in_the_dark(desk: Desk) -> None:
    desk.page.set_viewport_size({"width": 390, "height": 800})
    desk.page.emulate_media(color_scheme="dark")
    desk.start("#start-refused")
    desk.ends("appealed")
    desk.sees(SUB_06="refused", glosa="passed", SUB_08="idle", SUB_APPEAL="ran", appealed="passed")
    desk.has(claims=0, payments=0)
    expect(desk.page.locator("#appealed dd").first).to_have_text("1 appeal")
    assert desk.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    runs = desk.page.locator(".scroll:has(.runs)")
    assert runs.evaluate("part => part.scrollWidth <= part.clientWidth")
