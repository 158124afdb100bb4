"""Values and rules: no I/O, no clock, neither sync nor async. Imports the standard library and msgspec only."""
