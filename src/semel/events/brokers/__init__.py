"""Brokers: one module for each, with what it listens and publishes by; none is imported before it is asked for."""
