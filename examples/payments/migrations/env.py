"""Alembic's entry: runs the migrations on the connection that `Database.migrate` gives, in its transaction."""

from alembic import context

from examples.payments.tables import Base

context.configure(connection=context.config.attributes["connection"], target_metadata=Base.metadata)
with context.begin_transaction():
    context.run_migrations()
