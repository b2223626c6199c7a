"""Encrypted reasoning, bound to the model and to the exact prefix that it was written for.

From gpt-6.2 on the API withholds reasoning whose prefix was altered, and says so in `input_transformations`. Older
models take what they are given. Source: provider rules 2.2; openai SDK 3.57.0, `response.InputTransformation`.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from .openai_errors import refused
from .openai_prefix import Body, Element, default_ttl, input_items, item_elements, item_kind, run_kind
from .script import Failure

_OURS: Final = "gAAAAA"


def _digest(chain: bytes, elements: Iterable[Element]) -> bytes:
    digest = hashlib.sha256(chain)
    for element in elements:
        digest.update(hashlib.sha256(element.data).digest())
    return digest.digest()


def encrypt(model: str, prefix: bytes, text: str) -> str:
    """The encrypted content of reasoning that `model` writes behind `prefix`."""
    plain = json.dumps({"model": model, "prefix": prefix.hex(), "text": text})
    return _OURS + base64.urlsafe_b64encode(plain.encode()).decode()


def decrypt(content: str) -> Mapping[str, Any] | None:
    """What `encrypt` was given; None for content that is not ours. Raises ValueError for one that was altered."""
    if not content.startswith(_OURS):
        return None
    try:
        plain = json.loads(base64.b64decode(content.removeprefix(_OURS), b"-_", validate=True))
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ValueError("altered") from error
    if not isinstance(plain, dict):
        raise ValueError("altered")
    return plain


def altered(body: Body) -> Failure | None:
    """The 400 for encrypted content that cannot be read, or None."""
    for item in input_items(body):
        if item_kind(item) in ("reasoning", "compaction"):
            try:
                decrypt(str(item.get("encrypted_content") or ""))
            except ValueError:
                text = f"The encrypted content for item {item.get('id')} could not be verified."
                return refused(text, "input", "invalid_encrypted_content")
    return None


def withhold(body: Body, *, binding: bool) -> tuple[dict[str, Any], list[dict[str, str]], bytes]:
    """The body as the model sees it, what was withheld from it, and the name of its prefix.

    `binding`: whether the model checks. Reasoning that is withheld is not part of the prefix of what follows.
    """
    model = str(body.get("model"))
    tools = json.dumps(body.get("tools") or [], sort_keys=False).encode()
    chain = hashlib.sha256(tools).digest()
    kept, removed, anchors = list[Any](), list[dict[str, str]](), {chain.hex()}
    items = input_items(body)
    for item, elements in zip(items, item_elements(items, default_ttl(body)), strict=True):
        if run_kind(item) != "reply":
            anchors = set()
        if binding and item_kind(item) == "reasoning":
            told = decrypt(str(item.get("encrypted_content") or "")) or {}
            reason = "model_mismatch" if told.get("model", model) != model else None
            if reason is None and told and told.get("prefix") not in anchors:
                reason = "prefix_mismatch"
            if reason is not None:
                removed.append({"id": str(item.get("id")), "type": "reasoning", "action": "removed", "reason": reason})
                continue
        kept.append(item)
        chain = _digest(chain, elements)
        anchors.add(chain.hex())
    return {**body, "input": kept}, removed, chain
