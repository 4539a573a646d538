"""What a mount shows of Parquet is what pyarrow reads, over thousands of rows, of every encoding, codec and page version."""

import datetime
import decimal
import io
import itertools
import json
import math
import random

import numpy
import pyarrow
import pyarrow.parquet
import pytest
from conftest import TRANSPORTS, mount, need

ROWS = 300
CODECS = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")
WRITERS = {
    "plain": {"use_dictionary": False},
    "dictionary": {"use_dictionary": True},
    "pages": {"use_dictionary": True, "data_page_size": 900, "write_page_index": True, "dictionary_pagesize_limit": 700},
    "checked": {"write_page_checksum": True, "data_page_size": 4096},
    "split": {"use_dictionary": False, "column_encoding": {
        "f4": "BYTE_STREAM_SPLIT", "f8": "BYTE_STREAM_SPLIT", "i4": "DELTA_BINARY_PACKED", "i8": "DELTA_BINARY_PACKED",
        "text": "DELTA_BYTE_ARRAY", "image": "DELTA_LENGTH_BYTE_ARRAY", "u8": "BYTE_STREAM_SPLIT"}},
}
LABELS = ["cat", "dog", "köter"]


@pytest.fixture(params=TRANSPORTS)
def transport(request):
    need(request.param)
    return request.param


def media(noise, number, ending):
    return {"bytes": b"\xff\xd8\xff" + noise.bytes(int(noise.integers(0, 3000))), "path": f"a/{number}{ending}"}


def wide(number):
    """A decimal of up to 76 digits, 38 of them behind the point."""
    return decimal.Decimal(number).scaleb(-38, decimal.Context(prec=76))


def table(seed, has_nulls):
    """Columns of all types; with nulls in all of them, or in none."""
    noise, choose = numpy.random.default_rng(seed), random.Random(seed)
    few = [f"word {number} äöü" for number in range(40)]

    def column(make, kind, rate=0.2):
        values = [None if has_nulls and choose.random() < rate else make(number) for number in range(ROWS)]
        return pyarrow.array(values, kind)

    def number(low, high):
        return lambda _: choose.choice((low, high, choose.randint(low, high), max(low, 0) + choose.randint(0, 3)))

    file = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    start = datetime.datetime(2024, 2, 28)
    columns = {
        "image": column(lambda n: b"\x89PNG\r\n\x1a\n" + noise.bytes(n % 700), pyarrow.binary()),
        "file": column(lambda n: media(noise, n, choose.choice((".jpg", ".JPEG", ".wav", ".xyz"))), file),
        "text": column(lambda n: choose.choice(few) * choose.randint(0, 3), pyarrow.string()),
        "word": column(lambda n: choose.choice(few), pyarrow.large_string()),
        "json": column(lambda n: json.dumps({"n": n}), pyarrow.string()),
        "label": column(lambda n: n % len(LABELS), pyarrow.int64()),
        "flag": column(lambda n: choose.random() < 0.5, pyarrow.bool_()),
        **{f"i{bits // 8}": column(number(-1 << bits - 1, (1 << bits - 1) - 1), f"int{bits}") for bits in (8, 16, 32, 64)},
        **{f"u{bits // 8}": column(number(0, (1 << bits) - 1), f"uint{bits}") for bits in (8, 16, 32, 64)},
        "f2": column(lambda n: numpy.float16(n / 7), pyarrow.float16()),
        "f4": column(lambda n: choose.random(), pyarrow.float32()),
        "f8": column(lambda n: choose.random(), pyarrow.float64()),
        "price": column(lambda n: decimal.Decimal(choose.randint(-99999, 99999)).scaleb(-2), pyarrow.decimal128(9, 2)),
        "wide": column(lambda n: wide(choose.randint(-10**70, 10**70)), pyarrow.decimal256(76, 38)),
        "day": column(lambda n: (start + datetime.timedelta(days=n)).date(), pyarrow.date32()),
        "when": column(lambda n: start + datetime.timedelta(seconds=n, microseconds=n), pyarrow.timestamp("us", "UTC")),
        "code": column(lambda n: noise.bytes(16), pyarrow.binary(16)),
        "tokens": column(lambda n: [choose.randint(0, 50) for _ in range(n % 40)], pyarrow.list_(pyarrow.int32())),
        "box": column(lambda n: [choose.random() for _ in range(4)], pyarrow.list_(pyarrow.float64())),
        "words": column(lambda n: [choose.choice(few) for _ in range(n % 4)], pyarrow.list_(pyarrow.string())),
        "views": column(lambda n: [media(noise, n, ".png") for _ in range(n % 3)], pyarrow.list_(file)),
        "counts": column(lambda n: [(f"k{k}", k) for k in range(n % 3)], pyarrow.map_(pyarrow.string(), pyarrow.int64())),
        "talk": column(lambda n: [{"role": "user", "turn": {"n": n, "at": [1.5, None]}} for _ in range(n % 3)], pyarrow.list_(
            pyarrow.struct([("role", pyarrow.string()),
                            ("turn", pyarrow.struct([("n", pyarrow.int64()), ("at", pyarrow.list_(pyarrow.float64()))]))]))),
        "meta": column(lambda n: {"url": f"https://a/{n}", "size": n}, pyarrow.struct(
            [("url", pyarrow.string()), ("size", pyarrow.int32())])),
        "holes": column(lambda n: [None, n] if n % 2 else [n], pyarrow.list_(pyarrow.int64())),
    }
    info = {"info": {"features": {"label": {"names": LABELS, "_type": "ClassLabel"}}}}
    if not has_nulls:
        # No row of these has as many files as the one before.
        del columns["views"]
    return pyarrow.table(columns).replace_schema_metadata({"huggingface": json.dumps(info)})


def plain(value):
    """As JSON has it."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def array(value, kind):
    """What NumPy makes of a value."""
    if pyarrow.types.is_date(kind):
        return numpy.array(value, "<M8[D]")
    if pyarrow.types.is_timestamp(kind):
        return numpy.array(value.replace(tzinfo=None), "<M8[us]")
    return numpy.array(value, kind.to_pandas_dtype())


def expected(name, value, kind):
    """The files of a value, by their paths: bytes, arrays, or what JSON holds."""
    types = pyarrow.types
    if value is None:
        return {}
    if name == "file":
        ending = "." + value["path"].rsplit(".")[-1]
        return {f"file{'.jpg' if ending == '.xyz' else ending}": value["bytes"]}
    if name == "views":
        return {f"views/{number}.png": item["bytes"] for number, item in enumerate(value)}
    if name == "meta":
        return {"meta/url.txt": value["url"].encode(), "meta/size.npy": numpy.array(value["size"], "<i4")}
    if types.is_list(kind) and types.is_primitive(kind.value_type) and None not in value:
        return {f"{name}.npy": numpy.array(value, kind.value_type.to_pandas_dtype())}
    if types.is_map(kind):
        return {f"{name}.json": dict(value)}
    if types.is_nested(kind):
        return {f"{name}.json": plain(value)}
    if types.is_decimal(kind):
        return {f"{name}.txt": format(value, "f").encode()}
    if types.is_string(kind) or types.is_large_string(kind):
        return {f"{name}{'.json' if name == 'json' else '.txt'}": value.encode()}
    if name == "image":
        return {"image.png": value}
    if name == "code":
        return {"code": value}
    if name == "label":
        return {"label.npy": numpy.array(value, "<i8"), "label.txt": LABELS[value].encode()}
    return {f"{name}.npy": array(value, kind)}


def check_row(folder, row, schema):
    wanted = {}
    for name, value in row.items():
        wanted |= expected(name, value, schema.field(name).type)
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    if "code" in wanted:
        (name,) = (name for name in found if name.startswith("code."))
        found["code"] = found.pop(name)
    assert sorted(found) == sorted(wanted), folder
    for name, value in wanted.items():
        content = found[name].read_bytes()
        if isinstance(value, bytes):
            assert content == value, found[name]
        elif isinstance(value, numpy.ndarray):
            read = numpy.load(io.BytesIO(content))
            assert read.dtype == value.dtype and read.shape == value.shape, found[name]
            assert read.tobytes() == value.tobytes(), found[name]
        else:
            assert json.loads(content) == value, found[name]


def check(folder, wanted):
    assert len(list(folder.iterdir())) == len(wanted)
    for number, row in enumerate(wanted.to_pylist()):
        check_row(folder / f"{number:06}", row, wanted.schema)


CASES = [(writer, codec, version, nulls)
         for number, (writer, nulls) in enumerate(itertools.product(WRITERS, (False, True)))
         for codec, version in ((CODECS[number % len(CODECS)], "1.0"), (CODECS[-1 - number % len(CODECS)], "2.0"))]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_rows_are_what_pyarrow_reads(ffrfs, transport, tmp_path, case):
    writer, codec, version, nulls = CASES[case]
    wanted, path = table(case, nulls), tmp_path / "t.parquet"
    pyarrow.parquet.write_table(wanted, path, compression=codec, data_page_version=version, row_group_size=120,
                                **WRITERS[writer])
    with mount(ffrfs, [path], transport) as folder:
        check(folder, wanted)


def test_shards_are_numbered_on(ffrfs, transport, tmp_path):
    wanted = table(99, False)
    for number in range(2):
        part = wanted.slice(number * ROWS // 2, ROWS // 2)
        pyarrow.parquet.write_table(part, tmp_path / f"train-0000{number}-of-00002.parquet", row_group_size=100)
    with mount(ffrfs, [tmp_path], transport) as folder:
        check(folder, wanted)


def test_a_row_of_nulls_is_an_empty_directory(ffrfs, transport, tmp_path):
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"a": pyarrow.array([1, None, 3]), "b": pyarrow.array(["x", None, None])}), path)
    with mount(ffrfs, [path], transport) as folder:
        files = {str(path.relative_to(folder)) for path in folder.rglob("*")}
        assert files == {"000000", "000000/a.npy", "000000/b.txt", "000001", "000002", "000002/a.npy"}


def test_floats_that_are_no_numbers_stay_in_arrays(ffrfs, transport, tmp_path):
    path = tmp_path / "t.parquet"
    values = [[math.nan, math.inf], [-0.0]]
    pyarrow.parquet.write_table(pyarrow.table({"a": pyarrow.array(values)}), path)
    with mount(ffrfs, [path], transport) as folder:
        assert numpy.isnan(numpy.load(folder / "000000/a.npy")[0])
        assert numpy.signbit(numpy.load(folder / "000001/a.npy")[0])
