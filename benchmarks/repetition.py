"""What the repetition guard makes of honest text, and what it takes: the files of the Python packages installed here.

python benchmarks/repetition.py [--folder FOLDER] [--most 5000]
"""

import argparse
import sys
import sysconfig
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from context.repetition import Repetition

ENDINGS = {".py", ".pyi", ".md", ".rst", ".txt", ".json", ".toml", ".html", ".css", ".js", ".c", ".h", ".cpp"}
LARGEST = 200_000  # bytes of a file
PIECE = 4  # characters that come at once, about a token


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(sysconfig.get_path("purelib")))
    parser.add_argument("--most", type=int, default=5_000, help="files")
    options = parser.parse_args()
    files = characters = 0
    worst, spent, cut = 0.0, 0.0, list[Path]()
    for path in sorted(options.folder.rglob("*")):
        if files == options.most:
            break
        if path.suffix not in ENDINGS or not path.is_file() or path.stat().st_size > LARGEST:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        watcher, begun = Repetition(), time.thread_time()
        if any(watcher.feed(text[at : at + PIECE]) is not None for at in range(0, len(text), PIECE)):
            cut.append(path)
        seconds = time.thread_time() - begun
        files, characters, spent = files + 1, characters + len(text), spent + seconds
        if len(text) >= 10_000:
            worst = max(worst, seconds / len(text))
    if not characters:
        sys.exit(f"There is no text in {options.folder}.")
    print(f"{files:,} files, {characters:,} characters: {len(cut)} taken for a loop")
    print(f"{spent / characters * 1e6:.1f} µs a character, {worst * 1e6:.1f} in the slowest file of 10,000 or more")
    for path in cut:
        print(path.relative_to(options.folder))


if __name__ == "__main__":
    main()
