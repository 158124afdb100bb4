"""Events: consumers whose effects happen once, and an outbox that loses nothing."""
