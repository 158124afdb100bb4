"""The audit chain and tokens on SQL servers: one plan, and the statements that all of them understand alike."""
