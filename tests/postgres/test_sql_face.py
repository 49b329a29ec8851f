"""enqueue() in SQL: what it writes is what ``queue.enqueue`` would have, and what that refuses it refuses."""

from __future__ import annotations

import json
import secrets
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString, cast

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import errors as pg
from psycopg import sql

import alkstore
from alkstore.codec import JsonCodec
from alkstore.errors import PayloadError
from alkstore.limits import (
    BACKOFF_BASE_MAX,
    BACKOFF_CAP_MAX,
    HEADER_BYTES,
    HEADER_ENTRIES,
    INTEGER_DIGITS,
    MAX_ATTEMPTS_MAX,
    NAME_CHARACTERS,
    PAYLOAD_BYTES,
    PAYLOAD_DEPTH,
)
from alkstore.options import Stamps
from alkstore.schema import Migration
from alkstore.store import Store
from alkstore_postgres.schema import CODE_VERSION
from tests.postgres.conftest import Opener
from tests.postgres.door import Door
from tests.support.values import JSON

COLUMNS: LiteralString = (
    "queue, codec, payload, headers, priority, attempts, max_attempts, visibility_timeout, backoff_base, backoff_cap, "
    "retention, run_at - created_at, expires_at - created_at, phase, next_at - created_at, token, lease_until, worker_id, "
    "last_error"
)
LATER = datetime(2099, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
PAST = datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
YEARS = timedelta(days=36_525)


def face(door: Door, **arguments: Any) -> int:
    """Call the function by the names of its arguments."""
    schema = sql.Identifier(door.schema).as_string().replace("%", "%%")  # a name is no placeholder
    call = sql.SQL("SELECT {}.enqueue({})").format(
        sql.SQL(cast(LiteralString, schema)),
        sql.SQL(", ").join(sql.SQL("{} => %s").format(sql.Identifier(name)) for name in arguments),
    )
    row = door.connection.execute(call, list(arguments.values())).fetchone()
    return cast(int, cast(tuple[Any, ...], row)[0])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"delay": timedelta(seconds=90, microseconds=7)},
        {"expires": timedelta(seconds=90)},
        {"delay": timedelta(seconds=90), "expires": timedelta(seconds=30)},
        {"delay": timedelta(seconds=30), "expires": timedelta(seconds=90)},
        {"delay": timedelta(0), "run_at": LATER},
        {"delay": timedelta(seconds=5), "run_at": PAST},
        {"delay": YEARS},
        {"priority": -(2**31)},
        {"priority": 2**31 - 1, "max_attempts": 1},
        {"headers": {"a": "b", "ä": "\0\U0001f600\\u0000"}},
        {"visibility_timeout": timedelta(microseconds=1), "max_attempts": MAX_ATTEMPTS_MAX},
        {"backoff": (BACKOFF_BASE_MAX, BACKOFF_CAP_MAX), "dead_letter_retention": timedelta(0)},
        {"backoff": (1, 1), "dead_letter_retention": YEARS},
        {"priority": None, "max_attempts": None, "headers": None, "delay": None, "run_at": None, "expires": None},
    ],
)
def test_a_row_is_what_the_front_writes(store: Store, door: Door, options: dict[str, Any]) -> None:
    """Column by column, but for the id and the instant."""
    own = dict(options)
    stamps = {name: own.pop(name) for name in ("visibility_timeout", "dead_letter_retention") if name in own}
    arguments = own | stamps
    if "backoff" in own:
        base, cap = own.pop("backoff")
        stamps["backoff"] = alkstore.Backoff(base, cap)
        del arguments["backoff"]
        arguments |= {"backoff_base": base, "backoff_cap": cap}
    if own.get("headers") is not None:
        arguments["headers"] = json.dumps(own["headers"])
    first = store.queue("q", **stamps).enqueue({"a": "ä"}, **own)
    second = face(door, queue="q", payload='{"a":"ä"}', **arguments)
    front, other = door.ask(f"SELECT {COLUMNS} FROM {{jobs}} WHERE id = ANY (%s) ORDER BY id", [first, second])
    assert front == other


@pytest.mark.parametrize("run_at", [LATER, PAST, datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)])
def test_run_at_is_kept_to_the_microsecond(store: Store, door: Door, run_at: datetime) -> None:
    """Also a past one (O-3)."""
    one = store.get_job(store.queue("q").enqueue(1, run_at=run_at))
    two = store.get_job(face(door, queue="q", payload="1", run_at=run_at))
    assert one is not None
    assert two is not None
    assert run_at == one.run_at == two.run_at
    assert 1 == len(set(door.ask("SELECT phase, phase = 0 OR next_at = run_at FROM {jobs}")))


def test_the_defaults_are_those_of_the_options(store: Store, door: Door) -> None:
    face(door, queue="q", payload="1")
    stamps = Stamps.of(alkstore.QueueOptions())
    assert [
        (
            stamps.visibility_timeout,
            stamps.max_attempts,
            stamps.backoff_base,
            stamps.backoff_cap,
            stamps.retention,
            0,
            "{}",
        )
    ] == door.ask(
        "SELECT visibility_timeout, max_attempts, backoff_base, backoff_cap, retention, priority, headers FROM {jobs}"
    )


def test_a_worker_claims_it_with_types_and_order_kept(store: Store, door: Door) -> None:
    text = r'{"bb":1,"a":1e16,"c":-0.0,"d":9223372036854775808,"s":"a\u0000b"}'
    job_id = face(door, queue="q", payload=text, priority=7, headers=r'{"k":"\u0000"}')
    handle = store.queue("q").claim_one("w")
    assert handle is not None
    assert (job_id, 7, {"k": "\0"}, text.encode()) == (handle.id, handle.priority, handle.headers, handle.raw)
    wanted = {"bb": 1, "a": 1e16, "c": -0.0, "d": 2**63, "s": "a\0b"}
    assert repr(wanted) == repr(handle.payload)
    assert handle.ack()


def test_the_id_is_the_jobs(store: Store, door: Door) -> None:
    ids = [face(door, queue="q", payload=str(n)) for n in range(3)]
    assert [(0, ids[0]), (1, ids[1]), (2, ids[2])] == [(job.payload, job.id) for job in store.queue("q").jobs()]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no queue": ({"queue": None}, "queue name"),
    "an empty queue": ({"queue": ""}, "queue name must have 1 to 200 characters"),
    "a long queue": ({"queue": "q" * (NAME_CHARACTERS + 1)}, "queue name must have 1 to 200 characters"),
    "the library's own": ({"queue": "_q"}, "queue name .*must not start with '_'"),
    "a control character": ({"queue": "a\x01"}, "queue name .*control characters"),
    "a delete": ({"queue": "a\x7f"}, "queue name .*control characters"),
    "a C1": ({"queue": "a\x9f"}, "queue name .*control characters"),
    "no payload": ({"payload": None}, "payload must be JSON"),
    "a long payload": ({"payload": '"' + "x" * (PAYLOAD_BYTES - 1) + '"'}, "payload is .*over the limit of 16777216"),
    "a high half": ({"payload": r'["\ud800"]'}, "payload holds a lone surrogate"),
    "a low half": ({"payload": r'{"\uDC00": 1}'}, "payload holds a lone surrogate"),
    "halves the wrong way round": ({"payload": r'"\ude00\ud83d"'}, "payload holds a lone surrogate"),
    "a half after a backslash": ({"payload": r'"\\\ud83d"'}, "payload holds a lone surrogate"),
    "two low halves": ({"payload": r'"\ud83d\ude00\ude00"'}, "payload holds a lone surrogate"),
    "a long integer": (
        {"payload": "[-" + "1" * (INTEGER_DIGITS + 1) + "]"},
        "payload has an integer of more than 4300",
    ),
    "a great float": ({"payload": '{"a": [1, -1e309]}'}, "payload has a number that is too great"),
    "a long float": ({"payload": "1" * 310 + ".0"}, "payload has a number that is too great"),
    "the next float": ({"payload": "1.8e+308"}, "payload has a number that is too great"),
    "a deep payload": ({"payload": "[" * 257 + "]" * 257}, "payload is nested deeper than 256"),
    "a deep object": ({"payload": '[{"[":' * 128 + "[]" + "}]" * 128}, "payload is nested deeper than 256"),
    "a negative delay": ({"delay": timedelta(microseconds=-1)}, "delay must not be negative"),
    "a long delay": ({"delay": YEARS + timedelta(microseconds=1)}, "delay must be at most 100 years"),
    "an early run_at": ({"run_at": PAST - timedelta(microseconds=2)}, "run_at must lie within the years 1970 to 9999"),
    "a wrong run_at that loses": ({"delay": timedelta(1), "run_at": PAST - timedelta(1)}, "run_at must lie within"),
    "a run_at before Christ": ({"run_at": "0044-03-15 BC"}, "run_at must lie within"),
    "a late run_at": ({"run_at": "10000-01-01 00:00:00+00"}, "run_at must lie within"),
    "an endless run_at": ({"run_at": "infinity"}, "run_at must lie within"),
    "no time": ({"expires": timedelta(0)}, "expires must be over 0"),
    "a negative expires": ({"expires": timedelta(-1)}, "expires must not be negative"),
    "a month less 31 days": ({"expires": "1 month -31 days"}, "expires must not be negative"),
    "a long expires": ({"expires": "1201 months"}, "expires must be at most 100 years"),
    "no attempts": ({"max_attempts": 0}, "max_attempts must be"),
    "no lease": ({"visibility_timeout": timedelta(0)}, "visibility_timeout must be over 0"),
    "a negative lease": ({"visibility_timeout": timedelta(-1)}, "visibility_timeout must not be negative"),
    "no base": ({"backoff_base": 0}, "backoff_base must be"),
    "no cap": ({"backoff_cap": 0}, "backoff_cap must be"),
    "a great cap": ({"backoff_cap": BACKOFF_CAP_MAX + 1}, "backoff_cap must be"),
    "a null for a lease": ({"visibility_timeout": None}, "visibility_timeout must be"),
    "a null for a base": ({"backoff_base": None}, "backoff_base must be"),
    "a null for a cap": ({"backoff_cap": None}, "backoff_cap must be"),
    "a negative retention": ({"dead_letter_retention": timedelta(-1)}, "dead_letter_retention must not be negative"),
    "a long retention": ({"dead_letter_retention": YEARS * 2}, "dead_letter_retention must be at most"),
    "headers in a list": ({"headers": "[]"}, "headers must be"),
    "a null for an object": ({"headers": "null"}, "headers must be"),
    "a number in headers": ({"headers": '{"a": 1}'}, "headers.* must be"),
    "a null in headers": ({"headers": '{"a": null}'}, "headers.* must be"),
    "many headers": (
        {"headers": json.dumps({str(n): "" for n in range(HEADER_ENTRIES + 1)})},
        "headers must have at most 32 entries",
    ),
    "great headers": (
        {"headers": json.dumps({"ä": "\0" * (HEADER_BYTES - 1)})},
        "headers must have at most 8192 bytes",
    ),
    "a half in headers": ({"headers": r'{"a": "\ud800"}'}, "headers must not contain lone surrogates"),
    "a header twice": ({"headers": r'{"a": "", "\u0061": ""}'}, "headers must not have the same key twice"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_names_the_argument_and_writes_nothing(store: Store, door: Door, case: str) -> None:
    arguments, message = REFUSED[case]
    with pytest.raises(pg.InvalidParameterValue, match=message) as refused:
        face(door, **({"queue": "q", "payload": "1"} | arguments))
    assert refused.value.diag.sqlstate == "22023"
    assert set() == door.live()


@pytest.mark.parametrize(
    "arguments",
    [
        {"queue": "q" * NAME_CHARACTERS},
        {"queue": "é '\"%s; \U0001f600"},
        {"payload": '"' + "x" * (PAYLOAD_BYTES - 2) + '"'},
        {"payload": "[" * PAYLOAD_DEPTH + "]" * PAYLOAD_DEPTH},
        {"payload": '[{"[":' * 128 + "1" + "}]" * 128},
        {"payload": json.dumps("[" * 1000 + '"\\' * 100)},
        {"payload": "-" + "1" * INTEGER_DIGITS},
        {"payload": json.dumps("1" * 5000)},
        {"payload": "[1.7976931348623157e308, 1e-400, 0e999, 0.0000e+4000, 1e0000000000005]"},
        {"payload": r'"\\ud800 \ud83d\ude00 \\\ud83d\ude00"'},
        {"payload": " \n\t[1 ,\r2]\n"},
        {"headers": json.dumps({"ä": "\0" * (HEADER_BYTES - 2)})},
        {"headers": json.dumps({str(n): "" for n in range(HEADER_ENTRIES)})},
    ],
)
def test_what_is_just_within_the_limits_is_taken(store: Store, door: Door, arguments: dict[str, Any]) -> None:
    given = {"queue": "q", "payload": "1"} | arguments
    job = store.get_job(face(door, **given))
    assert job is not None
    assert (given["queue"], json.loads(given["payload"])) == (job.queue, job.payload)
    assert json.loads(given.get("headers", "{}")) == job.headers


@pytest.mark.parametrize("text", ["NaN", "[1,]", "{'a': 1}", "", '"\x01"', "01", "[Infinity]"])
def test_what_is_not_json_is_refused(store: Store, door: Door, text: str) -> None:
    """By the type, with its own code."""
    with pytest.raises(pg.InvalidTextRepresentation):
        face(door, queue="q", payload=text)
    assert set() == door.live()


def test_a_rollback_leaves_no_row(store: Store, door: Door) -> None:
    with door.connection.transaction(force_rollback=True):
        face(door, queue="q", payload="1")
    assert set() == door.live()


def test_a_trigger_enqueues_with_the_row_that_it_is_for(store: Store, door: Door) -> None:
    """The job is there with the row, and neither is where the transaction is rolled back."""
    for statement in (
        "CREATE TABLE {schema}.customers (name text)",
        """CREATE FUNCTION {schema}.greet() RETURNS trigger LANGUAGE plpgsql AS $$
           BEGIN PERFORM {schema}.enqueue('emails', json_build_object('to', NEW.name), delay => '1 h'); RETURN NULL; END $$""",
        "CREATE TRIGGER greet AFTER INSERT ON {schema}.customers FOR EACH ROW EXECUTE FUNCTION {schema}.greet()",
    ):
        door.do(cast(LiteralString, statement))
    with door.connection.transaction(force_rollback=True):
        door.do("INSERT INTO {schema}.customers VALUES ('Bob')")
    door.do("INSERT INTO {schema}.customers VALUES ('Ada'), ('Grace')")
    jobs = store.queue("emails").jobs()
    assert [{"to": "Ada"}, {"to": "Grace"}] == [job.payload for job in jobs]
    assert {timedelta(hours=1)} == {job.run_at - job.created_at for job in jobs}


def test_whatever_python_spells_is_taken_where_the_front_takes_it(store: Store, door: Door) -> None:
    queue = store.queue("q")

    @settings(max_examples=200, deadline=None, database=None)
    @given(JSON, st.booleans())
    def run(value: object, ascii_only: bool) -> None:
        try:
            JsonCodec().encode(value)
        except PayloadError:
            with pytest.raises((pg.DataError, UnicodeEncodeError)):
                face(door, queue="q", payload=json.dumps(value, ensure_ascii=ascii_only))
            return
        job = queue.get_job(face(door, queue="q", payload=json.dumps(value, ensure_ascii=ascii_only)))
        assert job is not None
        assert repr(value) == repr(job.payload)

    run()


def _enqueue_as_1_0(door: Door, count: int) -> list[int]:
    """Write jobs as the code of that schema did, the first of them dead."""
    door.do(
        "INSERT INTO {jobs} (queue, priority, run_at, max_attempts, created_at, visibility_timeout, backoff_base, "
        "backoff_cap, codec, headers, payload, phase) SELECT 'q', 0, 1, 5, 1, 60000000, 5, 3600, 'json', '{{}}', "
        "convert_to(n::text, 'UTF8'), 0 FROM generate_series(0, %s) AS n ORDER BY n",
        count - 1,
    )
    door.do(
        "INSERT INTO {dead_jobs} (id, queue, priority, run_at, attempts, max_attempts, created_at, died_at, "
        "visibility_timeout, backoff_base, backoff_cap, codec, headers, last_error, payload) SELECT id, queue, priority, "
        "run_at, 1, max_attempts, created_at, 2, visibility_timeout, backoff_base, backoff_cap, codec, headers, 'no', "
        "payload FROM {jobs} WHERE id = 1"
    )
    door.do("DELETE FROM {jobs} WHERE id = 1")
    return list(range(1, count + 1))


def test_a_schema_1_0_is_upgraded_with_its_jobs(
    open_store: Opener, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr("alkstore_postgres.schema.CODE_VERSION", (1, 0))
        older.setattr("alkstore_postgres.schema.MIGRATIONS", (Migration("001_jobs.sql", (1, 0)),))
        with open_store() as store:
            assert (1, 0) == store.health().schema_version
            ids = _enqueue_as_1_0(door, 20)
    with pytest.raises(pg.UndefinedFunction):
        face(door, queue="q", payload="1")
    with open_store() as store:
        assert CODE_VERSION == store.health().schema_version
        assert (19, 1) == (len(door.live()), len(door.dead()))
        assert [(n, job_id) for n, job_id in enumerate(ids)] == [
            (job.payload, job.id) for job in store.queue("q").jobs()
        ]
        assert ids[-1] + 1 == face(door, queue="q", payload="1")


# --- what only this engine has ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ['Jobs "of" mine', "with.dot %s", "'quoted'", "select", "{jobs}", "back\\slash", "a, b"]
)
def test_any_name_of_a_schema_will_do(open_store: Opener, door: Door, name: str) -> None:
    schema = f"{name}{secrets.token_hex(5)}"
    store = open_store(schema=schema)
    job = store.get_job(face(Door(door.connection, schema), queue="q", payload='{"a":1}'))
    assert job is not None
    assert {"a": 1} == job.payload


def test_whatever_the_search_path_and_settings_of_the_caller(store: Store, database: str, door: Door) -> None:
    """Tables (a temporary one too), functions, types and operators of the same names ahead of the right ones."""
    hostile: LiteralString = """
        CREATE SCHEMA evil2;
        CREATE TABLE evil2.jobs (id bigint);
        CREATE FUNCTION evil2.statement_timestamp() RETURNS timestamptz LANGUAGE sql AS $$SELECT 'epoch'::timestamptz$$;
        CREATE FUNCTION evil2.char_length(text) RETURNS integer LANGUAGE sql AS 'SELECT 0';
        CREATE FUNCTION evil2.octet_length(text) RETURNS integer LANGUAGE sql AS 'SELECT 99999999';
        CREATE FUNCTION evil2.isfinite(interval) RETURNS boolean LANGUAGE sql AS 'SELECT false';
        CREATE FUNCTION evil2.convert_to(text, name) RETURNS bytea LANGUAGE sql AS $$SELECT 'no'::bytea$$;
        CREATE FUNCTION evil2.resolved_job(
            text, json, interval, timestamptz, integer, interval, integer, json, interval, integer, integer, interval
        ) RETURNS integer LANGUAGE sql AS 'SELECT 1';
        CREATE DOMAIN evil2.text AS pg_catalog.int4;
        CREATE DOMAIN evil2.bigint AS pg_catalog.text;
        CREATE FUNCTION evil2.less(numeric, integer) RETURNS numeric LANGUAGE sql AS 'SELECT 0::numeric';
        CREATE OPERATOR evil2.* (FUNCTION = evil2.less, LEFTARG = numeric, RIGHTARG = integer);
    """
    door.do(hostile)
    try:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("CREATE TEMPORARY TABLE jobs (id bigint)")
            connection.execute("SET search_path TO evil2, pg_catalog")
            connection.execute("SET standard_conforming_strings TO off")
            connection.execute("SET escape_string_warning TO off")
            other = Door(connection, door.schema)
            job = store.get_job(face(other, queue="q", payload=r'["\\ud800", "\ud83d\ude00"]', headers='{"a":"b"}'))
            with pytest.raises(pg.InvalidParameterValue, match="lone surrogate"):
                face(other, queue="q", payload=r'"\ud800"')
            assert connection.execute("SHOW search_path").fetchone() == ("evil2, pg_catalog",)
    finally:
        door.do("DROP SCHEMA evil2 CASCADE")
    assert job is not None
    assert (["\\ud800", "\U0001f600"], {"a": "b"}) == (job.payload, job.headers)
    assert timedelta(0) <= store.health().now - job.created_at < timedelta(minutes=5)


def test_a_role_needs_no_more_than_it_does_for_a_store(store: Store, database: str, door: Door) -> None:
    """S-2: it runs with the caller's rights, and whoever may not insert may not enqueue."""
    role = sql.Identifier(f"face_{secrets.token_hex(4)}")
    door.connection.execute(sql.SQL("CREATE ROLE {}").format(role))
    try:
        grants = (
            "GRANT USAGE ON SCHEMA {schema} TO {role}",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
        )
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(sql.SQL("SET ROLE {}").format(role))
            other = Door(connection, door.schema)
            with pytest.raises(pg.InsufficientPrivilege):
                face(other, queue="q", payload="1")
            for grant in grants:
                with pytest.raises(pg.InsufficientPrivilege):
                    face(other, queue="q", payload="1")
                statement = sql.SQL(cast(LiteralString, grant))
                door.connection.execute(statement.format(schema=sql.Identifier(door.schema), role=role))
            assert {face(other, queue="q", payload="1")} == door.live()
    finally:
        door.connection.execute(sql.SQL("DROP OWNED BY {}").format(role))
        door.connection.execute(sql.SQL("DROP ROLE {}").format(role))


def test_an_endless_interval_is_refused_where_there_is_one(store: Store, door: Door) -> None:
    """PostgreSQL 17 and newer have it; for an older one it isn't an interval."""
    with pytest.raises(pg.DataError) as refused:
        face(door, queue="q", payload="1", delay="infinity")
    if door.connection.info.server_version >= 170000:
        assert "delay must be an interval, and finite" in str(refused.value)


def test_the_function_goes_on_in_a_schema_that_is_renamed(store: Store, door: Door) -> None:
    name = f"renamed{secrets.token_hex(5)}"
    door.connection.execute(
        sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(sql.Identifier(door.schema), sql.Identifier(name))
    )
    renamed = Door(door.connection, name)
    assert {face(renamed, queue="q", payload="1")} == renamed.live()
