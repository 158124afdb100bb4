"""What the SQL stores share about events."""
