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
    _people()
    _rooms()
    _bookings()


def _people() -> None:
    op.create_table(
        "user",
        sa.Column("id", Number, primary_key=True),
        sa.Column("name", sa.String(80), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
    )
    op.create_table(
        "session",
        sa.Column("token_digest", sa.String(64), primary_key=True),
        sa.Column("user_id", Number, sa.ForeignKey("user.id"), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
    )


def _rooms() -> None:
    op.create_table(
        "hotel",
        sa.Column("id", sa.String(20), primary_key=True),
        sa.Column("name", sa.String(80), nullable=False),
        sa.Column("city", sa.String(80), nullable=False),
        sa.Column("blurb", sa.String(200), nullable=False),
    )
    op.create_table(
        "room_type_inventory",
        sa.Column("hotel_id", sa.String(20), sa.ForeignKey("hotel.id"), primary_key=True),
        sa.Column("room_type", sa.String(20), primary_key=True),
        sa.Column("night", sa.Date, primary_key=True),
        sa.Column("total_rooms", sa.Integer, nullable=False),
        sa.Column("booked_rooms", sa.Integer, nullable=False, server_default="0"),
        sa.Column("overbooking_limit", sa.Integer, nullable=False, server_default="0"),
        sa.Column("price", Money, nullable=False),
        # The last line of defence: should code ever forget to look, the database refuses.
        sa.CheckConstraint("booked_rooms BETWEEN 0 AND total_rooms + overbooking_limit", name="rooms_sold"),
    )


def _bookings() -> None:
    op.create_table("reservation_number", sa.Column("number", Number, primary_key=True), sqlite_autoincrement=True)
    op.create_table(
        "reservation",
        sa.Column("id", sa.String(20), primary_key=True),
        sa.Column("user_id", Number, sa.ForeignKey("user.id"), nullable=False),
        sa.Column("hotel_id", sa.String(20), sa.ForeignKey("hotel.id"), nullable=False),
        sa.Column("room_type", sa.String(20), nullable=False),
        sa.Column("check_in", sa.Date, nullable=False),
        sa.Column("check_out", sa.Date, nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("price_snapshot", Money, nullable=False),
        sa.Column("currency", sa.String(3), nullable=False),
        sa.Column("guest_name", sa.String(200)),
        sa.Column("email", sa.String(254)),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("expires_at", Instant, nullable=False),
        sa.Column("paying_until", Instant),
        sa.CheckConstraint(
            "status IN ('STARTED', 'DETAILS_CONFIRMED', 'PAYING', 'CONFIRMED', 'EXPIRED')", name="reservation_status"
        ),
    )
    op.create_index("reservation_by_status", "reservation", ["status", "expires_at"])
    op.create_table(
        "payment",
        sa.Column("id", Number, primary_key=True),
        sa.Column("reservation_id", sa.String(20), sa.ForeignKey("reservation.id"), nullable=False),
        sa.Column("gateway_key", sa.String(64), nullable=False, unique=True),
        sa.Column("amount", Money, nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("receipt", sa.String(80)),
        sa.Column("created_at", Instant, nullable=False),
        sa.CheckConstraint(
            "status IN ('PENDING', 'GIVING_BACK', 'CHARGED', 'DECLINED', 'REFUNDED', 'VOID')", name="payment_status"
        ),
    )
    op.create_index("payment_by_reservation", "payment", ["reservation_id"])
