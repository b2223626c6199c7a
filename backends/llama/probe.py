"""A trial run of native code in a child process, so that a crash in it ends the child and not the session.

Each pair of llama.cpp build and model file is tried once on a machine: load, and evaluate a few tokens at once. Found
this way: a build for another CPU (illegal instruction), a model file that makes llama.cpp abort, and crashes that the
guard in `native` does not know of. The child that lives goes on to measure what the machine runs the model best with.
"""

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Final

from backends.base import BackendError, ErrorKind
from backends.llama.build import build_key
from backends.llama.child_python import ROOT, child_env
from backends.llama.tuning import Tuning

_TRIAL_TOKENS: Final = 16  # the AMX crash needs more than one
_CONTEXT: Final = 256
_SECONDS: Final = 300  # a large model from a slow disk
_LOOK_S: Final = 0.1  # between two looks at whether to go on
_CHILD: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from backends.llama.probe import child; sys.exit(child(*sys.argv[2:]))"
)


def require_trial(
    path: Path,
    fingerprint: str,
    state: Path | None,
    *,
    gpu_layers: int | None = None,
    kv_type: str = "f16",
    announce: Callable[[str], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> Tuning:
    """Run the trial unless it has succeeded before. What was measured in it.

    `state` is the folder where successes are noted, None to try each time. `announce` gets a line when it takes a
    moment. When `stop` says so, the child is ended. Raises BackendError (LOCAL) then, and when the child crashes or
    reports a failure.
    """
    if importlib.util.find_spec("llama_cpp") is None:
        return Tuning.unmeasured()  # `native.library` says what to install
    options = ("all" if gpu_layers is None else str(gpu_layers), kv_type)
    note = None if state is None else state / f"trial-{build_key(fingerprint, *options)}"
    if note is not None and note.is_file():
        with contextlib.suppress(OSError, ValueError):  # none yet, or one of an earlier release
            return Tuning.from_json(note.read_text())
    announce("Measuring once how this machine runs the model best. It takes some seconds.")
    status, output, errors = _run(path, options, stop)
    try:
        if status:
            raise _failure(path, status, output, errors)
        tuning = Tuning.from_json(output)
    except ValueError as error:  # something ended the child early without a fault
        raise _failure(path, status, output, errors) from error
    if note is not None:
        with contextlib.suppress(OSError):  # only a note: without it the next session tries again
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(output)
    return tuning


def _run(path: Path, options: tuple[str, str], stop: Callable[[], bool]) -> tuple[int, str, str]:
    """Exit status, output and errors of the child. Raises BackendError (LOCAL) when it takes too long or is stopped."""
    command = [sys.executable, "-P", "-c", _CHILD, str(ROOT), os.path.abspath(path), *options]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=child_env(os.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as trial:
        end = time.monotonic() + _SECONDS
        while True:
            try:
                output, errors = trial.communicate(timeout=_LOOK_S)
            except subprocess.TimeoutExpired as error:
                stopped = stop()
                if not stopped and time.monotonic() < end:
                    continue
                trial.kill()
                why = "was stopped" if stopped else f"did not end within {_SECONDS} s. Try a smaller model"
                raise BackendError(ErrorKind.LOCAL, f"A trial run of llama.cpp with {path} {why}.") from error
            return trial.returncode, output.decode(errors="replace"), errors.decode(errors="replace")


def _failure(path: Path, status: int, output: str, errors: str) -> BackendError:
    """What a trial that ended with `status` means. A child that lives to report a failure does so on its output."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return BackendError(ErrorKind.LOCAL, str(json.loads(output)["error"]))
    try:
        how = signal.Signals(-status).name
    except ValueError:
        how = f"status {status}"
    if how == "SIGKILL":  # nothing does that to itself
        return BackendError(
            ErrorKind.LOCAL,
            f"A trial run of llama.cpp with {path} was killed from outside (SIGKILL), most likely because memory ran "
            "out. This session is not affected. Close other programs, or choose a smaller model, and try again.",
        )
    said = next((line.strip() for line in errors.splitlines() if "GGML_ASSERT" in line), "")
    return BackendError(
        ErrorKind.LOCAL,
        f"llama.cpp crashed ({how}) in a trial run with {path}{': ' + said if said else ''}. This session is not "
        "affected. Build it for this machine: pip install --force-reinstall --no-cache-dir llama-cpp-python",
    )


def child(path: str, gpu_layers: str, kv_type: str) -> int:
    """The trial itself. Prints what was measured, or a failure that has words, as JSON."""
    from backends.llama.decoder import ContextOptions, NativeDecoder
    from backends.llama.measuring import measure
    from backends.llama.weights import Weights

    try:
        weights = Weights.load(Path(path), None if gpu_layers == "all" else int(gpu_layers))
        decoder = NativeDecoder(weights, ContextOptions(_CONTEXT, Tuning.unmeasured(), kv_type=kv_type))
        decoder.evaluate(0, array("i", [1] * _TRIAL_TOKENS), 0)
        decoder.logits()
        decoder.close()
        tuning = measure(weights, kv_type)
    except BackendError as error:
        sys.stdout.write(json.dumps({"error": str(error)}))
        return 1
    sys.stdout.write(tuning.to_json())
    return 0
