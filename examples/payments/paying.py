"""One payment: written down, charged, settled. The same for a request and for an item of a bulk.

What always holds: the row of a payment commits before the gateway hears of it, under a key that is derived from the
key of the request or item; so whoever comes later, on whatever machine, finds the row and asks the gateway by that key.
The row is the checkpoint: it is made once, and leaves `pending` once.
"""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import partial
from itertools import count
from typing import Any, Final

import msgspec
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from examples.hotel.database import changed
from examples.hotel.gateway_client import Charge, GatewaySilent, GatewayUnreachable
from examples.payments.balance import change_balance
from examples.payments.money import check_amount, show
from examples.payments.parts import Parts
from examples.payments.tables import Payment, PaymentStatus
from semel import AsyncAttempt

AFTER: Final = {
    "charged": PaymentStatus.SUCCEEDED,
    "declined": PaymentStatus.DECLINED,
    "refunded": PaymentStatus.REFUNDED,
    "closed": PaymentStatus.VOID,
}
"""What a payment ends as, by what the gateway says of its charge."""
LONGEST: Final = 80


class Declined(Exception):
    """The card was declined; no money was taken."""


class PaymentClosed(Exception):
    """Nobody came back for this payment in time, and it was given up; no money was taken, or it was given back."""


class OtherPayment(Exception):
    """The key was used for another payment before; nothing was done now."""


class GatewayDidNotAnswer(Exception):
    """The gateway did not answer; what became of the charge is asked for, by the same key, at the next try."""


class PaymentOrder(msgspec.Struct, frozen=True):
    """What is to be paid, by whom, and with what: a token that the gateway knows, never a card number."""

    amount: Decimal
    customer_id: str
    payment_method_id: str

    def __post_init__(self) -> None:
        check_amount(self.amount)
        check_names(self.customer_id, self.payment_method_id)


def check_names(*names: str) -> None:
    """Refuse what cannot name anything.

    Raises:
        ValueError: one of them is empty, too long, or has characters that nobody sees.
    """
    for name in names:
        if not name.strip() or len(name) > LONGEST or not name.isprintable():
            raise ValueError(f"a name has 1 to {LONGEST} characters that can be seen")


@dataclass(frozen=True)
class Purpose:
    """What a payment is for: part of a bulk, or the balance of a customer's wallet.

    Attributes:
        asked_again: when somebody last asked for it to be tried again. A card that was declined before that is charged
            again, under another key; None: nobody asked.
    """

    bulk_id: str | None = None
    wallet_of: str | None = None
    asked_again: datetime | None = None


class Paying:
    """Takes payments, over the parts of the service."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def pay(
        self, attempt: AsyncAttempt, account_id: str, order: PaymentOrder, purpose: Purpose | None = None
    ) -> dict[str, Any]:
        """Pay; called inside an attempt, whose key the payment hangs on.

        Raises:
            Declined: no money was taken, and never is under this key.
            PaymentClosed: the same, because it took too long.
            OtherPayment: this key is that of a payment of something else.
            GatewayDidNotAnswer: nobody knows yet; the next try with the same key finds out.
        """
        transact = self._parts.database.transact
        registering = partial(self._register, attempt, account_id, order, purpose or Purpose())
        payment, is_new = await transact(registering)
        gateway_key = payment.gateway_key
        if payment.status == PaymentStatus.PENDING:
            charge = await self._charge(payment, order.payment_method_id, is_new=is_new)
            settling = partial(settle, gateway_key, charge, self._parts.settings.clock())
            payment = await transact(partial(_settle_and_read, settling, gateway_key))
        return describe_end(payment)

    async def _register(
        self, attempt: AsyncAttempt, account_id: str, order: PaymentOrder, purpose: Purpose, session: AsyncSession
    ) -> tuple[Payment, bool]:
        """The row of this payment, and whether it was made just now."""
        newest, gateway_key = await _find_newest(session, attempt)
        if newest is not None:
            _check_is_same(newest, order)
            if not _is_to_be_tried_again(newest, purpose):
                newest.asked_again = purpose.asked_again
                await session.flush()
                return newest, False
        payment = Payment(
            id=f"pay_{gateway_key[:24]}",
            account_id=account_id,
            gateway_key=gateway_key,
            customer_id=order.customer_id,
            amount=order.amount,
            currency=self._parts.settings.currency,
            status=PaymentStatus.PENDING,
            refunded=Decimal(0),
            bulk_id=purpose.bulk_id,
            wallet_of=purpose.wallet_of,
            asked_again=purpose.asked_again,
            created_at=self._parts.settings.clock(),
        )
        session.add(payment)
        await session.flush()
        return payment, True

    async def _charge(self, payment: Payment, card: str, *, is_new: bool) -> Charge:
        gateway = self._parts.gateway
        try:
            # A row that was there before may have been charged: then the answer is there, and need not be earned again.
            found = None if is_new else await gateway.find(payment.gateway_key)
            if found is not None:
                return found
            return await gateway.charge(payment.gateway_key, payment.amount, payment.currency, card, payment.id)
        except (GatewayUnreachable, GatewaySilent) as error:
            raise GatewayDidNotAnswer(
                f"No answer for {payment.id}. The same key asks again what became of it."
            ) from error


async def _find_newest(session: AsyncSession, attempt: AsyncAttempt) -> tuple[Payment | None, str]:
    """The newest payment under this key, if there is any, and the gateway's key of the one that would come next.

    The gateway says the same again to the same key, so a card that was declined needs another one. At most one of these
    keys is ever charged: the next is taken only where the one before it was declined.
    """
    newest, gateway_key = None, attempt.derive("charge")
    for number in count(1):
        known = await session.scalar(select(Payment).where(Payment.gateway_key == gateway_key))
        if known is None:
            break
        newest, gateway_key = known, attempt.derive(f"charge again {number}")
    return newest, gateway_key


def _check_is_same(known: Payment, order: PaymentOrder) -> None:
    """Refuse a key that comes with something else when semel has forgotten it: its payment is still here."""
    if (known.amount, known.customer_id) != (order.amount, order.customer_id):
        raise OtherPayment(
            f"Nothing was done: this key made {known.id} before, of another amount or by another customer."
        )


def _is_to_be_tried_again(newest: Payment, purpose: Purpose) -> bool:
    """Whether it was declined, and somebody has asked for another try since an attempt last had it in hand.

    An attempt that was cut off says nothing about that: whoever goes on for it tells of the decline.
    """
    asked = purpose.asked_again
    return newest.status == PaymentStatus.DECLINED and asked is not None and asked != newest.asked_again


async def settle(
    gateway_key: str,
    charge: Charge,
    now: datetime,
    session: AsyncSession,
    before: PaymentStatus = PaymentStatus.PENDING,
) -> bool:
    """End a payment as the gateway says, with the balance it tops up, and tell whether it was this call that did."""
    # Closes the race between request, worker and sweeper: one finds the payment as it was, the others change nothing.
    ending = (
        update(Payment)
        .where(Payment.gateway_key == gateway_key, Payment.status == before)
        .values(status=AFTER[charge.state], receipt=charge.receipt, processed_at=now)
    )
    if not await changed(session, ending):
        return False
    payment = await _read(session, gateway_key)
    if payment.wallet_of is not None and payment.status == PaymentStatus.SUCCEEDED:
        await change_balance(
            session, payment.account_id, payment.wallet_of, payment.amount, reference=payment.id, now=now
        )
    return True


async def _settle_and_read(settling: Any, gateway_key: str, session: AsyncSession) -> Payment:
    await settling(session)
    return await _read(session, gateway_key)


async def _read(session: AsyncSession, gateway_key: str) -> Payment:
    chosen = select(Payment).where(Payment.gateway_key == gateway_key)
    return (await session.scalars(chosen.execution_options(populate_existing=True))).one()


def describe_end(payment: Payment) -> dict[str, Any]:
    """A payment that was made.

    Raises:
        Declined, PaymentClosed: it was not.
        GatewayDidNotAnswer: the sweeper is just giving it up.
    """
    match payment.status:
        case PaymentStatus.DECLINED:
            raise Declined("The card was declined; no money was taken.")
        case PaymentStatus.VOID | PaymentStatus.REFUNDED:
            raise PaymentClosed("It was given up before it was charged; no money was taken, or it was given back.")
        case PaymentStatus.CLOSING:
            raise GatewayDidNotAnswer(f"{payment.id} is just being given up.")
    return describe(payment)


def describe(payment: Payment) -> dict[str, Any]:
    """A payment as the API shows it."""
    return {
        "transaction_id": payment.id,
        "status": payment.status,
        "amount": show(payment.amount),
        "currency": payment.currency,
        "customer_id": payment.customer_id,
        "processed_at": None if payment.processed_at is None else payment.processed_at.isoformat(),
    }


async def find_payment(
    session: AsyncSession, account_id: str, payment_id: str, *, lock: bool = False
) -> Payment | None:
    """A payment of this account; those of others are not found."""
    if not payment_id.isprintable():
        return None  # the id of nothing, and PostgreSQL would not even look for some
    chosen = select(Payment).where(Payment.id == payment_id, Payment.account_id == account_id)
    if lock:
        chosen = chosen.with_for_update().execution_options(populate_existing=True)
    return (await session.scalars(chosen)).one_or_none()
