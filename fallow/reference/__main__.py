"""Writes the reference pages: `python -m fallow.reference [FOLDER]` writes to `docs/reference/`, or to FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path

from fallow.reference.pages import texts

DEFAULT_FOLDER = Path("docs/reference")


def main() -> None:
    """Write each page."""
    folder = Path(sys.argv[1]) if sys.argv[1:] else DEFAULT_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
