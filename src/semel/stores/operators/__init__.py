"""The audit chain and tokens in memory: the rules that every store follows."""
