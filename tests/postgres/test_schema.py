"""The schema: made once by however many at once, by whoever may, whatever it is called (S-2, N-4, Z-13, Z-15)."""

from __future__ import annotations

import multiprocessing
import os
import secrets
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from typing import Any, LiteralString, cast
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

import alkstore
from alkstore.errors import EngineError, EngineUnavailableError, SchemaError
from alkstore.store import Store
from alkstore_postgres.pool import Connection
from alkstore_postgres.schema import CODE_VERSION, lock_key
from contract_tests.scale import rounds
from tests.postgres.conftest import Opener
from tests.postgres.door import Door
from tests.support.postgres_server import PostgresServer, replace_database

SPAWN = multiprocessing.get_context("spawn")


def _open_and_enqueue(url: str, schemas: list[str], barrier: Barrier, answers: Any) -> None:
    for schema in schemas:
        barrier.wait(60)
        try:
            with alkstore.open(url, schema=schema) as store:
                answers.put((schema, store.queue("q").enqueue(os.getpid())))
        except BaseException as exc:
            answers.put((schema, repr(exc)))
            raise


def test_eight_processes_open_a_new_schema_at_once(database: str) -> None:
    """S-2: each works with it, and it is whole."""
    schemas = [f"race{secrets.token_hex(4)}" for _ in range(rounds(30))]
    barrier, answers = SPAWN.Barrier(8), SPAWN.Queue()
    processes = [SPAWN.Process(target=_open_and_enqueue, args=(database, schemas, barrier, answers)) for _ in range(8)]
    for process in processes:
        process.start()
    got = [answers.get(timeout=120) for _ in range(8 * len(schemas))]
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 8
    for schema in schemas:
        assert sorted(job_id for name, job_id in got if name == schema) == list(range(1, 9))


def test_a_current_schema_is_opened_without_ddl_and_without_a_lock(
    store: Store, open_store: Opener, door: Door
) -> None:
    """S-2: also while somebody holds the lock that a migration takes."""
    with door.connection.transaction():
        door.do("SELECT pg_advisory_xact_lock(%s)", lock_key(door.schema))
        with open_store(lock_timeout=0.1) as other:
            assert other.queue("q").enqueue(1) == 1
        # Of this database alone: the server has others, where other tests migrate.
        assert [(1,)] == door.ask(
            "SELECT count(*) FROM pg_locks JOIN pg_database AS d ON d.oid = database"
            " WHERE locktype = 'advisory' AND d.datname = current_database()"
        )
    assert store.health().schema_version == CODE_VERSION


def test_an_absent_schema_is_refused_without_migrate(open_store: Opener, door: Door) -> None:
    """S-2: by an error that names the command, and nothing is made."""
    with pytest.raises(SchemaError, match="python -m alkstore migrate"):
        open_store(migrate=False)
    assert door.ask("SELECT FROM pg_namespace WHERE nspname = %s", door.schema) == []


@pytest.mark.parametrize("version", [(0, 9)])
def test_an_older_schema_is_refused_without_migrate(
    store: Store, open_store: Opener, door: Door, version: tuple[int, int]
) -> None:
    door.do("UPDATE {schema_version} SET major = %s, minor = %s", *version)
    with pytest.raises(SchemaError, match=r"older.*python -m alkstore migrate"):
        open_store(migrate=False)
    assert door.ask("SELECT major, minor FROM {schema_version}") == [version]


@pytest.mark.parametrize("migrate", [True, False])
def test_a_newer_major_is_never_touched_and_a_newer_minor_is_opened(
    store: Store, open_store: Opener, door: Door, migrate: bool
) -> None:
    """Z-13."""
    door.do("UPDATE {schema_version} SET minor = 7")
    with open_store(migrate=migrate) as other:
        assert other.queue("q").enqueue(1)
        assert other.health().schema_version == (1, 7)
    door.do("UPDATE {schema_version} SET major = 2, minor = 0")
    with pytest.raises(SchemaError, match="newer"):
        open_store(migrate=migrate)
    assert door.ask("SELECT major, minor FROM {schema_version}") == [(2, 0)]


ODD = [
    'Jobs "of" mine',
    "UPPER",
    "with.dot",
    "sélect",
    "select",
    "%s",
    "{jobs}",
    "'quoted'",
    "back\\slash",
    "a" * 63,
    " ",
]


@pytest.mark.parametrize("name", ODD)
def test_any_name_will_do(open_store: Opener, database: str, name: str) -> None:
    """Identifiers are quoted, everywhere; all of the operations run in such a schema."""
    schema = f"{name[:50]}{secrets.token_hex(5)}"
    store = open_store(schema=schema)
    queue = store.queue("q", max_attempts=1)
    ids = queue.enqueue_many([1, alkstore.Item(2, priority=3), 3, 4])
    done, *rest = queue.claim_batch("w", 4)
    assert done.ack()
    assert rest[0].heartbeat()
    assert rest[0].fail("no")
    assert rest[1].retry()
    assert rest[2].release()
    assert len(ids) == 4
    assert queue.sweep_expired() == 0
    assert queue.retry_dead(rest[0].id)
    assert queue.cancel(rest[0].id)
    assert [job.id for job in queue.jobs()] == sorted((rest[1].id, rest[2].id))
    assert queue.stats().dead == 1
    assert store.queues() == ["q"]
    assert queue.purge("dead") == 1
    assert store.get_job(rest[2].id) is not None
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM pg_namespace WHERE nspname = %s", [schema]).fetchone() == (1,)


def test_stores_in_two_schemas_know_nothing_of_each_other(open_store: Opener) -> None:
    """N-4."""
    one, two = (open_store(schema=f"s{secrets.token_hex(6)}").queue("q") for _ in range(2))
    one.enqueue(1)
    assert two.claim_one("w") is None
    assert two.stats().ready == 0


def test_whatever_the_search_path(store: Store, open_store: Opener, database: str, door: Door) -> None:
    """Tables, functions, types and operators of the same names ahead of the right ones are passed over."""
    hostile: LiteralString = """
        CREATE SCHEMA evil;
        CREATE TABLE evil.jobs (id bigint);
        CREATE TABLE evil.dead_jobs (id bigint);
        CREATE TABLE evil.schema_version (major int, minor int);
        CREATE FUNCTION evil.nextval(regclass) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';
        CREATE FUNCTION evil.nextval(text) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';
        CREATE FUNCTION evil.statement_timestamp() RETURNS timestamptz LANGUAGE sql AS $$SELECT 'epoch'::timestamptz$$;
        CREATE FUNCTION evil.unnest(anyarray) RETURNS SETOF anyelement LANGUAGE sql AS 'SELECT $1[1] WHERE false';
        CREATE FUNCTION evil.count() RETURNS bigint LANGUAGE sql AS 'SELECT 666::bigint';
        CREATE FUNCTION evil.random() RETURNS float8 LANGUAGE sql AS 'SELECT 0.0::float8';
        CREATE DOMAIN evil.text AS pg_catalog.int4;
        CREATE DOMAIN evil.bytea AS pg_catalog.int4;
        CREATE FUNCTION evil.less(numeric, integer) RETURNS numeric LANGUAGE sql AS 'SELECT 0::numeric';
        CREATE OPERATOR evil.* (FUNCTION = evil.less, LEFTARG = numeric, RIGHTARG = integer);
    """
    door.do(hostile)
    try:
        url = database + "?options=" + "-c%20search_path%3Devil,pg_catalog"
        evil = open_store(url)
        with evil.transaction() as tx:
            assert tx.execute("SHOW search_path").fetchone() == ("evil,pg_catalog",)
        queue = evil.queue("q", max_attempts=1)
        ids = queue.enqueue_many([{"n": 1}, {"n": 2}, {"n": 3}])
        handles = queue.claim_batch("w", 2)
        assert [handle.payload for handle in handles] == [{"n": 1}, {"n": 2}]
        assert handles[0].ack()
        assert handles[1].fail("so it goes")
        assert queue.stats().ready == 1
        assert [job.id for job in queue.jobs()] == ids[1:]
        assert len({handle.token for handle in handles}) == 2
        other = open_store(url, schema=f"s{secrets.token_hex(6)}")  # and the migration
        assert other.queue("q").enqueue(1) == 1
        assert store.queue("q").get_job(ids[2]) is not None
    finally:
        door.do("DROP SCHEMA evil CASCADE")


@pytest.fixture
def plain_role(database: str, schema: str) -> Iterator[str]:
    """The URL of a role without any right of its own, in the test's database."""
    name = f"plain_{secrets.token_hex(4)}"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'plain'").format(sql.Identifier(name)))
        parts = urlsplit(database)
        yield parts._replace(netloc=f"{name}:plain@{parts.hostname}:{parts.port}").geturl()
        connection.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(sql.Identifier(name)))
        connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def _role_of(url: str) -> sql.Identifier:
    return sql.Identifier(cast(str, urlsplit(url).username))


def test_a_role_without_ddl_rights_works_in_a_current_schema(
    store: Store, plain_role: str, open_store: Opener, door: Door
) -> None:
    """S-2: USAGE, and the four rights on the tables and the token sequence, are all that it takes."""
    with pytest.raises(EngineError, match="granted"):
        open_store(plain_role)
    role, schema = _role_of(plain_role), sql.Identifier(door.schema)
    for grant in (
        "GRANT USAGE ON SCHEMA {schema} TO {role}",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}",
    ):
        door.connection.execute(sql.SQL(cast(LiteralString, grant)).format(schema=schema, role=role))
    plain = open_store(plain_role)
    queue = plain.queue("q", max_attempts=1)
    queue.enqueue_many([1, 2])
    one, two = queue.claim_batch("w", 2)
    assert one.ack()
    assert two.fail()
    assert queue.retry_dead(two.id)
    assert plain.health().wal_bytes is None
    with store.transaction() as tx:
        assert tx.queue("q").stats().ready == 1


def test_a_role_without_ddl_rights_cannot_make_one(plain_role: str, open_store: Opener) -> None:
    with pytest.raises(SchemaError, match=r"may not.*python -m alkstore migrate"):
        open_store(plain_role)


def test_a_role_with_rights_on_an_existing_schema_only_fills_it(
    plain_role: str, open_store: Opener, door: Door
) -> None:
    """CREATE SCHEMA would need a right on the database."""
    door.do("CREATE SCHEMA {schema}")
    door.connection.execute(
        sql.SQL("GRANT USAGE, CREATE ON SCHEMA {} TO {}").format(sql.Identifier(door.schema), _role_of(plain_role))
    )
    assert open_store(plain_role).queue("q").enqueue(1) == 1


def test_somebody_elses_tables_are_left_alone(open_store: Opener, door: Door) -> None:
    """A schema that has a table of the same name is refused, and nothing is left half made."""
    door.do("CREATE SCHEMA {schema}")
    door.do("CREATE TABLE {jobs} (title text)")
    with pytest.raises(SchemaError, match="already"):
        open_store()
    rows = door.ask("SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace", f'"{door.schema}"')
    assert [row[0] for row in rows if not row[0].startswith("pg_toast")] == ["jobs"]


def test_a_migration_that_is_cut_off_leaves_nothing(
    open_store: Opener, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-2: crash-safe half way. The session is terminated after its DDL, before the commit."""

    def cut_instead(connection: Connection) -> None:
        connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    with monkeypatch.context() as changed:
        changed.setattr("alkstore_postgres.schema.commit", cut_instead)
        with pytest.raises(EngineUnavailableError):
            open_store()
    assert door.ask("SELECT FROM pg_namespace WHERE nspname = %s", door.schema) == []
    assert open_store().queue("q").enqueue(1) == 1


def test_a_database_that_is_not_utf8_is_refused(postgres_server: PostgresServer, open_store: Opener) -> None:
    """Z-15."""
    name = f"alkstore_test_{secrets.token_hex(6)}"
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'").format(
                sql.Identifier(name)
            )
        )
        try:
            with pytest.raises(SchemaError, match="UTF8"):
                open_store(replace_database(postgres_server.url, name))
        finally:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def test_dropped_tables_are_a_schema_error(store: Store, door: Door) -> None:
    queue = store.queue("q")
    queue.enqueue(1)
    door.do("DROP SCHEMA {schema} CASCADE")
    with pytest.raises(SchemaError, match="migrate"):
        queue.enqueue(2)
    with pytest.raises(SchemaError, match="migrate"):
        store.health()
