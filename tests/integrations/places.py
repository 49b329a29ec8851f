"""Where a test's store and its application's tables are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote

from psycopg.conninfo import conninfo_to_dict

import alkstore

EngineName: TypeAlias = Literal["sqlite", "postgresql"]


@dataclass(frozen=True)
class Place:
    """A database with a store in it, as each of those concerned calls it."""

    engine: EngineName
    url: str
    """The store's."""
    schema: str | None = None
    """On PostgreSQL, the schema for the store and the application's tables."""

    @property
    def options(self) -> dict[str, Any]:
        """What `alkstore.open` is given besides the URL."""
        if self.schema is None:
            return {"durability": "relaxed", "lock_timeout": 0.2}
        return {"schema": self.schema, "lock_timeout": 0.2}

    @property
    def sqlalchemy_url(self) -> str:
        """The URL for SQLAlchemy's `create_engine`."""
        return self.url.replace("postgresql://", "postgresql+psycopg://", 1)

    @property
    def connect_args(self) -> dict[str, Any]:
        """What the driver's `connect` is given besides, so that the application's tables are the test's own."""
        return {} if self.schema is None else {"options": f"-c search_path={self.schema}"}

    @property
    def path(self) -> Path:
        """SQLite's file."""
        return Path(self.url.removeprefix("sqlite:///"))

    def django(self, **changes: Any) -> dict[str, Any]:
        """Return the settings for Django's `DATABASES["default"]`."""
        if self.schema is None:
            return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(self.path), **changes}
        parts = conninfo_to_dict(self.url)
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": parts["dbname"],
            "USER": unquote(str(parts.get("user") or "")),
            "PASSWORD": unquote(str(parts.get("password") or "")),
            "HOST": parts.get("host") or "",
            "PORT": parts.get("port") or "",
            "OPTIONS": self.connect_args,
            **changes,
        }


def payloads(store: alkstore.Store) -> list[Any]:
    """Return the payloads of the committed jobs of the queue `q`."""
    return [job.payload for job in store.queue("q").jobs()]
