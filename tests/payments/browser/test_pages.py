"""The pages, in a real browser: a file is sent and followed, steered and corrected."""

import re

import pytest
from playwright.sync_api import Route, expect

from tests.payments.browser.office import Office
from tests.payments.till import as_csv, rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
DECLINED = [(f"x-{number}", "3.00", "c", "tok_declined") for number in range(2)]


def test_a_file_is_followed_to_its_end(office: Office) -> None:
    office.follow(as_csv([*rows(20), *DECLINED, ("p-nothing", "0.00", "c", "tok_ok")]))
    office.sees("completed")
    office.counts(completed=20, failed=2, skipped=1, remaining=0)
    page = office.page
    expect(page.locator("#percent")).to_have_text("100%")
    expect(page.locator("#failure-list")).to_contain_text("Card declined")
    expect(page.locator("#result-list tr")).to_have_count(23)
    expect(page.locator("#result-list tr").first).to_contain_text("pay_")
    page.get_by_role("button", name="Failed", exact=True).click()
    expect(page.locator("#result-list tr")).to_have_count(2)
    expect(page.locator("#result-list tr").first).to_contain_text("The card was declined")
    assert sorted(office.charges().values()) == [1] * 20


def test_progress_is_live_and_a_bulk_can_be_paused_and_resumed(office: Office) -> None:
    office.gateway.faults(delay=600)
    office.follow(as_csv(rows(30)))
    office.sees("running")
    office.counts(remaining=30)
    office.gateway.process.wait_for_charges(8)
    office.press("pause")
    office.sees("paused")
    office.let_some_through()
    expect(office.page.locator("#completed")).not_to_have_text("0")
    expect(office.page.locator("#bar")).not_to_have_attribute("aria-valuenow", "0")
    office.sees("paused")
    office.press("resume")
    office.gateway.faults(delay=0)
    office.sees("completed")
    office.counts(completed=30, remaining=0)
    assert sorted(office.charges().values()) == [1] * 30


def test_the_time_that_is_left_is_told_in_whole_units(office: Office) -> None:
    def answer(route: Route) -> None:
        told = route.fetch().json()
        route.fulfill(
            json=told | {"state": "running", "total": 6, "remaining": 5, "rate": 1.0, "eta_seconds": left[-1]}
        )

    left = [59.7]
    office.page.route(
        re.compile(r"/bulk/[^/?]+$"), lambda route: answer(route) if is_asked(route) else route.continue_()
    )
    office.follow(as_csv(rows(1)))
    for seconds, told in ((59.7, "1 min left"), (3599.8, "1 h left"), (119.6, "2 min left")):
        left.append(seconds)
        expect(office.page.locator("#eta")).to_have_text(told)


def is_asked(route: Route) -> bool:
    """Whether a page asks how far it is, and is not loaded itself."""
    return route.request.resource_type == "fetch"


def test_a_bulk_can_be_cancelled(office: Office) -> None:
    office.gateway.faults(delay=600)
    office.follow(as_csv(rows(30)))
    office.gateway.process.wait_for_charges(8)
    office.press("cancel")
    office.sees("cancelled")
    office.let_some_through()
    expect(office.page.locator("#completed")).not_to_have_text("0")
    for button in ("pause", "resume", "cancel", "retry"):
        expect(office.page.locator(f"#{button}")).to_be_hidden()


def test_what_failed_can_be_tried_again(office: Office) -> None:
    office.follow(as_csv([*rows(2), *DECLINED]))
    office.sees("completed")
    expect(office.page.locator("#retry")).to_have_text("Retry 2 failed")
    office.gateway.faults(delay=600)
    office.press("retry")
    office.sees("running")
    office.counts(remaining=2, failed=0)
    office.gateway.faults(delay=0)
    office.sees("completed")
    office.counts(completed=2, failed=2)


def test_bad_lines_are_shown_with_their_numbers(office: Office) -> None:
    office.send(as_csv(rows(3)) + b"p-8,12x,c,tok_ok\np-9,1.00,c\n")
    page = office.page
    expect(page.locator("#problem")).to_contain_text("2 of the lines cannot be paid")
    expect(page.locator("#bad-list tr")).to_have_text(
        ["5amount: no decimal number such as 12.50", "64 fields were expected"]
    )
    office.follow(as_csv(rows(3)))
    office.sees("completed")
    assert sorted(office.charges().values()) == [1] * 3


def test_the_same_file_leads_to_the_same_bulk(office: Office) -> None:
    office.follow(as_csv(rows(3)))
    first = office.page.url
    office.sees("completed")
    office.follow(as_csv(rows(3)), "another-name.csv")
    assert office.page.url == first
    assert sorted(office.charges().values()) == [1] * 3
    office.page.goto(office.address)
    expect(office.page.locator(".files tbody tr")).to_have_count(1)


def test_what_a_file_says_is_shown_as_text(office: Office) -> None:
    name = "<img src=x onerror=alert(1)>.csv"
    office.follow(as_csv([("<b>p</b>", "1.00", "c", "tok_ok")]), name)
    office.sees("completed")
    expect(office.page.locator("h1")).to_have_text(name)
    expect(office.page.locator("#result-list td").nth(1)).to_have_text("<b>p</b>")


def test_a_page_fits_a_telephone(office: Office) -> None:
    office.page.set_viewport_size({"width": 390, "height": 800})
    office.follow(as_csv([*rows(3), *DECLINED]), "a-name-that-is-longer-than-a-telephone-is-wide-2026-11.csv")
    office.sees("completed")
    expect(office.page.locator("#failure-list")).to_contain_text("Card declined")
    assert office.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
