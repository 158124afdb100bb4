"""What sealing is for stores and engines: the port, and the form of what is sealed."""
