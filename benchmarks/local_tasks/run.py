"""Small tasks for local models. `python benchmarks/local_tasks/run.py [--model local/…] [--only NAME] [--json FILE]`"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from benchmarks.local_tasks.runner import main

if __name__ == "__main__":
    raise SystemExit(main())
