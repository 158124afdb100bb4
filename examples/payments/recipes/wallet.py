"""A wallet: top it up from a card, pay from the balance, never below zero.

A top-up is a payment whose settlement adds to the balance, in one transaction, whoever settles it: the request that
began it, its repetition, or the sweeper. To pay from the balance is one transaction, in which the response is kept too.
"""

from decimal import Decimal

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from examples.payments.balance import InsufficientFunds, change_balance, read_balance
from examples.payments.money import check_amount, show
from examples.payments.parts import Parts
from examples.payments.paying import Paying, PaymentOrder, Purpose, check_names
from examples.payments.problems import Refused, not_found, read_body
from semel.http import transaction


class TopUp(msgspec.Struct, frozen=True):
    """How much to add, and with what it is paid."""

    amount: Decimal
    payment_method_id: str

    def __post_init__(self) -> None:
        check_amount(self.amount)
        check_names(self.payment_method_id)


class Spending(msgspec.Struct, frozen=True):
    """How much to take off the balance, and what for."""

    amount: Decimal
    reference: str

    def __post_init__(self) -> None:
        check_amount(self.amount)
        check_names(self.reference)


async def handle_top_up(parts: Parts, request: Request) -> Response:
    """`POST /wallets/{customer}/top-ups`."""
    top_up = await read_body(request, TopUp)
    account_id, customer = request.state.account.id, _customer(request)
    order = PaymentOrder(top_up.amount, customer, top_up.payment_method_id)
    paid = await Paying(parts).pay(parts.semel.current(), account_id, order, Purpose(wallet_of=customer))
    return JSONResponse(paid, 201, {"Location": f"/payments/{paid['transaction_id']}"})


async def handle_payment(parts: Parts, request: Request) -> Response:
    """`POST /wallets/{customer}/payments`: the balance is changed under its lock, and the response commits with it."""
    spending = await read_body(request, Spending)
    account_id, customer, now = request.state.account.id, _customer(request), parts.settings.clock()
    try:
        balance = await change_balance(
            transaction(), account_id, customer, -spending.amount, reference=spending.reference, now=now
        )
    except InsufficientFunds as error:
        raise Refused(409, "insufficient-funds", f"{error} Top it up, and send the same request again.") from error
    return JSONResponse({"customer_id": customer, "amount": show(spending.amount), "balance": show(balance)}, 201)


async def handle_balance(parts: Parts, request: Request) -> Response:
    """`GET /wallets/{customer}`."""
    customer = _customer(request)
    async with parts.database.reading() as session:
        balance = await read_balance(session, request.state.account.id, customer)
    body = {"customer_id": customer, "balance": show(balance), "currency": parts.settings.currency}
    return JSONResponse(body, headers={"Cache-Control": "no-store"})


def _customer(request: Request) -> str:
    customer = str(request.path_params["customer"])
    try:
        check_names(customer)
    except ValueError:
        raise not_found("customer") from None
    return customer
