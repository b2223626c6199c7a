"""The APIs that the server speaks. A new one is one more line here."""

from .api import ApiFactory

APIS: tuple[ApiFactory, ...] = ()
