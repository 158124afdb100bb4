"""What commands find out about workflow engines."""
