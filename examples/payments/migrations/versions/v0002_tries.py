"""What tells a line that somebody wants tried again from one whose worker was cut off."""

import sqlalchemy as sa
from alembic import op

from examples.hotel.tables import Instant

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Note with each payment which wish for another try it has followed."""
    op.add_column("payment", sa.Column("asked_again", Instant))
