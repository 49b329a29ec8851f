"""The database file, its -wal and its -shm are never opened outside of SQLite: closing them would drop its locks."""

from __future__ import annotations

import json
from pathlib import Path

from tests.sqlite.support import Program, is_sound, look


def test_the_databases_files_are_opened_by_sqlite_alone(path: Path) -> None:
    with Program("watch_files", path) as program:
        opened = json.loads(program.finish()[0])
    assert {f"{path}-alkstore-line"} == {file for file in opened if file.startswith(str(path.parent))}
    # 20 and one by each store, one from the child, less five that were acked.
    assert [18] == look(path, "SELECT count(*) FROM alkstore_jobs")
    assert is_sound(path)
