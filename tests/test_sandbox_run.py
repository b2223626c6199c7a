"""`agent run --mode auto` from the outside: what a command of the model's cannot do in the sandbox."""

import json
import os
import sys
from pathlib import Path

import pytest
from conftest import RunAgent
from emulator import Call, Emulator
from scripted import plan

from agent.sandbox import Fence, find_sandbox

_WHY_NOT = find_sandbox(Fence(Path("/usr"), Path("/tmp")), os.environ, sys.platform)[1]
pytestmark = pytest.mark.skipif(bool(_WHY_NOT), reason=f"no sandbox: {_WHY_NOT}")


def test_a_command_neither_writes_nor_reads_outside_nor_reaches_the_network(
    anthropic_server: Emulator, run_agent: RunAgent, repository: Path, home: Path, tmp_path: Path
) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id_ed25519").write_text("the private key of the person")
    outside = tmp_path / "outside.txt"
    host, port = anthropic_server.url.removeprefix("http://").split(":")
    programs = {  # written so that no path can be seen in the command
        "write": f"open(''.join({list(str(outside))}), 'w').write('x')",
        "read": f"print(open(''.join({list(str(home / '.ssh' / 'id_ed25519'))})).read())",
        "socket": f"import socket; socket.create_connection(({host!r}, {port}), 5); print('con' 'nected')",
        "inside": "open('made.txt', 'w').write('x'); print('written' ' inside')",
    }
    calls = [Call("shell", {"command": f"python3 -c {json.dumps(program)}"}) for program in programs.values()]
    anthropic_server.play(plan(*calls, answer="Tried."))
    result = run_agent("run", "--mode", "auto", "try", env=anthropic_server.env)
    assert result.returncode == 0, result.stderr
    told = json.dumps(anthropic_server.requests[-1].body["messages"])
    assert not outside.exists()
    assert "private key" not in told
    assert "connected" not in told
    assert "written inside" in told
    assert (repository / "made.txt").exists()
