"""Adapters of workflow engines: one module each. An engine that is not installed is needed by its own module alone."""
