"""An INSERT into the view: what it writes is what ``queue.enqueue`` would have, and what that refuses it refuses."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from alkstore_sqlite.schema import CODE_VERSION
from tests.sqlite.conftest import Opener
from tests.sqlite.support import back_door, look, url_of
from tests.support.values import JSON

COLUMNS = (
    "queue, codec, payload, headers, priority, attempts, max_attempts, visibility_timeout, backoff_base, backoff_cap, "
    "retention, run_at - created_at, expires_at - created_at, phase, next_at - created_at, token, lease_until, worker_id, "
    "last_error"
)
LATER = datetime(2099, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
PAST = datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
YEARS = timedelta(days=36_525)


def face(path: Path, **arguments: Any) -> int:
    """Insert into the view, and return the id as the page says."""
    row = [
        value.total_seconds()
        if isinstance(value, timedelta)
        else value.isoformat(" ")
        if isinstance(value, datetime)
        else value
        for value in arguments.values()
    ]
    with back_door(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            f"INSERT INTO alkstore_enqueue ({', '.join(arguments)}) VALUES ({', '.join('?' for _ in row)})", row
        )
        found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'alkstore_jobs'").fetchone()
        connection.execute("COMMIT")
    return cast(int, found[0])


def live(path: Path) -> list[int]:
    """Return the ids of the live jobs."""
    return look(path, "SELECT id FROM alkstore_jobs ORDER BY id")


def ask(path: Path, query: str, *values: object) -> list[Any]:
    """Return a query's rows."""
    with back_door(path) as connection:
        return connection.execute(query, values).fetchall()


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
def test_a_row_is_what_the_front_writes(store: Store, path: Path, options: dict[str, Any]) -> None:
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
    second = face(path, queue="q", payload='{"a":"ä"}', **arguments)
    front, other = ask(path, f"SELECT {COLUMNS} FROM alkstore_jobs WHERE id IN (?, ?) ORDER BY id", first, second)
    assert front == other


@pytest.mark.parametrize("run_at", [LATER, PAST, datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)])
def test_run_at_is_kept_to_the_microsecond(store: Store, path: Path, run_at: datetime) -> None:
    """Also a past one (O-3)."""
    one = store.get_job(store.queue("q").enqueue(1, run_at=run_at))
    two = store.get_job(face(path, queue="q", payload="1", run_at=run_at))
    assert one is not None
    assert two is not None
    assert run_at == one.run_at == two.run_at
    assert 1 == len(set(ask(path, "SELECT phase, phase = 0 OR next_at = run_at FROM alkstore_jobs")))


def test_the_defaults_are_those_of_the_options(store: Store, path: Path) -> None:
    face(path, queue="q", payload="1")
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
    ] == ask(
        path,
        "SELECT visibility_timeout, max_attempts, backoff_base, backoff_cap, retention, priority, headers FROM alkstore_jobs",
    )


def test_a_worker_claims_it_with_types_and_order_kept(store: Store, path: Path) -> None:
    text = r'{"bb":1,"a":1e16,"c":-0.0,"d":9223372036854775808,"s":"a\u0000b"}'
    job_id = face(path, queue="q", payload=text, priority=7, headers=r'{"k":"\u0000"}')
    handle = store.queue("q").claim_one("w")
    assert handle is not None
    assert (job_id, 7, {"k": "\0"}, text.encode()) == (handle.id, handle.priority, handle.headers, handle.raw)
    wanted = {"bb": 1, "a": 1e16, "c": -0.0, "d": 2**63, "s": "a\0b"}
    assert repr(wanted) == repr(handle.payload)
    assert handle.ack()


def test_the_id_is_the_jobs(store: Store, path: Path) -> None:
    ids = [face(path, queue="q", payload=str(n)) for n in range(3)]
    assert [(0, ids[0]), (1, ids[1]), (2, ids[2])] == [(job.payload, job.id) for job in store.queue("q").jobs()]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a number for a queue": ({"queue": 1}, "queue name must be a text"),
    "a NUL": ({"queue": "a\0b"}, "queue name .*control characters"),
    "bytes": ({"payload": b"1"}, "payload must be JSON"),
    "a number": ({"payload": 1}, "payload must be JSON"),
    "a payload with a NUL": ({"payload": "1\0"}, "payload must be JSON"),
    "a text for a delay": ({"delay": "30"}, "delay must be a number of seconds"),
    "a float for a priority": ({"priority": 1.0}, "priority must be an integer"),
    "a great priority": ({"priority": 2**31}, "priority must be an integer"),
    "an endless delay": ({"delay": float("inf")}, "delay must be at most 100 years"),
    "many attempts": ({"max_attempts": 2**31}, "max_attempts must be"),
    "half a microsecond": ({"expires": 5e-7}, "expires must be over 0"),
    "a number for run_at": ({"run_at": 1}, "run_at must be a text"),
    "a day that isn't": ({"run_at": "2030-02-30 00:00:00"}, "run_at must be a text"),
    "a month that isn't": ({"run_at": "2030-13-01 00:00:00"}, "run_at must be a text"),
    "no seconds": ({"run_at": "2030-01-01 00:00"}, "run_at must be a text"),
    "nanoseconds": ({"run_at": "2030-01-01 00:00:00.1234567"}, "run_at must be a text"),
    "a bare point": ({"run_at": "2030-01-01 00:00:00.Z"}, "run_at must be a text"),
    "a zone that isn't": ({"run_at": "2030-01-01 00:00:00+1"}, "run_at must be a text"),
    "a zone by its name": ({"run_at": "2030-01-01 00:00:00 Europe/Paris"}, "run_at must be a text"),
    "now": ({"run_at": "now"}, "run_at must be a text"),
    "a late zone": ({"run_at": "9999-12-31 23:59:59-01:00"}, "run_at must "),
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
    "a run_at before Christ": ({"run_at": "-0044-03-15 00:00:00"}, "run_at must be a text"),
    "a late run_at": ({"run_at": "10000-01-01 00:00:00Z"}, "run_at must be a text"),
    "an endless run_at": ({"run_at": "infinity"}, "run_at must be a text"),
    "no time": ({"expires": timedelta(0)}, "expires must be over 0"),
    "a negative expires": ({"expires": timedelta(-1)}, "expires must not be negative"),
    "no attempts": ({"max_attempts": 0}, "max_attempts must be"),
    "no lease": ({"visibility_timeout": timedelta(0)}, "visibility_timeout must be over 0"),
    "a negative lease": ({"visibility_timeout": timedelta(-1)}, "visibility_timeout must not be negative"),
    "no base": ({"backoff_base": 0}, "backoff_base must be"),
    "no cap": ({"backoff_cap": 0}, "backoff_cap must be"),
    "a great cap": ({"backoff_cap": BACKOFF_CAP_MAX + 1}, "backoff_cap must be"),
    "a negative retention": ({"dead_letter_retention": timedelta(-1)}, "dead_letter_retention must not be negative"),
    "a long retention": ({"dead_letter_retention": YEARS * 2}, "dead_letter_retention must be at most"),
    "headers in a list": ({"headers": "[]"}, "headers must be"),
    "a null for an object": ({"headers": "null"}, "headers must be"),
    "a number in headers": ({"headers": '{"a": 1}'}, "headers must be"),
    "a null in headers": ({"headers": '{"a": null}'}, "headers must be"),
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
def test_a_refusal_names_the_argument_and_writes_nothing(store: Store, path: Path, case: str) -> None:
    arguments, message = REFUSED[case]
    with pytest.raises(sqlite3.IntegrityError, match="^alkstore: " + message):
        face(path, **({"queue": "q", "payload": "1"} | arguments))
    assert [] == live(path)


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
def test_what_is_just_within_the_limits_is_taken(store: Store, path: Path, arguments: dict[str, Any]) -> None:
    given = {"queue": "q", "payload": "1"} | arguments
    job = store.get_job(face(path, **given))
    assert job is not None
    assert (given["queue"], json.loads(given["payload"])) == (job.queue, job.payload)
    assert json.loads(given.get("headers", "{}")) == job.headers


@pytest.mark.parametrize("text", ["NaN", "[1,]", "{'a': 1}", "", '"\x01"', "01", "[Infinity]"])
def test_what_is_not_json_is_refused(store: Store, path: Path, text: str) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="alkstore: payload must be JSON"):
        face(path, queue="q", payload=text)
    assert [] == live(path)


def test_a_rollback_leaves_no_row(store: Store, path: Path) -> None:
    with back_door(path) as connection:
        connection.execute("BEGIN")
        connection.execute("INSERT INTO alkstore_enqueue (queue, payload) VALUES ('q', '1')")
        assert [(1,)] == connection.execute("SELECT count(*) FROM alkstore_jobs").fetchall()
        connection.execute("ROLLBACK")
    assert [] == live(path)


def test_a_trigger_enqueues_with_the_row_that_it_is_for(store: Store, path: Path) -> None:
    """The job is there with the row, and neither is where the transaction is rolled back."""
    with back_door(path) as connection:
        connection.execute("CREATE TABLE customers (name TEXT)")
        connection.execute(
            "CREATE TRIGGER greet AFTER INSERT ON customers BEGIN "
            "INSERT INTO alkstore_enqueue (queue, payload, delay) VALUES ('emails', json_object('to', NEW.name), 3600); END"
        )
        connection.execute("BEGIN")
        connection.execute("INSERT INTO customers VALUES ('Bob')")
        connection.execute("ROLLBACK")
        connection.execute("INSERT INTO customers VALUES ('Ada'), ('Grace')")
    jobs = store.queue("emails").jobs()
    assert [{"to": "Ada"}, {"to": "Grace"}] == [job.payload for job in jobs]
    assert {timedelta(hours=1)} == {job.run_at - job.created_at for job in jobs}


def test_whatever_python_spells_is_taken_where_the_front_takes_it(store: Store, path: Path) -> None:
    queue = store.queue("q")

    @settings(max_examples=200, deadline=None, database=None)
    @given(JSON, st.booleans())
    def run(value: object, ascii_only: bool) -> None:
        try:
            JsonCodec().encode(value)
        except PayloadError:
            with pytest.raises((sqlite3.IntegrityError, UnicodeEncodeError)):
                face(path, queue="q", payload=json.dumps(value, ensure_ascii=ascii_only))
            return
        job = queue.get_job(face(path, queue="q", payload=json.dumps(value, ensure_ascii=ascii_only)))
        assert job is not None
        assert repr(value) == repr(job.payload)

    run()


def _enqueue_as_1_0(path: Path, count: int) -> list[int]:
    """Write jobs as the code of that schema did, the first of them dead."""
    columns = (
        "queue, priority, run_at, max_attempts, created_at, visibility_timeout, backoff_base, backoff_cap, codec, "
        "headers, payload"
    )
    with back_door(path) as connection:
        for number in range(count):
            connection.execute(
                f"INSERT INTO alkstore_jobs ({columns}, phase) VALUES ('q', 0, 1, 5, 1, 60000000, 5, 3600, 'json', '{{}}', "
                "CAST(? AS BLOB), 0)",
                (str(number),),
            )
        connection.execute(
            f"INSERT INTO alkstore_dead_jobs ({columns}, id, attempts, died_at, last_error) "
            f"SELECT {columns}, id, 1, 2, 'no' FROM alkstore_jobs WHERE id = 1"
        )
        connection.execute("DELETE FROM alkstore_jobs WHERE id = 1")
    return list(range(1, count + 1))


def test_a_schema_1_0_is_upgraded_with_its_jobs(
    open_store: Opener, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr("alkstore_sqlite.schema.CODE_VERSION", (1, 0))
        older.setattr("alkstore_sqlite.schema.MIGRATIONS", (Migration("001_jobs.sql", (1, 0)),))
        with open_store() as store:
            assert (1, 0) == store.health().schema_version
            ids = _enqueue_as_1_0(path, 20)
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        face(path, queue="q", payload="1")
    with open_store() as store:
        assert CODE_VERSION == store.health().schema_version
        assert (19, 1) == (len(live(path)), len(look(path, "SELECT id FROM alkstore_dead_jobs")))
        assert [(n, job_id) for n, job_id in enumerate(ids)] == [
            (job.payload, job.id) for job in store.queue("q").jobs()
        ]
        assert ids[-1] + 1 == face(path, queue="q", payload="1")


# --- what only this engine has ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2030-01-31 12:00:00", "2030-01-31 12:00:00+00:00"),
        ("2030-01-31T12:00:00Z", "2030-01-31 12:00:00+00:00"),
        ("2030-01-31T12:00:00.5+02:00", "2030-01-31 10:00:00.500000+00:00"),
        ("2030-01-31 12:00:00.999999-05:30", "2030-01-31 17:30:00.999999+00:00"),
        ("2028-02-29 23:59:59.000001", "2028-02-29 23:59:59.000001+00:00"),
    ],
)
def test_run_at_is_a_text_of_iso_8601_and_utc_without_a_zone(store: Store, path: Path, text: str, wanted: str) -> None:
    job = store.get_job(face(path, queue="q", payload="1", run_at=text))
    assert job is not None
    assert datetime.fromisoformat(wanted) == job.run_at


@settings(max_examples=200, deadline=None, database=None)
@given(st.floats(1e-6, 3155760000) | st.integers(1, 3155760000) | st.integers(1, 10**7).map(lambda n: n / 2e6 + 1e-6))
def test_durations_are_rounded_as_the_front_rounds_them(seconds: float) -> None:
    with alkstore.open("sqlite:///:memory:") as store, store.transaction() as tx:
        tx.execute("INSERT INTO alkstore_enqueue (queue, payload, visibility_timeout) VALUES ('q', '1', ?)", [seconds])
        (job,) = tx.queue("q").jobs()
        assert Stamps.of(alkstore.QueueOptions(visibility_timeout=seconds)).visibility_timeout == (
            job.visibility_timeout // timedelta(microseconds=1)
        )


def test_now_is_the_hosts_to_the_millisecond(store: Store, path: Path) -> None:
    before = datetime.now(UTC)
    job = store.get_job(face(path, queue="q", payload="1"))
    after = datetime.now(UTC)
    assert job is not None
    assert before - timedelta(milliseconds=1) <= job.created_at <= after
    assert job.created_at == job.run_at


def test_a_database_that_is_not_utf8_is_refused(path: Path) -> None:
    """What a worker gets would be bytes of UTF-16."""
    with back_door(path) as connection:
        connection.execute("PRAGMA encoding = 'UTF-16'")
        connection.execute("CREATE TABLE customers (name)")
    with alkstore.open(url_of(path)) as store:
        assert 1 == store.queue("q").enqueue("ä")
    with pytest.raises(sqlite3.IntegrityError, match="UTF-8"):
        face(path, queue="q", payload="1")


def test_the_tables_guard_holds_up_no_connection_that_trusts_no_schema(store: Store, path: Path) -> None:
    """An application's own, joined for instance; the view itself asks for functions that such a connection may lack."""
    store.queue("q").enqueue(1)
    columns = [name for name in look(path, "SELECT name FROM pragma_table_info('alkstore_jobs')") if name != "id"]
    with back_door(path) as connection:
        connection.execute("PRAGMA trusted_schema = OFF")
        names = ", ".join(columns)
        connection.execute(f"INSERT INTO alkstore_jobs ({names}) SELECT {names} FROM alkstore_jobs")
    assert [1, 2] == live(path)


@pytest.mark.parametrize(
    "wrong",
    ["queue = ''", "queue = x'00'", "priority = 2147483648", "priority = 'high'", "max_attempts = 0", "backoff_base = 0",
     "backoff_cap = 3601", "visibility_timeout = 0", "visibility_timeout = 0.5", "retention = -1", "run_at = 'now'",
     "run_at = -1", "created_at = 1e300", "expires_at = 'never'", "headers = x'7b7d'"],
)  # fmt: skip
def test_the_table_itself_refuses_what_it_can_see_is_wrong(store: Store, path: Path, wrong: str) -> None:
    """For whoever passes the view by."""
    store.queue("q").enqueue(1)
    column, value = wrong.split(" = ")
    columns = [name for name in look(path, "SELECT name FROM pragma_table_info('alkstore_jobs')") if name != "id"]
    with back_door(path) as connection:
        copy = f"INSERT INTO alkstore_jobs ({', '.join(columns)}) SELECT {{}} FROM alkstore_jobs"
        connection.execute(copy.format(", ".join(columns)))
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute(copy.format(", ".join(value if name == column else name for name in columns)))
    assert [1, 2] == live(path)
