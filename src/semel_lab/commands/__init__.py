"""The commands that prove something: `semel verify`, `semel conform` and `semel demo`."""
