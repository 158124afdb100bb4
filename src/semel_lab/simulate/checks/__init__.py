"""The invariants that are checked while a schedule runs."""
