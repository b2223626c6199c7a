"""What the ledger tells: cost per session, sessions."""
