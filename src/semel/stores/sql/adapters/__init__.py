"""Client libraries, one file each: how a command is sent, and what an error means."""
