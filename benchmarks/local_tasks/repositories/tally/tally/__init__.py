"""Shared expenses, kept in one file."""

__version__ = "0.3.2"
