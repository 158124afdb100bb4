"""What operators leave behind and sign in with: the audit chain, and tokens."""
