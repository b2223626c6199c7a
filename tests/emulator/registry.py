"""The APIs that the server speaks. A new one is one more line here."""

from .anthropic_api import AnthropicApi
from .api import ApiFactory
from .chat import CHAT_APIS
from .responses import ResponsesApi

APIS: tuple[ApiFactory, ...] = (AnthropicApi, ResponsesApi, *CHAT_APIS)
