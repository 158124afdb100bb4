"""Where records are kept: one folder or file per backend. Stores know the core and nothing of the engine."""
