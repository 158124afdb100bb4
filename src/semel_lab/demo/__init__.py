"""`semel demo`: payments asked for many times at once, a worker killed in the middle, a ledger that has to hold."""
