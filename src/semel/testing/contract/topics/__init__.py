"""What the suite proves, one module per topic."""
