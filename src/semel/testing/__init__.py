"""What users run to convince themselves: a virtual clock, the contract every store keeps, and the simulator."""
