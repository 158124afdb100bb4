"""What people do to pages, in a real browser: in the end there is one of everything, and the page says so."""

import pytest
from playwright.sync_api import Page, expect

from tests.hotel.browser.house import PATIENCE, Guest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CLICKS = """async (number) => {
  const button = document.getElementById("reserve");
  for (let click = 0; click < number; click++) {
    button.click();
    await new Promise((wake) => setTimeout(wake, 1000 / number));
  }
}"""
RAW = """async ([number, key, body]) => {
  const one = () => fetch("/reservations", {
    method: "POST",
    headers: { "Content-Type": "application/json", "Idempotency-Key": key },
    body: JSON.stringify(body),
  }).then(async (answer) => `${answer.status} ${(await answer.json()).id}`);
  return Promise.all(Array.from({ length: number }, one));
}"""


def test_a_stay_is_booked_from_the_first_page_to_the_receipt(guest: Guest) -> None:
    guest.ready_to_pay()
    guest.page.locator("#pay").click()
    guest.paid_once()
    expect(guest.page.locator("#receipt")).to_contain_text("G-")


def test_fifty_clicks_on_reserve_make_one_reservation(guest: Guest) -> None:
    guest.choose()
    held = guest.hold("**/reservations")
    guest.page.evaluate(CLICKS, 50)
    guest.until(lambda: bool(held))
    held[0].continue_()
    guest.drafted_once()
    assert len(held) == 1, "clicks are one wish: the page sends it once"


def test_fifty_requests_with_one_key_make_one_reservation(guest: Guest) -> None:
    body = {"hotel_id": "H1", "room_type": "double", "check_in": str(guest.first), "check_out": str(guest.last)}
    answers = guest.page.evaluate(RAW, [50, "fifty", body])
    assert len(answers) == 50
    assert len(set(answers)) == 1
    assert guest.house.reservations(guest.first) == ["STARTED"]


def test_a_refresh_in_the_middle_of_reserving_goes_on_with_the_same_key(guest: Guest) -> None:
    guest.choose()
    guest.reserve_unheard()
    guest.page.reload()
    guest.drafted_once()


def test_a_tab_that_was_closed_in_the_middle_of_reserving_goes_on_when_it_is_opened_again(guest: Guest) -> None:
    guest.choose()
    address = guest.page.url
    guest.reserve_unheard()
    guest.page.close()
    guest.page = guest.context.new_page()
    guest.page.goto(address)
    guest.drafted_once()


def test_going_back_and_booking_again_leads_to_the_reservation(guest: Guest) -> None:
    guest.choose()
    guest.reserve()
    guest.page.go_back()
    guest.page.get_by_role("link", name="Book Double").click()
    expect(guest.page.locator("#reserve")).to_be_hidden(timeout=PATIENCE)
    guest.page.locator("#reserved").click()
    guest.drafted_once()


def test_going_back_in_the_middle_and_clicking_again_is_the_same_reservation(guest: Guest) -> None:
    guest.choose()
    address = guest.page.url
    guest.reserve_unheard()
    guest.go_back()
    guest.page.goto(address)
    guest.drafted_once()


def test_two_tabs_that_reserve_at_once_make_one_reservation(guest: Guest) -> None:
    guest.choose()
    second = guest.context.new_page()
    second.goto(guest.page.url)
    held = [guest.hold("**/reservations", page) for page in (guest.page, second)]
    for page in (guest.page, second):
        page.locator("#reserve").click()
    guest.until(lambda: all(held))
    for (route,) in held:
        route.continue_()
    guest.sees("STARTED", second)
    guest.drafted_once()


def test_a_second_tab_that_reserves_later_is_led_to_the_reservation(guest: Guest) -> None:
    guest.choose()
    second = guest.context.new_page()
    second.goto(guest.page.url)
    guest.reserve()
    second.locator("#reserved").click()
    guest.sees("STARTED", second)
    guest.drafted_once()


def test_a_double_click_on_pay_while_the_first_still_runs_charges_once(guest: Guest) -> None:
    guest.ready_to_pay()
    guest.house.gateway.faults(delay=600)
    guest.page.locator("#pay").dblclick()
    guest.house.gateway.wait_for_charges(1)
    guest.page.evaluate("document.getElementById('pay-form').requestSubmit()")
    guest.house.gateway.faults(delay=0)
    guest.paid_once()


def test_a_refresh_in_the_middle_of_paying_ends_on_the_confirmation(guest: Guest) -> None:
    guest.ready_to_pay()
    guest.house.gateway.faults(delay=600)
    guest.page.locator("#pay").click()
    guest.house.gateway.wait_for_charges(1)
    guest.page.reload()
    guest.house.gateway.faults(delay=0)
    guest.paid_once()


def test_a_tab_that_was_closed_in_the_middle_of_paying_ends_on_the_confirmation(guest: Guest) -> None:
    guest.ready_to_pay()
    address = guest.page.url
    guest.house.gateway.faults(delay=600)
    guest.page.locator("#pay").click()
    guest.house.gateway.wait_for_charges(1)
    guest.page.close()
    guest.house.gateway.faults(delay=0)
    guest.page = guest.context.new_page()
    guest.page.goto(address)
    guest.paid_once()


def test_two_tabs_that_pay_at_once_charge_once(guest: Guest) -> None:
    guest.ready_to_pay()
    second = guest.context.new_page()
    second.goto(guest.page.url)
    guest.can_press("#pay", second)
    asks = guest.hold("**/state", second)  # a page that hears of the other tab's payment takes its form away
    guest.house.gateway.faults(delay=600)
    guest.page.locator("#pay").click()
    second.locator("#pay-form").evaluate("(form) => form.requestSubmit()")
    guest.house.gateway.wait_for_charges(1)
    guest.let_go("**/state", asks, second)
    guest.house.gateway.faults(delay=0)
    guest.paid_once(second)
    guest.paid_once()


@pytest.mark.parametrize("lost", [1, 3])
def test_replies_to_a_reservation_that_are_lost_leave_one_reservation(guest: Guest, lost: int) -> None:
    guest.choose()
    guest.lose_replies("**/reservations", lost)
    guest.page.locator("#reserve").click()
    guest.drafted_once()
    assert len(guest.lost) == lost
    assert len(set(guest.lost)) == 1, "every try shows the same key, and gets the same status"


def test_replies_to_a_payment_that_are_lost_leave_one_charge(guest: Guest) -> None:
    guest.ready_to_pay()
    guest.lose_replies("**/pay", 2)
    guest.page.locator("#pay").click()
    guest.paid_once()
    assert len(set(guest.lost)) == 1


def test_a_server_that_is_killed_in_the_middle_of_a_payment_charges_once(guest: Guest) -> None:
    guest.ready_to_pay()
    guest.house.gateway.faults(delay=600)
    guest.page.locator("#pay").click()
    guest.house.gateway.wait_for_charges(1)
    guest.house.kill()
    guest.house.gateway.faults(delay=0)
    guest.house.start()
    guest.paid_once()


def test_going_offline_and_coming_back_carries_the_payment_out(guest: Guest) -> None:
    guest.ready_to_pay()
    guest.context.set_offline(True)
    guest.page.locator("#pay").click()
    expect(guest.page.locator("#status")).to_contain_text("Trying again", timeout=PATIENCE)
    guest.has(reservations=["DETAILS_CONFIRMED"], booked=0, charges=[])
    guest.context.set_offline(False)
    guest.paid_once()


def test_a_declined_card_gives_the_room_back_and_another_card_pays(guest: Guest) -> None:
    guest.ready_to_pay()
    guest.page.locator("#card-tok_declined").check()
    guest.page.locator("#pay").click()
    expect(guest.page.locator("#problem")).to_contain_text("declined", timeout=PATIENCE)
    guest.has(reservations=["DETAILS_CONFIRMED"], booked=0, charges=["declined"])
    guest.page.locator("#card-tok_ok").check()
    guest.page.locator("#pay").click()
    guest.sees("CONFIRMED")
    guest.has(reservations=["CONFIRMED"], booked=1, charges=["declined", "charged"])


def test_an_expired_draft_cannot_be_paid_and_the_page_says_what_to_do(guest: Guest) -> None:
    asks = guest.hold("**/state")  # the page looks by itself now and then: it must not find out before the click
    guest.ready_to_pay()
    guest.house.expire(guest.first)
    guest.page.locator("#pay").click()
    expect(guest.page.locator("#seen-list").get_by_text("410")).to_be_visible(timeout=PATIENCE)
    guest.let_go("**/state", asks)
    guest.sees("EXPIRED")
    guest.has(reservations=["DETAILS_CONFIRMED"], booked=0, charges=[])


def test_the_bad_network_of_the_page_ends_well(guest: Guest) -> None:
    guest.choose()
    guest.page.evaluate("Math.random = (() => { let n = 0; return () => [0.1, 0.1, 0.9][n++ % 3]; })()")
    guest.page.get_by_role("button", name="Bad network").click()
    guest.page.locator("#reserve").click()
    guest.drafted_once()


def test_the_panel_shows_which_request_ran_and_which_was_replayed(guest: Guest) -> None:
    guest.choose()
    guest.lose_replies("**/reservations", 1)
    guest.page.locator("#reserve").click()
    guest.drafted_once()
    panel = guest.page.locator("#seen-list")
    expect(panel.get_by_text("ran", exact=True)).to_have_count(1, timeout=PATIENCE)
    expect(panel.get_by_text("replayed", exact=True)).to_have_count(1, timeout=PATIENCE)
    expect(guest.page.locator("#seen-count")).to_have_text("2 requests, 1 ran")


def test_the_whole_way_can_be_gone_with_the_keyboard(guest: Guest) -> None:
    guest.choose()
    guest.page.locator("#reserve").focus()
    guest.page.keyboard.press("Enter")
    guest.sees("STARTED")
    guest.page.locator("#email").fill("ada@example.org")
    guest.can_press("#confirm-details")
    guest.page.keyboard.press("Enter")
    guest.sees("DETAILS_CONFIRMED")
    guest.can_press("#pay")
    guest.page.locator("#pay").focus()
    guest.page.keyboard.press("Space")
    guest.paid_once()


def _sign_in_again(page: Page, name: str) -> None:
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Your name").fill(name)
    page.get_by_role("button", name="Come in").click()
    expect(page.locator(".who")).to_contain_text(name)


def test_what_one_guest_left_unfinished_is_not_sent_for_the_next_one_at_this_browser(guest: Guest) -> None:
    guest.choose()
    address = guest.page.url
    held = guest.hold("**/reservations")
    guest.page.locator("#reserve").click()
    guest.until(lambda: bool(held))
    held[0].abort()
    guest.page.goto(guest.house.url)
    _sign_in_again(guest.page, "Bob")
    guest.page.unroute("**/reservations")
    guest.page.goto(address)
    expect(guest.page.locator("#reserve")).to_be_enabled()
    assert guest.page.evaluate("import('/static/sending.js').then((sending) => sending.pendingFor('reserve:'))") == []
    assert guest.house.reservations(guest.first) == []
    guest.reserve()
    assert guest.house.reservations(guest.first) == ["STARTED"]


def test_a_page_of_one_guest_is_not_left_to_the_next_one_in_another_tab(guest: Guest) -> None:
    guest.choose()
    guest.reserve()
    second = guest.context.new_page()
    second.goto(guest.house.url)
    _sign_in_again(second, "Bob")
    # The page is drawn again: for nobody, if it looked between sign-out and sign-in, or for Bob, who has no such thing.
    expect(guest.page.locator("#reservation")).to_have_count(0)
