"""The tables of the service; `migrations/` makes them.

What always holds: money is exact, instants are UTC and aware, and every row says whose it is. A payment moves from one
status to the next by `UPDATE … WHERE status = …` alone, so that of two who move it one finds nothing to do.
"""

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, CheckConstraint, ForeignKey, ForeignKeyConstraint, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from examples.hotel.tables import Instant, Money, Number


class PaymentStatus(StrEnum):
    """How far a payment is. CLOSING: the sweeper gives it up, and the gateway may not have heard of it yet."""

    PENDING = "pending"
    CLOSING = "closing"
    SUCCEEDED = "succeeded"
    DECLINED = "declined"
    REFUNDED = "refunded"
    VOID = "void"


class RefundStatus(StrEnum):
    """How far a refund is."""

    PENDING = "pending"
    SUCCEEDED = "succeeded"
    REFUSED = "refused"


class Base(DeclarativeBase):
    """All tables; each is described where it is mapped."""


class Account(Base):
    """Who takes payments: a shop, a company. Everything else belongs to one of them."""

    __tablename__ = "account"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(String(80))
    email: Mapped[str | None] = mapped_column(String(254), unique=True)
    created_at: Mapped[datetime] = mapped_column(Instant)


class Credential(Base):
    """What proves an account: an API key or a signed-in browser. The secret itself is known to its holder alone."""

    __tablename__ = "credential"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    account_id: Mapped[str] = mapped_column(ForeignKey("account.id"))
    kind: Mapped[str] = mapped_column(String(10))
    created_at: Mapped[datetime] = mapped_column(Instant)


class Payment(Base):
    """One payment; the gateway knows it by `gateway_key`. With a `wallet_of` it tops up that customer's balance.

    `asked_again` is when somebody had last asked for another try of it, as the latest attempt at it knew.
    """

    __tablename__ = "payment"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    account_id: Mapped[str] = mapped_column(ForeignKey("account.id"))
    gateway_key: Mapped[str] = mapped_column(String(64), unique=True)
    customer_id: Mapped[str] = mapped_column(String(80))
    amount: Mapped[Decimal] = mapped_column(Money)
    currency: Mapped[str] = mapped_column(String(3))
    status: Mapped[str] = mapped_column(String(20))
    refunded: Mapped[Decimal] = mapped_column(Money, default=Decimal(0))
    receipt: Mapped[str | None] = mapped_column(String(80))
    bulk_id: Mapped[str | None] = mapped_column(String(40))
    wallet_of: Mapped[str | None] = mapped_column(String(80))
    asked_again: Mapped[datetime | None] = mapped_column(Instant)
    created_at: Mapped[datetime] = mapped_column(Instant)
    processed_at: Mapped[datetime | None] = mapped_column(Instant)


class Refund(Base):
    """Money given back of a payment; its amount is taken off what may be given back when the row is made."""

    __tablename__ = "refund"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    payment_id: Mapped[str] = mapped_column(ForeignKey("payment.id"))
    gateway_key: Mapped[str] = mapped_column(String(64), unique=True)
    amount: Mapped[Decimal] = mapped_column(Money)
    reason: Mapped[str] = mapped_column(String(200))
    status: Mapped[str] = mapped_column(String(20))
    receipt: Mapped[str | None] = mapped_column(String(80))
    created_at: Mapped[datetime] = mapped_column(Instant)
    processed_at: Mapped[datetime | None] = mapped_column(Instant)


class Bulk(Base):
    """A file of payments. Its items and counts are those of semel's batch; here is whose it is, and whether to run it.

    Workers run those that are open. `opened` counts how often it was opened, so that a worker who has seen it end does
    not shut what was opened again meanwhile.
    """

    __tablename__ = "bulk"
    account_id: Mapped[str] = mapped_column(ForeignKey("account.id"), primary_key=True)
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    file_name: Mapped[str] = mapped_column(String(120))
    is_open: Mapped[bool]
    opened: Mapped[int] = mapped_column(default=1)
    created_at: Mapped[datetime] = mapped_column(Instant)


class Wallet(Base):
    """What a customer has with an account. It is never negative: the database refuses it, too."""

    __tablename__ = "wallet"
    __table_args__ = (CheckConstraint("balance_cents >= 0", name="wallet_is_not_negative"),)
    account_id: Mapped[str] = mapped_column(ForeignKey("account.id"), primary_key=True)
    customer_id: Mapped[str] = mapped_column(String(80), primary_key=True)
    balance_cents: Mapped[int] = mapped_column(Number)


class WalletEntry(Base):
    """One change of a balance, with its reason; the sum of all is the balance."""

    __tablename__ = "wallet_entry"
    __table_args__ = (ForeignKeyConstraint(["account_id", "customer_id"], ["wallet.account_id", "wallet.customer_id"]),)
    id: Mapped[int] = mapped_column(Number, primary_key=True)
    account_id: Mapped[str] = mapped_column(String(40))
    customer_id: Mapped[str] = mapped_column(String(80))
    cents: Mapped[int] = mapped_column(Number)
    balance_cents: Mapped[int] = mapped_column(Number)
    reference: Mapped[str] = mapped_column(String(120))
    created_at: Mapped[datetime] = mapped_column(Instant)


class Order(Base):
    """What a customer wants to buy."""

    __tablename__ = "customer_order"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    account_id: Mapped[str] = mapped_column(ForeignKey("account.id"))
    customer_id: Mapped[str] = mapped_column(String(80))
    lines: Mapped[list[dict[str, Any]]] = mapped_column(JSON)
    total: Mapped[Decimal] = mapped_column(Money)
    currency: Mapped[str] = mapped_column(String(3))
    created_at: Mapped[datetime] = mapped_column(Instant)
