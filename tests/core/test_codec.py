"""The codecs, and how they are found, without a database (Q-ENQ-2, Q-CLAIM-7, Z-10)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alkstore.codec import Codec, Codecs, JsonCodec, RawCodec, decode_headers, encode, encode_headers
from alkstore.errors import PayloadError, ValidationError
from alkstore.limits import INTEGER_DIGITS, PAYLOAD_DEPTH

JSON = JsonCodec()
RAW = RawCodec()


def nested(levels: int) -> object:
    value: object = 0
    for _ in range(levels):
        value = [value]
    return value


def test_json_is_written_compactly_in_utf_8() -> None:
    """As people would like to read it in the readable view."""
    assert b'{"b":[1,2.5,null],"a":"\xc3\xa9"}' == JSON.encode(
        {"b": [1, 2.5, None], "a": "\N{LATIN SMALL LETTER E WITH ACUTE}"}
    )


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    """What UTF-8 can't hold isn't text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        with pytest.raises(PayloadError, match="surrogate"):
            JSON.encode(text)
    else:
        assert text == JSON.decode(JSON.encode(text))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_float_comes_back(number: float) -> None:
    """Bit for bit, and as a float."""
    back = JSON.decode(JSON.encode(number))
    assert (float, number.hex()) == (type(back), number.hex() if back == number else back)
    assert repr(number) == repr(back)


def test_a_nesting_as_deep_as_is_allowed_comes_back() -> None:
    """One level more is refused."""
    deepest = nested(PAYLOAD_DEPTH)
    assert deepest == JSON.decode(JSON.encode(deepest))
    with pytest.raises(PayloadError, match="nested deeper"):
        JSON.encode(nested(PAYLOAD_DEPTH + 1))


def from_depth(frames: int, action: Callable[[], object]) -> object:
    """Call from so many frames further down."""
    return action() if frames == 0 else from_depth(frames - 1, action)


def test_the_deepest_payload_can_be_read_from_deep_down() -> None:
    """Python 3.11 parses JSON on the interpreter's own stack, so the limit leaves room for the callers'."""
    deepest = nested(PAYLOAD_DEPTH)
    data = JSON.encode(deepest)
    frames = sys.getrecursionlimit() - PAYLOAD_DEPTH - 200

    assert deepest == from_depth(frames, lambda: JSON.decode(data))
    assert data == from_depth(frames, lambda: JSON.encode(deepest))


@pytest.fixture
def no_int_limit() -> Iterator[None]:
    """Sets a limit for integers as text that is under Python's own."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(700)
    yield
    sys.set_int_max_str_digits(before)


@pytest.mark.usefixtures("no_int_limit")
def test_a_process_with_a_lower_limit_for_integers_is_told() -> None:
    """It can neither write nor read what its own Python refuses, and gets a ``PayloadError`` for it."""
    with pytest.raises(PayloadError):
        JSON.encode([10**1_000])
    with pytest.raises(PayloadError):
        JSON.decode(b"1" * 1_000)


def test_the_longest_integer() -> None:
    """Of as many digits as Python itself takes by default; the sign isn't one."""
    for number in (10**INTEGER_DIGITS - 1, 1 - 10**INTEGER_DIGITS):
        assert number == JSON.decode(JSON.encode(number))
        with pytest.raises(PayloadError, match="digits"):
            JSON.encode(number * 10)


@pytest.mark.parametrize("data", [b"", b"{", b"nul", b"\xff", b'"\xed\xa0\x80"', b"[" * 100_000, b"1 2"], ids=repr)
def test_what_is_not_json_is_a_payload_error(data: bytes) -> None:
    """Whatever Python's own parser would raise, to the depth that overflows it."""
    with pytest.raises(PayloadError, match="JSON"):
        JSON.decode(data)


def test_a_long_key_is_cut_in_the_message() -> None:
    """A path is to be read by people."""
    with pytest.raises(PayloadError) as raised:
        JSON.encode({"k" * 10_000: object()})
    assert len(str(raised.value)) < 300


def test_the_hint_for_bytes() -> None:
    """Whoever puts bytes in is told of the codec that takes them."""
    with pytest.raises(PayloadError, match="codec='raw'"):
        JSON.encode(b"bytes")
    assert b"bytes" == RAW.decode(RAW.encode(b"bytes"))


class Upper:
    """A codec for shouting."""

    name = "upper"

    def encode(self, payload: object) -> bytes:
        return str(payload).upper().encode()

    def decode(self, data: bytes) -> object:
        return data.decode()


class Shout(Upper):
    """Another of the same name."""

    def encode(self, payload: object) -> bytes:
        return super().encode(payload) + b"!"


def test_codecs_are_chosen_by_name_or_given_themselves() -> None:
    """``None`` is JSON."""
    codecs = Codecs([Upper()])

    assert ["json", "json", "raw", "upper", "upper"] == [
        codecs.choose(codec).name for codec in (None, "json", "raw", "upper", Upper())
    ]
    with pytest.raises(ValidationError, match="known are json, raw, upper"):
        codecs.choose("lower")


def test_what_is_given_to_a_handle_is_what_it_writes_with() -> None:
    """Even where a codec of that name is known already, which then does the reading."""
    known, given_one = Upper(), Shout()
    codecs = Codecs([known])

    assert given_one is codecs.choose(given_one)
    assert known is codecs.choose("upper")


class NoDecode:
    """Half a codec."""

    name = "half"

    def encode(self, payload: object) -> bytes:
        return b""


class Nameless(Upper):
    """A codec whose name is the library's own."""

    name = "_upper"


@pytest.mark.parametrize("codec", [5, NoDecode(), Nameless()], ids=["an int", "half a codec", "a bad name"])
def test_what_is_no_codec_is_refused(codec: object) -> None:
    """When the store is opened, or the handle made."""
    with pytest.raises(ValidationError):
        Codecs([codec])
    with pytest.raises(ValidationError):
        Codecs().choose(codec)


@pytest.fixture
def installed_codec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution that names a codec, by its class."""
    metadata = tmp_path / "shouting-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[alkstore.codecs]\nloud = {__name__}:Loud\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])


class Loud(Upper):
    """What the distribution names."""

    name = "loud"


@pytest.mark.usefixtures("installed_codec")
def test_codecs_are_found_by_entry_point() -> None:
    """For writing and for reading, by stores that were never told of them."""
    assert isinstance(Codecs().choose("loud"), Loud)
    assert "hey" == Codecs().decode("loud", b"hey")


def test_an_unknown_codec_is_a_payload_error_when_reading() -> None:
    """It names the codec."""
    with pytest.raises(PayloadError, match="'loud'"):
        Codecs().decode("loud", b"hey")


@pytest.mark.parametrize(("size", "fits"), [(10, True), (11, False)])
def test_the_limit_is_of_encoded_bytes(size: int, fits: bool) -> None:
    """The limit itself is allowed."""
    if fits:
        assert size == len(encode(RAW, bytes(size), 10))
    else:
        with pytest.raises(PayloadError, match="11 bytes when encoded, over the limit of 10"):
            encode(RAW, bytes(size), 10)


@given(st.dictionaries(st.text(), st.text()))
def test_headers_are_stored_as_plain_ascii(headers: dict[str, str]) -> None:
    """So that every database takes a NUL in them."""
    text = encode_headers(headers)
    assert text.isascii()
    assert "\0" not in text
    assert list(headers.items()) == list(decode_headers(text).items())
    assert isinstance(json.loads(text), dict)


def test_the_built_in_ones_are_codecs() -> None:
    """By the protocol that others implement."""
    assert isinstance(JSON, Codec)
    assert isinstance(RAW, Codec)


@pytest.fixture
def install_codec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install a distribution whose entry points are these lines."""

    def install(*lines: str) -> None:
        metadata = tmp_path / "shouting-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text("\n".join(["[alkstore.codecs]", *lines, ""]))
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    return install


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("odd = no_such_module_anywhere:Codec", "can't be loaded"),
        (f"odd = {__name__}:RAW_BYTES", "can't be loaded"),
        (f"odd = {__name__}:Loud", "calls itself 'loud'"),
    ],
    ids=["not importable", "no codec", "another name"],
)
def test_an_entry_point_that_is_no_codec_ends_no_claim(line: str, why: str, install_codec: Callable[..., None]) -> None:
    """Reading says ``PayloadError``, and a handle can't be made with it (Q-CLAIM-7, O-4)."""
    install_codec(line)
    codecs = Codecs()
    for _ in range(2):  # it is looked for once, and remembered
        with pytest.raises(PayloadError, match=why):
            codecs.decode("odd", b"x")
        with pytest.raises(ValidationError, match=why):
            codecs.choose("odd")


RAW_BYTES = b"not a codec"


def test_a_codec_of_a_taken_name_is_refused() -> None:
    """Jobs that the other has written would be read wrongly."""

    class Json(Upper):
        name = "json"

    with pytest.raises(ValidationError, match="'json' is taken"):
        Codecs([Json()])


def test_what_is_endless_as_text_is_refused_before_it_is_spelt_out() -> None:
    """A list that holds the same list twice, and so on for 60 levels, has 2**60 items."""
    payload: list[object] = []
    for _ in range(60):
        payload = [payload, payload]
    with pytest.raises(PayloadError, match="over the limit"):
        encode(Codecs(limit=10_000).choose(None), payload, 10_000)


def test_a_key_that_has_no_text_is_still_refused_with_its_path() -> None:
    """Python refuses to spell an integer of 5,000 digits, and the message does without."""
    with pytest.raises(PayloadError, match=r"payload\['a'\] has the key that int"):
        encode(Codecs().choose(None), {"a": {10**5000: 1}}, 10_000)
