"""Listeners of the loop's events: one-shot text and JSON lines."""
