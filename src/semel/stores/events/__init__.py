"""What stores share about events that wait to be published."""
