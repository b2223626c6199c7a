"""How fast a model writes."""


def decode_tps(output: int | None, ttft_s: float | None, duration_s: float | None) -> float | None:
    """Output tokens per second between the first piece and the end of a reply; None when it cannot be told."""
    if not output or ttft_s is None or duration_s is None or duration_s - ttft_s < 0.001:
        return None
    return output / (duration_s - ttft_s)
