"""The engine: flows without colour, three small state machines, and two thin shells. Knows the core, and no store."""
