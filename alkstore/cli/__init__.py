"""The command line, ``alkstore``: what the queues are doing, and what can be done about it (extra ``cli``).

Everything goes through the front, as an application would; nothing but this package imports it. ``app.py`` has the
commands and how each ends, ``place.py`` which store is meant, ``output.py`` what is printed and ``shapes.py`` what
records look like there.
"""

from __future__ import annotations

import sys
from typing import Final

from alkstore.shell import Exit, complain

_NEEDED: Final = frozenset({"click", "rich"})


def main() -> None:
    """Run the command that the arguments name, and exit; without the extra, say what to install."""
    try:
        from alkstore.cli.app import app
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] not in _NEEDED:
            raise
        complain("the command line needs click and rich: pip install 'alkstore[cli]'")
        sys.exit(Exit.USAGE)
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
    app()
