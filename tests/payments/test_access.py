"""Who may: signed-in browsers, API keys, other sites; and what each of them is shown."""

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.payments.till import Shop, Till, code_of, rows

pytestmark = pytest.mark.anyio
HTML = {"Accept": "text/html"}


async def _signed_in(till: Till, **form: str) -> httpx.AsyncClient:
    client = till.client()
    answer = await client.post("/sign-in", data=form or {"name": "Shop <b>"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    return client


async def test_a_browser_that_has_signed_in_may_pay(till: Till) -> None:
    client = await _signed_in(till)
    body = {"amount": "1.00", "customer_id": "c", "payment_method_id": "tok_ok"}
    answer = await client.post("/payments", json=body, headers={"Idempotency-Key": "k"})
    assert answer.status_code == 201


async def test_the_cookie_is_kept_from_scripts_and_other_sites(till: Till) -> None:
    answer = await till.client().post("/sign-in", data={"name": "Shop"})
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie


async def test_a_browser_that_has_signed_out_may_no_longer(till: Till) -> None:
    client = await _signed_in(till)
    cookies = dict(client.cookies)
    await client.post("/sign-out")
    assert (await till.client({"Cookie": f"payments={cookies['payments']}"}).get("/bulk/none")).status_code == 401


@pytest.mark.parametrize("headers", [{"Origin": "https://elsewhere.example"}, {"Sec-Fetch-Site": "cross-site"}])
async def test_what_another_site_sends_is_refused(till: Till, headers: dict[str, str]) -> None:
    client = await _signed_in(till)
    answer = await client.post("/payments", json={}, headers={"Idempotency-Key": "k", **headers})
    assert (answer.status_code, code_of(answer)) == (403, "other-site")


async def test_an_api_key_signs_a_browser_in_to_its_account(till: Till, shop: Shop) -> None:
    address = await shop.bulk(rows(1))
    key = shop.client.headers["authorization"].partition(" ")[2]
    client = await _signed_in(till, api_key=key)
    assert (await client.get(address)).json()["total"] == 1


async def test_a_key_that_nobody_has_signs_nobody_in(till: Till) -> None:
    client = till.client()
    answer = await client.post("/sign-in", data={"api_key": "wrong"})
    assert (answer.headers["location"], dict(client.cookies)) == ("/?refused=key", {})
    assert "No account has this key" in (await client.get("/?refused=key")).text


async def test_a_form_without_an_end_is_refused(till: Till) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"name=" + b"x" * 1000

    answer = await till.client().post("/sign-in", content=endless())
    assert (answer.status_code, code_of(answer)) == (400, "malformed")


@pytest.mark.parametrize("name", ["", "x" * 81, "a\x00b"])
async def test_what_is_no_name_opens_no_account(till: Till, name: str) -> None:
    answer = await till.client().post("/sign-in", data={"name": name})
    assert (answer.status_code, code_of(answer)) == (400, "malformed")


async def test_a_session_is_no_api_key(till: Till) -> None:
    client = await _signed_in(till)
    stolen = till.client({"Authorization": f"Bearer {client.cookies['payments']}"})
    assert (await stolen.get("/bulk/none")).status_code == 401


async def test_a_page_is_for_whoever_wants_a_page(shop: Shop) -> None:
    address = await shop.bulk(rows(2))
    page = await shop.client.get(address, headers=HTML)
    assert page.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert (await shop.client.get(address)).headers["content-type"] == "application/json"


async def test_a_stranger_is_led_to_the_first_page(till: Till, shop: Shop) -> None:
    address = await shop.bulk(rows(1))
    answer = await till.client(HTML).get(address)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


async def test_the_page_of_another_account_is_not_found(till: Till, shop: Shop) -> None:
    address = await shop.bulk(rows(1))
    answer = await (await till.shop()).client.get(address, headers=HTML)
    assert answer.status_code == 404
    assert "payments" not in answer.text.partition("<main")[2].partition("</main")[0].lower()


async def test_the_first_page_lists_the_files_of_its_account_alone(till: Till, shop: Shop) -> None:
    await shop.upload(b"id,amount,customer_id,payment_method_id\na,1.00,c,t\n", params={"name": "mine.csv"})
    assert "mine.csv" in (await shop.client.get("/")).text
    assert "mine.csv" not in (await (await till.shop()).client.get("/")).text


async def test_names_are_shown_as_text(till: Till) -> None:
    client = await _signed_in(till)
    assert "Shop &lt;b&gt;" in (await client.get("/")).text


async def test_the_sample_is_a_file_that_is_accepted(shop: Shop) -> None:
    sample = (await shop.client.get("/sample.csv?payments=30")).content
    assert (await shop.upload(sample, "good")).json()["total"] == 30
    wrong = (await shop.client.get("/sample.csv?payments=30&bad=3")).content
    assert len((await shop.upload(wrong, "bad")).json()["lines"]) == 3
