"""The balance of a wallet, changed under its row's lock; never below zero.

What always holds: a change and its entry are written in the caller's transaction, together with whatever else it does.
"""

from contextlib import suppress
from datetime import datetime
from decimal import Decimal

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from examples.payments.money import from_cents, to_cents
from examples.payments.tables import Wallet, WalletEntry


class InsufficientFunds(Exception):
    """The balance is smaller than what is to be taken off it; nothing was changed."""


async def change_balance(
    session: AsyncSession, account_id: str, customer_id: str, amount: Decimal, *, reference: str, now: datetime
) -> Decimal:
    """Add an amount, which may be negative; gives the new balance.

    Raises:
        InsufficientFunds: the balance would be negative.
    """
    # Closes the race of two who take from one balance: the second reads it when the first has committed.
    chosen = select(Wallet).where(Wallet.account_id == account_id, Wallet.customer_id == customer_id).with_for_update()
    wallet = await session.scalar(chosen.execution_options(populate_existing=True))
    if wallet is None:
        await _make_wallet(session, account_id, customer_id)
        wallet = (await session.scalars(chosen.execution_options(populate_existing=True))).one()
    cents = to_cents(amount)
    if wallet.balance_cents + cents < 0:
        raise InsufficientFunds(f"The balance is {from_cents(wallet.balance_cents)}; nothing was taken.")
    wallet.balance_cents += cents
    await session.flush()
    session.add(
        WalletEntry(
            account_id=account_id,
            customer_id=customer_id,
            cents=cents,
            balance_cents=wallet.balance_cents,
            reference=reference,
            created_at=now,
        )
    )
    await session.flush()
    return from_cents(wallet.balance_cents)


async def _make_wallet(session: AsyncSession, account_id: str, customer_id: str) -> None:
    # Closes the race of two first top-ups: whoever comes second waits for the first, and then finds its row.
    with suppress(IntegrityError):
        async with session.begin_nested():
            session.add(Wallet(account_id=account_id, customer_id=customer_id, balance_cents=0))


async def read_balance(session: AsyncSession, account_id: str, customer_id: str) -> Decimal:
    """What a customer has; nothing where there is no wallet yet."""
    wallet = await session.get(Wallet, (account_id, customer_id))
    return from_cents(0 if wallet is None else wallet.balance_cents)
