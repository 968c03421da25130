"""`data join`: the manifests of several datasets as one table with a column `source`.

Images stay where they are: the new table names them relative to its own folder. Patient ids get the source
in front, so that those of two datasets never coincide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from protopyramid.config.schema import MARGIN_CLASSES
from protopyramid.data.manifest import (
    SOURCE,
    SOURCE_COLUMNS,
    Manifest,
    Sample,
    manifest_text,
    read_manifest,
    relative_path,
)
from protopyramid.errors import UserError
from protopyramid.utils.files import write_text
from protopyramid.utils.opening import real_path
from protopyramid.utils.tables import markdown_table

MORE_MARGINS = ("microlobulated", "obscured")
CLASSES: dict[str, tuple[str, ...]] = {
    "three": MARGIN_CLASSES,
    "five": (*MARGIN_CLASSES[:-1], *MORE_MARGINS, MARGIN_CLASSES[-1]),
}
# Columns beside image and mask that name files: films of crops, and bands around outlines.
FILE_COLUMNS = (SOURCE_COLUMNS[0], "film", "band")
SEPARATOR = ":"  # between a source and the patient's id


@dataclass(frozen=True)
class Joined:
    """A joined manifest, and how many rows of each source and label were left out."""

    manifest: Manifest
    left_out: Mapping[tuple[str, str], int]


def parse_sources(given: Sequence[str]) -> dict[str, Path]:
    """Manifests by the name of their source, from NAME=MANIFEST.

    >>> parse_sources(["film=a.csv", "digital=b/c.csv"])["film"].name
    'a.csv'
    """
    found: dict[str, Path] = {}
    for text in given:
        name, equals, path = (part.strip() for part in text.partition("="))
        if not (name and equals and path):
            raise UserError(f"{text!r}: give NAME=MANIFEST, as in film=cbis/manifest.csv")
        if name in found:
            raise UserError(f"{text!r}: the source {name!r} is given twice; use another name")
        found[name] = Path(path)
    return found


def parse_labels(given: Sequence[str]) -> dict[str, str]:
    """New names of labels, from OLD=NEW."""
    renamed: dict[str, str] = {}
    for text in given:
        old, equals, new = (part.strip() for part in text.partition("="))
        if not (old and equals and new):
            raise UserError(f"--rename {text!r}: give OLD=NEW, as in ill-defined=indistinct")
        renamed[old] = new
    return renamed


def join_manifests(
    sources: Mapping[str, Path],
    out: Path,
    classes: Sequence[str],
    renamed: Mapping[str, str] | None = None,
) -> Joined:
    """Write one manifest of several; rows whose label is not among `classes` are left out.

    Labels are renamed first. Patients are those of the manifests with the source in front.
    """
    for name in (*sources, *(renamed or {}).values()):
        if not name.isprintable():
            raise UserError(f"{name!r}: a source or label has no control characters; rename it")
    samples: list[Sample] = []
    columns: list[str] = []
    left_out: Counter[tuple[str, str]] = Counter()
    for source, path in sources.items():
        manifest = read_manifest(path)
        columns += manifest.columns
        for sample in manifest.samples:
            label = (renamed or {}).get(sample.label, sample.label)
            if label in classes:
                samples.append(_of_source(sample, source, label, path.parent, out.parent))
            else:
                left_out[source, label] += 1
    joined = Manifest(out, tuple(samples), tuple(dict.fromkeys([*columns, SOURCE])))
    _check(joined, classes)
    write_text(out, manifest_text(joined, out.parent))
    return Joined(read_manifest(out), left_out)


def _of_source(sample: Sample, source: str, label: str, folder: Path, target: Path) -> Sample:
    """A sample as it is in a joined manifest in the folder `target`."""
    extra = {**sample.extra, SOURCE: source}
    for column in FILE_COLUMNS:
        if extra.get(column, "").strip():
            extra[column] = relative_path(folder / extra[column].strip(), target)
    patient = f"{source}{SEPARATOR}{sample.patient_id}" if sample.patient_id else ""
    return replace(sample, label=label, patient_id=patient, extra=extra)


def _check(joined: Manifest, classes: Sequence[str]) -> None:
    """Refuse a table without rows, and files that two manifests name."""
    if not joined.samples:
        raise UserError(
            f"no row has a label among {', '.join(classes)}; give the labels with --classes"
        )
    owners: dict[Path, str] = {}
    for sample in joined.samples:
        owner = owners.setdefault(real_path(sample.image), sample.source)
        if owner != sample.source:
            raise UserError(
                f"{sample.image}: is in the manifests of {owner!r} and of {sample.source!r}; "
                "leave it out of one of them"
            )


def render(joined: Joined) -> str:
    """How many images (patients) of each class every source has, and what was left out."""
    samples = joined.manifest.samples
    sources = list(dict.fromkeys(sample.source for sample in samples))
    rows = [
        [label, *(_count(samples, label, source) for source in sources)]
        for label in joined.manifest.labels()
    ]
    lines = [markdown_table(["images (patients)", *sources], rows)]
    lines += [
        f"left out: {count} of {label!r} in {source}"
        for (source, label), count in sorted(joined.left_out.items())
    ]
    return "\n".join(lines)


def _count(samples: Sequence[Sample], label: str, source: str) -> str:
    found = [each for each in samples if each.label == label and each.source == source]
    return f"{len(found)} ({len({each.patient for each in found})})" if found else "–"
