"""The seeded corpus: every way in which a file, a name or a value may be bad.

A kind is a function that puts something bad in the place of a good file; it is given the path, the good
bytes and a generator of random numbers, and writes nothing outside the path's folder. Kinds are chosen by
the shape of the good file: all shapes take the kinds of `ANY`.
"""

from __future__ import annotations

import copy
import csv
import io
import json
import os
import random
import socket
import struct
import tomllib
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import tomli_w

from ..pictures import save_dicom_noise

Kind = Callable[[Path, bytes, random.Random], None]
BEYOND = 65 * 2**30  # larger than any limit; sparse, so that it takes no room

NAMES = (
    "",
    " ",
    ".",
    "..",
    "../canary.png",
    "../../canary.png",
    "/etc/passwd",
    "C:\\Windows\\x.png",
    "a/../../canary.png",
    "~root/x",
    "-rf",
    "--out",
    "=1+1",
    "=cmd|'/c calc'!A0",
    "+SUM(A1)",
    "@x",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "$\\frac{1}{",
    "$x$",
    "\\unknown{$",
    "a_b^c_{",
    "[link](javascript:alert(1))",
    "# heading\n\n* list | table |",
    "a\nb",
    "a\rb",
    "a\tb",
    "\x1b[31mred\x1b[0m",
    "\x00",
    "\x07bell",
    "‮gnp.exe",
    "​",
    "é",
    "é",
    "漢字",
    "😀",
    "x" * 300,
    "y" * 5000,
    "%s%n%d",
    "{0.__class__}",
    "${HOME}",
    "`id`",
    "; rm -rf x",
    "NaN",
    "1e999",
    "None",
    "con",
    "a" + "/b" * 200,
)
# In every copy of the world: a pipe, and links to a device and to themselves.
SPECIAL = ("pipe", "null", "loop")
# As the path that an option or argument takes: these for each of them, since some commands take seconds.
PATHS = (
    *("", "..", "../canary.png", "/etc/passwd", "-rf", "$\\frac{1}{", "a\nb", "\x1b[31mred\x1b[0m"),
    *("\x00", "x" * 300, "y" * 5000, "a" + "/b" * 200, *SPECIAL),
)
VALUES: tuple[Any, ...] = (
    *NAMES,
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**63,
    10**30,
    1e308,
    -1e-308,
    0.5,
    float("nan"),
    float("inf"),
    [],
    {},
    [[]],
    [None],
    {"": None},
    [[[[[[]]]]]],
    {"a": {"a": {"a": {}}}},
    list(range(2000)),
)


# -- what is not a file --------------------------------------------------------------------------
def fifo(path: Path, good: bytes, rng: random.Random) -> None:
    os.mkfifo(path)


def unix_socket(path: Path, good: bytes, rng: random.Random) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the address of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as each:
            each.bind(path.name)
    finally:
        os.chdir(here)


def device_zero(path: Path, good: bytes, rng: random.Random) -> None:
    path.symlink_to("/dev/zero")


def device_null(path: Path, good: bytes, rng: random.Random) -> None:
    path.symlink_to("/dev/null")


def terminal(path: Path, good: bytes, rng: random.Random) -> None:
    path.symlink_to("/dev/tty")


def folder(path: Path, good: bytes, rng: random.Random) -> None:
    path.mkdir()


def loop(path: Path, good: bytes, rng: random.Random) -> None:
    path.symlink_to(path.name)


def dangling(path: Path, good: bytes, rng: random.Random) -> None:
    path.symlink_to("x" * rng.choice([3, 200]))


def below_a_file(path: Path, good: bytes, rng: random.Random) -> None:
    """The path leads through a file."""
    (path.parent / "file").write_bytes(b"")
    path.symlink_to("file/inside")


def absent(path: Path, good: bytes, rng: random.Random) -> None:
    pass


def huge(path: Path, good: bytes, rng: random.Random) -> None:
    with path.open("wb") as file:
        file.write(good[: rng.randint(0, len(good))])
        file.truncate(BEYOND)


def nothing(path: Path, good: bytes, rng: random.Random) -> None:
    """The good file as it is."""
    path.write_bytes(good)


# -- bytes ---------------------------------------------------------------------------------------
def empty(path: Path, good: bytes, rng: random.Random) -> None:
    path.write_bytes(b"")


def blanks(path: Path, good: bytes, rng: random.Random) -> None:
    path.write_bytes(
        rng.choice([b"\n", b" \n\t\r\n", b"\xef\xbb\xbf", b"\0", b"#\n"]) * rng.randint(1, 9)
    )


def noise(path: Path, good: bytes, rng: random.Random) -> None:
    path.write_bytes(rng.randbytes(rng.choice([1, 10, 200, 5000])))


def cut(path: Path, good: bytes, rng: random.Random) -> None:
    path.write_bytes(good[: rng.randrange(max(1, len(good)))])


def flipped(path: Path, good: bytes, rng: random.Random) -> None:
    content = bytearray(good)
    for _ in range(rng.choice([1, 3, 20])):
        if content:
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def early_flips(path: Path, good: bytes, rng: random.Random) -> None:
    """In the header, where sizes are."""
    content = bytearray(good)
    for _ in range(rng.choice([1, 2, 5])):
        if content:
            content[rng.randrange(min(len(content), 200))] = rng.choice([0, 1, 127, 128, 255])
    path.write_bytes(content)


def spliced(path: Path, good: bytes, rng: random.Random) -> None:
    """A piece is taken out, repeated, or moved."""
    start, end = sorted(rng.randrange(len(good) + 1) for _ in range(2))
    piece = good[start:end]
    path.write_bytes(
        rng.choice(
            [
                good[:start] + good[end:],
                good[:end] + piece * rng.randint(1, 5) + good[end:],
                piece + good,
                good[:start] + rng.randbytes(rng.randint(1, 40)) + good[end:],
            ]
        )
    )


def utf16(path: Path, good: bytes, rng: random.Random) -> None:
    path.write_bytes(good.decode("latin-1").encode(rng.choice(["utf-16", "utf-16-le", "utf-32"])))


def other_format(path: Path, good: bytes, rng: random.Random) -> None:
    """The bytes of another kind of file under this name."""
    path.write_bytes(
        rng.choice(
            [
                b"\x89PNG\r\n\x1a\n" + bytes(40),
                b"\xff\xd8\xff\xe0" + bytes(40),
                b"II*\0" + bytes(40),
                bytes(128) + b"DICM" + bytes(40),
                b"P5 99999 99999 65535\n",
                b"image,label,split\n",
                b'{"a": 1}',
                b"[data]\n",
                b"%PDF-1.7\n",
                b"\x7fELF" + bytes(60),
                b"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b 'bb'>]><a>&b;</a>",
                b"PK\x03\x04" + bytes(40),
                b"\x80\x04\x95\x1c\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
                b"<html><script>alert(1)</script></html>",
                b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
            ]
        )
    )


# -- structure -----------------------------------------------------------------------------------
def nested(path: Path, good: bytes, rng: random.Random) -> None:
    depth = rng.choice([500, 5000, 100_000])
    text = rng.choice(
        ["[" * depth, "[" * depth + "]" * depth, '{"a":' * depth, "a = " + "[" * depth]
    )
    path.write_text(text + "\n")


def changed_tree(tree: Any, rng: random.Random, values: tuple[Any, ...] = VALUES) -> Any:
    """A tree with one to three of its nodes replaced, removed or added.

    Values are copied: one that stood in the tree itself could be changed next, or hold its own holder.
    """

    def value() -> Any:
        return copy.deepcopy(rng.choice(values))

    tree = copy.deepcopy(tree)
    for _ in range(rng.choice([1, 1, 2, 3])):
        places = list(_places(tree))
        if not places:
            return value()
        holder, key = rng.choice(places)
        act = rng.random()
        if act < 0.7:
            holder[key] = value()
        elif act < 0.85:
            del holder[key]
        elif isinstance(holder, dict):
            holder[str(rng.choice(NAMES))] = value()
        else:
            holder.append(value())
    return tree


def _places(tree: Any) -> Any:
    if isinstance(tree, dict):
        for key in list(tree):
            yield tree, key
            yield from _places(tree[key])
    elif isinstance(tree, list):
        for number in range(min(len(tree), 50)):
            yield tree, number
            yield from _places(tree[number])


def other_json(path: Path, good: bytes, rng: random.Random) -> None:
    path.write_text(json.dumps(changed_tree(json.loads(good), rng)))


def bare_json(path: Path, good: bytes, rng: random.Random) -> None:
    path.write_text(json.dumps(rng.choice(VALUES)))


def long_number(path: Path, good: bytes, rng: random.Random) -> None:
    path.write_text(rng.choice(['{"a": %s}', "[%s]", "a = %s", "%s"]) % ("9" * 10_000))


def other_lines(path: Path, good: bytes, rng: random.Random) -> None:
    """JSON lines, one of them with another content."""
    lines = good.decode().splitlines()
    place = rng.randrange(len(lines)) if lines else 0
    new = rng.choice(
        [json.dumps(changed_tree(json.loads(lines[place]) if lines else {}, rng)),
         json.dumps(rng.choice(VALUES)),
         "[" * 100_000, "", "{", '"a"', "null"]
    )  # fmt: skip
    lines[place : place + rng.randint(0, 1)] = [new]
    path.write_text("\n".join(lines) + "\n")


def other_toml(path: Path, good: bytes, rng: random.Random) -> None:
    tree = changed_tree(
        tomllib.loads(good.decode()), rng, tuple(v for v in VALUES if v is not None)
    )
    try:
        text = tomli_w.dumps(tree if isinstance(tree, dict) else {"a": tree})
    except (TypeError, ValueError):  # None in a list
        text = "a = [1,\n"
    path.write_text(text, errors="replace")


def bad_toml(path: Path, good: bytes, rng: random.Random) -> None:
    lines = good.decode().splitlines()
    bad = [
        "[",
        "a = ",
        "= 1",
        "[[a]]\n[a]",
        "a.b.c = 1\na = 2",
        "x = 1979-05-27",
        "data = 3",
        '"" = 1',
        "a = 0x",
    ]
    lines.insert(rng.randrange(len(lines) + 1), rng.choice(bad))
    path.write_text("\n".join(lines))


def other_table(path: Path, good: bytes, rng: random.Random) -> None:
    """CSV with some cells, columns or rows changed."""
    rows = list(csv.reader(io.StringIO(good.decode())))
    for _ in range(rng.choice([1, 1, 2, 4])):
        row = rng.choice(rows)
        act = rng.random()
        if act < 0.7 and row:
            value = rng.choice(VALUES)
            row[rng.randrange(len(row))] = value if isinstance(value, str) else str(value)[:500]
        elif act < 0.8 and row:
            del row[rng.randrange(len(row))]
        elif act < 0.9:
            row.append(rng.choice(NAMES))
        else:
            rows.append(list(row))
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    path.write_text(text.getvalue(), errors="replace")


def bad_table(path: Path, good: bytes, rng: random.Random) -> None:
    text = good.decode()
    place = rng.randrange(len(text) + 1)
    bad = [
        '"',
        "\0",
        "\n\n\n",
        ",,,",
        "\r",
        '"""',
        ";" * 50,
        "x" * 200_000,
        "," * 20_000,
        "\ufeff",
        "\u2028",
    ]
    path.write_text(text[:place] + rng.choice(bad) + text[place:])


def many_rows(path: Path, good: bytes, rng: random.Random) -> None:
    header, *rows = good.decode().splitlines()
    count = 3000 if path.suffix == ".csv" else 75_000  # each row of a table is an image to be read
    path.write_text("\n".join([header, *(rows * count)[:count]]) + "\n")


def other_words(path: Path, good: bytes, rng: random.Random) -> None:
    """A text in which some words are others."""
    words = good.decode("latin-1").split(" ")
    for _ in range(rng.choice([1, 3])):
        words[rng.randrange(len(words))] = str(rng.choice(VALUES))[:3000]
    path.write_text(" ".join(words), encoding="utf-8", errors="replace")


def other_numbers(path: Path, good: bytes, rng: random.Random) -> None:
    """A text in which every tenth number is another."""
    import re

    text = good.decode("latin-1")
    bad = ["-1", "0", "1e999", "nan", "9" * 400, "", "(" + " " * 5000, "a", "1,1", "99999999999"]
    path.write_text(
        re.sub(r"\d+", lambda found: rng.choice(bad) if rng.random() < 0.1 else found[0], text)
    )


def bad_book(path: Path, good: bytes, rng: random.Random) -> None:
    """A spreadsheet with a part changed: other XML, entities, a bomb, a path that leads out."""
    with zipfile.ZipFile(io.BytesIO(good)) as book:
        parts = {name: book.read(name) for name in book.namelist()}
    name = rng.choice(list(parts))
    act = rng.randrange(5)
    if act == 0:
        parts[name] = (
            b"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><a>&b;</a>"
        )
    elif act == 1:
        parts[name] = b"<worksheet>" + b"<row><c/></row>" * 100_000 + b"</worksheet>"
    elif act == 2:
        parts["../canary.png"] = b"overwritten"
    elif act == 3:
        del parts[name]
    else:
        body = bytearray(parts[name])
        body[rng.randrange(len(body))] = rng.randrange(256)
        parts[name] = bytes(body)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as book:
        for each, content in parts.items():
            book.writestr(each, content)


def other_model(path: Path, good: bytes, rng: random.Random) -> None:
    """A packed model with another file or name in it, and the digests that it then should have."""
    import hashlib

    with zipfile.ZipFile(io.BytesIO(good)) as packed:
        parts = {name: packed.read(name) for name in packed.namelist()}
    told = json.loads(parts.pop("model.json"))
    name = rng.choice(
        ["prototypes.json", "data.json", "config.toml", "format", "MODEL_CARD.md", *parts]
    )
    body = parts.get(name, b"")
    act = rng.random()
    if act < 0.4 and name.endswith(".json"):
        parts[name] = json.dumps(changed_tree(json.loads(body), rng)).encode(errors="replace")
    elif act < 0.4 and name.endswith(".toml"):
        other_toml(path, body, rng)
        parts[name] = path.read_bytes()
    elif act < 0.6 and name.endswith(".safetensors"):
        weights_header(path, body, rng)
        parts[name] = path.read_bytes()
    elif act < 0.75:
        parts[str(rng.choice(NAMES)) or "x"] = parts.pop(name, b"")
    elif act < 0.9:
        content = bytearray(body or b"x")
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        parts[name] = bytes(content)
    else:
        told = changed_tree(told, rng)
    if isinstance(told, dict) and act < 0.9:
        told["files"] = {
            each: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for each, content in parts.items()
        }
    path.unlink(missing_ok=True)
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("model.json", json.dumps(told))
        for each, content in parts.items():
            with suppress(ValueError, UnicodeError):
                packed.writestr(each, content)


def other_database(path: Path, good: bytes, rng: random.Random) -> None:
    """A database with one value changed, one table gone, or another table in it."""
    import sqlite3

    path.write_bytes(good)
    connection = sqlite3.connect(path)
    tables = [
        ("study", "plan"), ("study", "format"), ("readers", "name"), ("answers", "margin"),
        ("answers", "confidence"), ("answers", "seconds"), ("answers", "place"), ("answers", "stage"),
        ("suggestions", "probabilities"), ("suggestions", "margin"), ("answers", "at"),
    ]  # fmt: skip
    table, column = rng.choice(tables)
    value = rng.choice([v for v in VALUES if isinstance(v, str | int | float | None)] + [b"\xff\0"])
    with suppress(sqlite3.Error, OverflowError, UnicodeError):
        if rng.random() < 0.8:
            connection.execute(f"UPDATE {table} SET {column} = ?", (value,))
        else:
            connection.execute(f"DROP TABLE {table}")
    connection.commit()
    connection.close()


# -- pictures and weights ------------------------------------------------------------------------
def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png_bomb(path: Path, good: bytes, rng: random.Random) -> None:
    """A header of a vast image before few bytes."""
    width, height = rng.choice(
        [(60_000, 60_000), (2**31 - 1, 1), (1, 2**31 - 1), (13_000, 13_000), (0, 5)]
    )
    header = struct.pack(
        ">IIBBBBB", width, height, rng.choice([8, 16]), rng.choice([0, 2, 6]), 0, 0, 0
    )
    body = (
        _chunk(b"IHDR", header)
        + _chunk(b"IDAT", zlib.compress(bytes(100_000)))
        + _chunk(b"IEND", b"")
    )
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)


def png_chunks(path: Path, good: bytes, rng: random.Random) -> None:
    """Text that unpacks to a lot, colour profiles, animation, before the image's own data."""
    bad = rng.choice(
        [
            _chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(50_000_000))),
            _chunk(b"iCCP", b"a\0\0" + zlib.compress(rng.randbytes(500))),
            _chunk(b"acTL", struct.pack(">II", 2**30, 0)),
            _chunk(b"PLTE", bytes(2)),
            _chunk(b"tRNS", bytes(900)),
            _chunk(b"eXIf", rng.randbytes(300)),
            _chunk(b"tEXt", b"a\0" + b"\x1b[31m" * 900),
        ]
    )
    path.write_bytes(good[:33] + bad + good[33:])


def pnm_header(path: Path, good: bytes, rng: random.Random) -> None:
    numbers = [str(rng.choice([0, -1, 1, 64, 65536, 10**9, 10**30, "x", "#"])) for _ in range(3)]
    path.write_bytes(
        rng.choice([b"P2", b"P5", b"P6", b"P7"]) + f"\n{' '.join(numbers)}\n".encode() + bytes(99)
    )


def dicom_elements(path: Path, good: bytes, rng: random.Random) -> None:
    """A film with some elements of its header changed."""
    import warnings

    from pydicom import dcmread
    from pydicom.datadict import tag_for_keyword
    from pydicom.dataelem import DataElement

    if not good:  # a place that has no film before
        save_dicom_noise(path, (64, 64))
        good = path.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        film = dcmread(io.BytesIO(good), force=True)  # the films of this world have no preamble
        numbers = {
            "Rows": "US", "Columns": "US", "BitsAllocated": "US", "BitsStored": "US", "HighBit": "US",
            "PixelRepresentation": "US", "SamplesPerPixel": "US",
        }  # fmt: skip
        words = {
            "WindowCenter": "DS", "WindowWidth": "DS", "RescaleSlope": "DS", "RescaleIntercept": "DS",
            "NumberOfFrames": "IS", "PixelSpacing": "DS", "ImagerPixelSpacing": "DS",
            "PhotometricInterpretation": "CS", "ImageLaterality": "CS", "VOILUTFunction": "CS",
        }  # fmt: skip
        for _ in range(rng.choice([1, 2, 4])):
            if rng.random() < 0.5:
                name = rng.choice(list(numbers))
                setattr(film, name, rng.choice([0, 1, 7, 8, 12, 16, 32, 255, 65535]))
            else:
                name = rng.choice(list(words))
                text = rng.choice(
                    ["", "0", "-1", "1e99", "nan", "x" * 50, "1\\2\\3", "RGB", "<b>", "\x1b[31m"]
                )
                tag = tag_for_keyword(name)
                with suppress(ValueError):  # where pydicom will not take that text
                    film[tag] = DataElement(tag, "UN", text.encode())
        out = io.BytesIO()
        try:
            film.save_as(out)
        except ValueError:  # pydicom will not write that text; a film that is cut off will do
            out = io.BytesIO(good[: rng.randrange(len(good))])
    path.write_bytes(out.getvalue())


def weights_header(path: Path, good: bytes, rng: random.Random) -> None:
    """safetensors whose header lies: sizes, offsets, types, depth."""
    length = struct.unpack("<Q", good[:8])[0]
    header = json.loads(good[8 : 8 + length])
    act = rng.randrange(4)
    if act == 0:
        text = json.dumps(changed_tree(header, rng)).encode()
    elif act == 1:
        text = b'{"a":' * 50_000
    elif act == 2:
        text = json.dumps(
            {"x" * 3000: {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 8]}}
        ).encode()
    else:
        path.write_bytes(struct.pack("<Q", rng.choice([0, 2**20, 2**40, 2**63])) + good[8:])
        return
    path.write_bytes(struct.pack("<Q", len(text)) + text + good[8 + length :])


def pickled_call(path: Path, good: bytes, rng: random.Random) -> None:
    """A pickle that would create the canary's twin if it ran."""
    import pickle

    class Call:
        def __reduce__(self) -> Any:
            return os.mkdir, ("pickle-ran",)

    body = pickle.dumps({"state_dict": Call()}, protocol=rng.choice([2, 4]))
    if rng.random() < 0.5:
        path.write_bytes(body)
        return
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", body)
        archive.writestr("archive/version", b"3\n")


ANY: dict[str, Kind] = {
    "fifo": fifo, "socket": unix_socket, "/dev/zero": device_zero, "/dev/null": device_null,
    "/dev/tty": terminal, "folder": folder, "loop of links": loop, "dangling link": dangling,
    "below a file": below_a_file, "absent": absent, "huge": huge, "empty": empty, "blanks": blanks,
    "noise": noise, "cut": cut, "flipped bits": flipped, "early flips": early_flips, "spliced": spliced,
    "UTF-16": utf16, "other format": other_format,
}  # fmt: skip
JSON_KINDS: dict[str, Kind] = {
    "other JSON": other_json, "bare JSON": bare_json, "nested": nested, "long number": long_number,
}  # fmt: skip
SHAPES: dict[str, dict[str, Kind]] = {
    "png": {"PNG bomb": png_bomb, "PNG chunks": png_chunks},
    "jpg": {},
    "tif": {},
    "pgm": {"PNM header": pnm_header},
    "dcm": {"DICOM elements": dicom_elements},
    "csv": {"other table": other_table, "bad CSV": bad_table, "many rows": many_rows},
    "json": JSON_KINDS,
    "jsonl": {"other lines": other_lines, "nested": nested},
    "toml": {"other TOML": other_toml, "bad TOML": bad_toml, "nested": nested, "long number": long_number},
    "txt": {"other words": other_words, "other numbers": other_numbers, "many rows": many_rows},
    "xml": {"other words": other_words, "other numbers": other_numbers, "nested": nested},
    "xlsx": {"bad workbook": bad_book},
    "zip": {"bad archive": bad_book, "other model": other_model},
    "sqlite": {"other database": other_database},
    "safetensors": {"weights header": weights_header, "pickled call": pickled_call},
    "pth": {"pickled call": pickled_call},
}  # fmt: skip


def kinds_of(shape: str) -> dict[str, Kind]:
    """The kinds that a file of a shape may be replaced by."""
    return {**ANY, **SHAPES[shape]}
