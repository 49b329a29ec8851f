"""The database file, its -wal and its -shm are opened and closed by SQLite alone: closing them would drop its locks."""

from __future__ import annotations

import json
from pathlib import Path

from tests.sqlite.support import Program, is_sound, look


def test_the_databases_files_are_opened_and_closed_by_sqlite_alone(path: Path) -> None:
    with Program("watch_files", path) as program:
        in_child, in_parent = map(json.loads, program.finish())
    folder = path.parent.resolve()
    for touched in (in_child, in_parent):
        assert {f"{folder / path.name}-alkstore-line"} == {file for file in touched if Path(file).parent == folder}
    # Opened and closed, so that both were seen.
    assert 2 <= in_parent.count(f"{folder / path.name}-alkstore-line")
    # 20 and one by each store, one from the child, less five that were acked.
    assert [18] == look(path, "SELECT count(*) FROM alkstore_jobs")
    assert is_sound(path)
