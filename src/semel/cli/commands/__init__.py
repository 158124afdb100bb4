"""The commands of `semel`, one file each."""
