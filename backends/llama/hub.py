"""Models on the Hugging Face hub, or a mirror of it: what a repository has, and who may have it.

The hub's file list states size and SHA-256 of each large file, so that a model that no registry names is verified as
well. The token (HF_TOKEN, or the one that `hf auth login` kept) goes to the hub alone: the client drops it when it is
redirected to another host, and it is in no message.

API: `GET /api/models/<org>/<name>/tree/main?recursive=1`, pages by the header `Link`; errors by `X-Error-Code` (read in
the source of huggingface_hub 2.4.0).
"""

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from backends.base import ErrorKind
from backends.llama.models import REGISTERED, HubFile, HubName, ModelError, ModelSpec
from backends.llama.quants import QuantError, choose, offered

if TYPE_CHECKING:
    import httpx2

CONNECT_S: Final = 5.0  # an unreachable hub must be found out quickly: another source waits
READ_S: Final = 30.0  # silence on an open connection
_MOST_LIST: Final = 64 << 20  # bytes of a file list; the largest repositories have some megabytes
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_PLAIN_PATH: Final = re.compile(r"(?!.*(?:^|/)\.{1,2}(?:/|$))[^/\\:\x00-\x1f\x7f][^\\:\x00-\x1f\x7f]*(?<!/)")


class TokenError(Exception):
    """The token cannot be one. The text does not contain it."""


def authorisation() -> dict[str, str]:
    """The header with the person's token, empty without one. Raises TokenError."""
    from huggingface_hub import get_token

    token = get_token()
    if not token:
        return {}
    if not re.fullmatch(r"[!-~]+", token):  # else the client's own error would quote it
        raise TokenError("HF_TOKEN holds characters that no token has; set it again, or unset it")
    return {"Authorization": f"Bearer {token}"}


def refusal(response: "httpx2.Response", repo: str) -> str:
    """Why the hub did not give something of `repo`: one line without a final stop."""
    code, status = response.headers.get("X-Error-Code", ""), response.status_code
    request = response.history[0].request if response.history else response.request
    page = f"{request.url.host}/{repo}"
    with_token = "Authorization" in request.headers
    if code == "GatedRepo" or (status == 403 and code != "RepoNotFound"):
        if with_token:
            return f"{repo} is gated and HF_TOKEN gives no access to it; accept its terms on {page} with that account"
        return f"{repo} is gated; accept its terms on {page} and set HF_TOKEN to a token of that account"
    if code == "RepoNotFound" or status in (401, 404):
        hint = "and whether HF_TOKEN may see it" if with_token else "and set HF_TOKEN if it is private"
        return f"there is no {repo} for us; check the name, {hint}"
    return f"it answers HTTP {status} for {repo}"


def reason(error: Exception) -> str:
    """An error of the connection in one line."""
    return " ".join(str(error).split()) or type(error).__name__


async def find_on_hub(name: HubName, endpoint: str | None = None, connect_s: float = CONNECT_S) -> ModelSpec:
    """The model that `name` means, as the hub states it now. `endpoint`: a mirror that is not in HF_ENDPOINT.

    Raises ModelError: no such repository, gated, no or several models that fit, no network.
    """
    import httpx2
    from huggingface_hub import constants, get_async_session

    base = (endpoint or constants.ENDPOINT).rstrip("/")
    url = f"{base}/api/models/{name.repo}/tree/main?recursive=1"
    timeout = httpx2.Timeout(READ_S, connect=connect_s)
    entries: list[Any] = []
    received = 0
    try:
        headers = {"Accept-Encoding": "identity", **authorisation()}
        async with get_async_session() as client:
            while url:
                async with client.stream("GET", url, headers=headers, timeout=timeout) as response:
                    if response.status_code != 200:
                        kind = ErrorKind.AUTH if response.status_code in (401, 403) else ErrorKind.NOT_FOUND
                        raise _failed(name, refusal(response, name.repo), kind)
                    page = bytearray()
                    async for chunk in response.aiter_bytes():
                        page += chunk
                        received += len(chunk)
                        if received > _MOST_LIST:
                            raise _failed(name, "its file list has no end", ErrorKind.PROTOCOL)
                    entries += _entries(bytes(page))
                    url = _next_page(response, base)
    except (ValueError, TypeError, RecursionError) as error:
        raise _failed(name, f"what answered is no hub ({reason(error)})", ErrorKind.PROTOCOL) from error
    except TokenError as error:
        raise _failed(name, str(error), ErrorKind.AUTH) from error
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:  # OSError: also the hub library's offline mode
        why = f"the hub cannot be reached ({reason(error)}); check the network, and HF_ENDPOINT if you use a mirror"
        raise _failed(name, why, ErrorKind.NETWORK) from error
    return _spec(name, entries)


def _entries(page: bytes) -> list[Any]:
    entries = json.loads(page)
    if not isinstance(entries, list):
        raise TypeError("no list of files")
    return entries


def _next_page(response: "httpx2.Response", base: str) -> str:
    """The address of the next page, empty on the last one. Another host gets no request: our token would go along."""
    import httpx2

    following = response.links.get("next", {}).get("url", "")
    if not following:
        return ""
    url = response.url.join(following)
    if url.origin != httpx2.URL(base).origin:
        raise ValueError("its file list goes on at another host")
    return str(url)


def _spec(name: HubName, entries: list[Any]) -> ModelSpec:
    """The files of the model that is meant. The list comes from elsewhere: nothing in it is taken on trust."""
    files: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        path = entry.get("path") if isinstance(entry, dict) and entry.get("type") == "file" else None
        if isinstance(path, str) and _PLAIN_PATH.fullmatch(path):
            files[path] = entry
    try:
        chosen = choose(offered(files), name.quant)
    except QuantError as error:
        raise _failed(name, str(error), ErrorKind.NOT_FOUND) from error
    parts = []
    for number, path in enumerate(chosen.paths, start=1):
        size, sha256 = files[path].get("size"), _sha256(files[path])
        if not isinstance(size, int) or isinstance(size, bool) or size <= 0 or sha256 is None:
            raise _failed(name, f"it states no size or SHA-256 of {path}, so that nothing could be checked")
        which = f", part {number} of {len(chosen.paths)}" if len(chosen.paths) > 1 else ""
        parts.append(
            ModelSpec(
                name=f"{name.repo}:{chosen.label}",
                title=f"{name.repo} {chosen.label}{which}",
                file=f"{name.repo}/{path}",
                bytes=size,
                sha256=sha256,
                licence=None,
                licence_source=f"https://huggingface.co/{name.repo}",
                context=None,
                hub=HubFile(name.repo, path, "main"),
            )
        )
    return parts[0].with_rest(parts[1:])


def _sha256(entry: Mapping[str, Any]) -> str | None:
    lfs = entry.get("lfs")
    oid = lfs.get("oid") if isinstance(lfs, dict) else None
    return oid if isinstance(oid, str) and _SHA256.fullmatch(oid) else None


def _failed(name: HubName, why: str, kind: ErrorKind = ErrorKind.PROTOCOL) -> ModelError:
    return ModelError(
        f"{REGISTERED}{name} cannot be had from the Hugging Face hub: {why}. Nothing was downloaded.", kind
    )
