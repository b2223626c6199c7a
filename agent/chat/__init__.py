"""The terminal chat: one more listener of the events that `agent run` shows."""
