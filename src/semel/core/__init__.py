"""What semel is about, as values: no I/O, no clock, no colour. Imports the standard library and msgspec only."""
