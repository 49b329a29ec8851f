"""``python -m alkstore.cli``: the command line, where its script isn't on the path."""

from __future__ import annotations

from alkstore.cli import main

if __name__ == "__main__":
    main()
