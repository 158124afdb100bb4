"""Erasing what is kept about a person."""
