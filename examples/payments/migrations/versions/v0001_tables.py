"""The first tables.

A migration is history: it says what was made then, whatever `tables.py` says later. Only the column types are shared.
"""

import sqlalchemy as sa
from alembic import op

from examples.hotel.tables import Instant, Money, Number

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    _accounts()
    _payments()
    _bulks()
    _recipes()


def _accounts() -> None:
    op.create_table(
        "account",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("name", sa.String(80), nullable=False),
        sa.Column("email", sa.String(254), unique=True),
        sa.Column("created_at", Instant, nullable=False),
    )
    op.create_table(
        "credential",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("account_id", sa.String(40), sa.ForeignKey("account.id"), nullable=False),
        sa.Column("kind", sa.String(10), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
    )


def _payments() -> None:
    op.create_table(
        "payment",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("account_id", sa.String(40), sa.ForeignKey("account.id"), nullable=False),
        sa.Column("gateway_key", sa.String(64), nullable=False, unique=True),
        sa.Column("customer_id", sa.String(80), nullable=False),
        sa.Column("amount", Money, nullable=False),
        sa.Column("currency", sa.String(3), nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("refunded", Money, nullable=False),
        sa.Column("receipt", sa.String(80)),
        sa.Column("bulk_id", sa.String(40)),
        sa.Column("wallet_of", sa.String(80)),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("processed_at", Instant),
        sa.CheckConstraint(
            "status IN ('pending', 'closing', 'succeeded', 'declined', 'refunded', 'void')", name="payment_status"
        ),
    )
    # What the sweeper looks for: payments without an end, the oldest first.
    op.create_index("payment_by_age", "payment", ["status", "created_at"])
    op.create_table(
        "refund",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("payment_id", sa.String(40), sa.ForeignKey("payment.id"), nullable=False),
        sa.Column("gateway_key", sa.String(64), nullable=False, unique=True),
        sa.Column("amount", Money, nullable=False),
        sa.Column("reason", sa.String(200), nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("receipt", sa.String(80)),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("processed_at", Instant),
        sa.CheckConstraint("status IN ('pending', 'succeeded', 'refused')", name="refund_status"),
    )
    op.create_index("refund_by_age", "refund", ["status", "created_at"])


def _bulks() -> None:
    op.create_table(
        "bulk",
        sa.Column("account_id", sa.String(40), sa.ForeignKey("account.id"), primary_key=True),
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("file_name", sa.String(120), nullable=False),
        sa.Column("is_open", sa.Boolean, nullable=False),
        sa.Column("opened", sa.Integer, nullable=False),
        sa.Column("created_at", Instant, nullable=False),
    )
    # What workers look for, several times a second.
    op.create_index("bulk_by_openness", "bulk", ["is_open", "created_at"])


def _recipes() -> None:
    op.create_table(
        "wallet",
        sa.Column("account_id", sa.String(40), sa.ForeignKey("account.id"), primary_key=True),
        sa.Column("customer_id", sa.String(80), primary_key=True),
        sa.Column("balance_cents", Number, nullable=False),
        sa.CheckConstraint("balance_cents >= 0", name="wallet_is_not_negative"),
    )
    op.create_table(
        "wallet_entry",
        sa.Column("id", Number, primary_key=True),
        sa.Column("account_id", sa.String(40), nullable=False),
        sa.Column("customer_id", sa.String(80), nullable=False),
        sa.Column("cents", Number, nullable=False),
        sa.Column("balance_cents", Number, nullable=False),
        sa.Column("reference", sa.String(120), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.ForeignKeyConstraint(["account_id", "customer_id"], ["wallet.account_id", "wallet.customer_id"]),
    )
    op.create_table(
        "customer_order",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("account_id", sa.String(40), sa.ForeignKey("account.id"), nullable=False),
        sa.Column("customer_id", sa.String(80), nullable=False),
        sa.Column("lines", sa.JSON, nullable=False),
        sa.Column("total", Money, nullable=False),
        sa.Column("currency", sa.String(3), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
    )
