"""What the stores on SQL servers share: one plan for every dialect, one driver for every client library."""
