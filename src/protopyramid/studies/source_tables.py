"""The tables of a study by source: which training helps on which dataset, and where its models look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protopyramid.data.manifest import Manifest, Sample
from protopyramid.evaluation.comparison import EvaluatedRun
from protopyramid.metrics.auroc import class_aurocs, mean_of_known
from protopyramid.metrics.bootstrap import RESAMPLES, Array, resample_weights
from protopyramid.metrics.column_control import shares_by_value
from protopyramid.metrics.confusion import row_normalised
from protopyramid.metrics.localisation import PairMeanWithChance
from protopyramid.metrics.paired_test import (
    Difference,
    Estimate,
    Pair,
    Scored,
    mean_aurocs,
    paired_differences,
)
from protopyramid.studies.by_source import OnSource
from protopyramid.studies.plan import Variant
from protopyramid.utils.tables import Cell, csv_text, markdown_table, number

MEAN = "mean"
Labels = NDArray[np.int64]
Found = Mapping[str, Mapping[str, Sequence[OnSource]]]  # variant, source, one per replicate

LEGEND = (
    "AUROC: one margin against the others, on the rows that are not negative; macro: mean of the "
    "margins. Means over folds, with 95 % intervals by bootstrap over patients; differences are paired. "
    "A source that a run was trained on is tested on held-out patients, any other on all of its rows. "
    "Margin precision: share of the strongest 5 % of a map that lies in the band around the lesion's "
    "outline, for lesions with an outline; lesion precision: the same in the lesion box; in brackets "
    "how many times chance, the share of the image that the band or the box covers. Grad-CAM is that of "
    "the run without prototypes."
)


@dataclass(frozen=True)
class Tables:
    """The result of a study by source: its variants with a row, the sources, and all measurements."""

    variants: Sequence[Variant]
    sources: Sequence[str]
    found: Found

    # -- who is who ------------------------------------------------------------------------------
    def groups(self) -> dict[tuple[str, ...], list[Variant]]:
        """The variants by the sources that they were trained on; () is all."""
        groups: dict[tuple[str, ...], list[Variant]] = {}
        for variant in self.variants:
            groups.setdefault(tuple(variant.sources), []).append(variant)
        return groups

    def on(self, variant: Variant, source: str) -> Sequence[OnSource]:
        """The measurements of a variant on a source, one per replicate."""
        return self.found[variant.name][source]

    def margins(self, variant: Variant) -> list[str]:
        """The classes of a variant but the negative one."""
        evaluation = self.on(variant, self.sources[0])[0].evaluation
        return [name for name in evaluation.classes if name != evaluation.negative_class]

    def every_margin(self) -> list[str]:
        """The margins of all variants, each once."""
        return list(dict.fromkeys(name for each in self.variants for name in self.margins(each)))

    def negative_class(self) -> str:
        """The negative class of the variants that have one, else ""."""
        names = (
            self.on(each, self.sources[0])[0].evaluation.negative_class for each in self.variants
        )
        return next(filter(None, names), "")

    # -- AUROC -----------------------------------------------------------------------------------
    def aurocs(self, variant: Variant, source: str) -> dict[str, Estimate]:
        """AUROC of each margin and their mean, over the replicates."""
        runs, margins = [each.rows for each in self.on(variant, source)], self.margins(variant)
        chosen = [margin_rows(run, margins) for run in runs]
        weights = resample_together(
            [[run.patients[row] for row in rows] for run, rows in zip(runs, chosen, strict=True)]
        )
        scored = [
            Scored(*_scores(run, rows, margins), drawn)
            for run, rows, drawn in zip(runs, chosen, weights, strict=True)
        ]
        return mean_aurocs(scored, margins, "")

    def differences(self, first: Variant, second: Variant, source: str) -> dict[str, Difference]:
        """AUROC of the second variant minus that of the first, on the rows that both have tested."""
        theirs = self.margins(second)
        margins = [name for name in self.margins(first) if name in theirs]
        pairs, patients = [], []
        for one, other in zip(self.on(first, source), self.on(second, source), strict=True):
            mine, others = common_rows(one.rows, other.rows, margins)
            pairs.append((_scores(one.rows, mine, margins), _scores(other.rows, others, margins)))
            patients.append([one.rows.patients[row] for row in mine])
        drawn = resample_together(patients)
        return paired_differences(
            [
                Pair(ours[0], theirs[0], ours[1], weights)
                for (ours, theirs), weights in zip(pairs, drawn, strict=True)
            ],
            margins,
            "",
        )

    # -- sections --------------------------------------------------------------------------------
    def markdown(self) -> str:
        """All tables."""
        sections = {
            "Macro AUROC, by the source that is tested": self._macro(),
            "AUROC by margin": self._by_margin(),
            "AUROC minus that of the first system with the same training data": self._systems(),
            "AUROC of training on all sources minus that of training on one": self._all_or_one(),
            "Lesion precision": self._precision_by_class("lesion"),
            "Margin precision": self._precision_by_class("fine"),
            "Margin precision by level": self._precision_by_level(),
            "Confusion matrices": self._confusion(),
        }
        return "\n".join(f"## {name}\n\n{text}\n" for name, text in sections.items() if text)

    def csv(self) -> str:
        """AUROC and precision of every variant on every source."""
        rows: list[list[Cell]] = []
        for variant, source in self._pairs():
            place: list[Cell] = [variant.name, trained_on(variant), source]
            for name, each in self.aurocs(variant, source).items():
                low, high = each.ci95 or (None, None)
                rows.append([*place, f"AUROC {name}", each.value, low, high])
            precisions = self._precisions(variant, source)
            rows += [[*place, name, value, None, None] for name, value in precisions.items()]
        return csv_text(
            ["variant", "trained on", "tested on", "figure", "value", "low", "high"], rows
        )

    def _pairs(self) -> list[tuple[Variant, str]]:
        return [
            (variant, source)
            for group in self.groups().values()
            for source in self.sources
            for variant in group
        ]

    def _macro(self) -> str:
        rows = [
            [
                trained_on(variant),
                variant.name,
                *(_estimate(self.aurocs(variant, source)[MEAN]) for source in self.sources),
            ]
            for group in self.groups().values()
            for variant in group
        ]
        return markdown_table(["trained on", "", *self.sources], rows)

    def _by_margin(self) -> str:
        rows = []
        for variant, source in self._pairs():
            found = self.aurocs(variant, source)
            cells = [_estimate(found.get(name)) for name in self.every_margin()]
            rows.append([trained_on(variant), source, variant.name, *cells])
        return markdown_table(["trained on", "tested on", "", *self.every_margin()], rows)

    def _systems(self) -> str:
        rows = []
        for group in self.groups().values():
            for source in self.sources:
                for variant in group[1:]:
                    found = self.differences(group[0], variant, source)
                    name = f"{variant.name} – {group[0].name}"
                    rows.append([trained_on(variant), source, name, *self._different(found)])
        return self._difference_table(rows)

    def _all_or_one(self) -> str:
        everything = {self._system(each): each for each in self.groups().get((), [])}
        rows = []
        for source in self.sources:
            for variant in self.variants:
                other = everything.get(self._system(variant))
                if variant.sources and other is not None:
                    found = self.differences(variant, other, source)
                    name = f"{other.name} – {variant.name}"
                    rows.append([trained_on(variant), source, name, *self._different(found)])
        return self._difference_table(rows)

    def _different(self, found: Mapping[str, Difference]) -> list[str]:
        chosen = [found.get(name) for name in (MEAN, *self.every_margin())]
        return ["–" if each is None else number(each.difference, each.ci95) for each in chosen]

    def _difference_table(self, rows: Sequence[Sequence[str]]) -> str:
        header = ["trained on", "tested on", "", "macro", *self.every_margin()]
        return markdown_table(header, rows) if rows else ""

    def _system(self, variant: Variant) -> str:
        return self.on(variant, self.sources[0])[0].evaluation.system

    # -- where models look -----------------------------------------------------------------------
    def _precisions(self, variant: Variant, source: str) -> dict[str, float | None]:
        """Precision and chance, means over replicates, by the name of the figure."""
        figures: dict[str, float | None] = {}
        for scale in ("fine", "lesion"):
            for method, each in self._maps(variant, source, scale).items():
                name = f"{scale} precision" + (f" of {method}" if method else "")
                figures[name] = _mean([one.mean for one in each])
                figures[f"{scale} chance"] = _mean([one.chance for one in each])
                for label in self.every_margin():
                    of_class = [one.per_class.get(label) for one in each]
                    figures[f"{name}, {label}"] = _mean(of_class)
        return figures

    def _maps(
        self, variant: Variant, source: str, scale: str
    ) -> dict[str, list[PairMeanWithChance]]:
        """What has maps, with its precision in every replicate: "" for prototypes, or saliency methods."""
        found = self.on(variant, source)
        if found[0].evaluation.health is not None:
            own = [getattr(each.evaluation.activation_precision, scale) for each in found]
            return {"": own}
        return {
            method: [getattr(each.saliency[method], scale) for each in found]
            for method in found[0].saliency
        }

    def _precision_by_class(self, scale: str) -> str:
        rows = []
        for variant, source in self._pairs():
            for method, found in self._maps(variant, source, scale).items():
                if all(each.mean is None for each in found):
                    continue
                chance = _mean([each.chance for each in found])
                cells = [times_chance(_mean([each.mean for each in found]), chance)]
                for label in self.every_margin():
                    value = _mean([each.per_class.get(label) for each in found])
                    level = _mean([each.chance_per_class.get(label) for each in found])
                    cells.append(times_chance(value, level))
                name = ", ".join(filter(None, (variant.name, method)))
                rows.append([trained_on(variant), source, name, *cells, number(chance)])
        header = ["trained on", "tested on", "", "all", *self.every_margin(), "chance"]
        return markdown_table(header, rows) if rows else ""

    def _precision_by_level(self) -> str:
        rows, levels = [], list[str]()
        for variant, source in self._pairs():
            found = self._maps(variant, source, "fine").get("", [])
            if not found or all(each.mean is None for each in found):
                continue
            levels += [name for name in found[0].per_level if name not in levels]
            for label in self.every_margin():
                chance = _mean([each.chance_per_class.get(label) for each in found])
                cells = {
                    level: times_chance(
                        _mean([each.per_class_and_level[label].get(level) for each in found]),
                        chance,
                    )
                    for level in levels
                    if label in found[0].per_class_and_level
                }
                rows.append(
                    ([trained_on(variant), source, variant.name, label, number(chance)], cells)
                )
        levels.sort()
        header = ["trained on", "tested on", "", "margin", "chance"]
        header += [f"level {level}" for level in levels]
        table = [[*row, *(cells.get(level, "–") for level in levels)] for row, cells in rows]
        return markdown_table(header, table) if table else ""

    def _confusion(self) -> str:
        classes = list(
            dict.fromkeys(
                name
                for each in self.variants
                for name in self.on(each, self.sources[0])[0].evaluation.classes
            )
        )
        rows = []
        for variant, source in self._pairs():
            evaluations = [each.evaluation for each in self.on(variant, source)]
            own = evaluations[0].classes
            counts = np.sum([each.confusion_matrix for each in evaluations], axis=0)
            for label, count, shares in zip(own, counts, row_normalised(counts), strict=True):
                if count.sum():
                    named = dict(zip(own, shares, strict=True))
                    cells = [number(named.get(name)) for name in classes]
                    place = [trained_on(variant), source, variant.name, label, str(count.sum())]
                    rows.append([*place, *cells])
        header = ["trained on", "tested on", "", "true class", "n", *classes]
        return markdown_table(header, rows)


# -- rows ----------------------------------------------------------------------------------------
def margin_rows(run: EvaluatedRun, margins: Sequence[str]) -> list[int]:
    """The numbers of a run's rows whose label is one of these classes."""
    return [row for row, label in enumerate(run.labels) if label in margins]


def common_rows(
    first: EvaluatedRun, second: EvaluatedRun, margins: Sequence[str]
) -> tuple[list[int], list[int]]:
    """The rows of these classes that two runs have both tested: their numbers in each, in one order."""
    ours, theirs = _named_rows(first, margins), _named_rows(second, margins)
    names = [name for name in ours if name in theirs]
    return [ours[name] for name in names], [theirs[name] for name in names]


def _named_rows(run: EvaluatedRun, margins: Sequence[str]) -> dict[tuple[str, str, int], int]:
    """Row numbers by what the rows show; the same image in two rows is counted."""
    named: dict[tuple[str, str, int], int] = {}
    for row in margin_rows(run, margins):
        again = 0
        while (name := (run.hashes[row], run.labels[row], again)) in named:
            again += 1
        named[name] = row
    return named


def _scores(run: EvaluatedRun, rows: Sequence[int], margins: Sequence[str]) -> tuple[Array, Labels]:
    """The probabilities of these classes (N, M) and the labels (N,) as their numbers."""
    columns = [run.evaluation.classes.index(name) for name in margins]
    labels = np.array([margins.index(run.labels[row]) for row in rows], dtype=np.int64)
    return run.probabilities[np.ix_(rows, columns)], labels


def resample_together(patients: Sequence[Sequence[str]]) -> list[Array]:
    """How often each row of several test splits is drawn, (R, N) each, when patients are drawn.

    All patients are drawn at once, so one who is in several splits is drawn as often in each.
    """
    names = sorted({name for split in patients for name in split})
    drawn = resample_weights(names, RESAMPLES, 0)
    place = {name: column for column, name in enumerate(names)}
    return [drawn[:, [place[name] for name in split]] for split in patients]


# -- the data ------------------------------------------------------------------------------------
def render_control(
    manifests: Sequence[Manifest], columns: Sequence[str], classes: Sequence[str], negative: str
) -> str:
    """How well columns of the manifest alone tell the class: macro AUROC, and that of each class.

    One manifest per replicate: train rows give the shares of the classes, test rows are asked.
    """
    classes = [name for name in classes if name]
    margins = [name for name in classes if name != negative]
    rows = []
    for column in columns:
        each = [control_aurocs(manifest, column, classes, negative) for manifest in manifests]
        known = [found for found in each if found is not None]
        if known:
            names = [MEAN, *margins, *([negative] if negative else [])]
            means = [number(_mean([found.get(name) for found in known])) for name in names]
            rows.append([column, *means])
    header = ["", "macro", *margins, *([f"{negative}, against all others"] if negative else [])]
    return markdown_table(header, rows)


def control_aurocs(
    manifest: Manifest, column: str, classes: Sequence[str], negative: str
) -> dict[str, float | None] | None:
    """AUROC of each class from the value of a column alone; None where no row has one.

    Margins are told among margins, the negative class among all rows. Only rows with a value count.
    """
    train, test = (_with_value(manifest.split(name), column, classes) for name in ("train", "test"))
    if not train or not test:
        return None
    values, labels = _values(train, column, classes)
    asked, truth = _values(test, column, classes)
    shares = shares_by_value(values, labels, asked, len(classes))
    found = class_aurocs(_among_margins(shares, classes, negative), truth, classes, negative)
    result: dict[str, float | None] = {MEAN: mean_of_known(found), **found}
    if negative:
        result[negative] = class_aurocs(shares, truth, classes, "")[negative]
    return result


def _among_margins(shares: Array, classes: Sequence[str], negative: str) -> Array:
    """Shares (N, C) among the rows that are not negative."""
    kept = shares * np.array([name != negative for name in classes])
    total = kept.sum(1, keepdims=True)
    among: Array = kept / np.where(total > 0, total, 1.0)
    return among


def _with_value(samples: Sequence[Sample], column: str, classes: Sequence[str]) -> list[Sample]:
    return [s for s in samples if s.extra.get(column, "").strip() and s.label in classes]


def _values(
    samples: Sequence[Sample], column: str, classes: Sequence[str]
) -> tuple[list[str], Labels]:
    labels = np.array([classes.index(each.label) for each in samples], dtype=np.int64)
    return [each.extra[column].strip() for each in samples], labels


# -- cells ---------------------------------------------------------------------------------------
def trained_on(variant: Variant) -> str:
    """The training data of a variant in words."""
    return " and ".join(variant.sources) if variant.sources else "all"


def times_chance(value: float | None, chance: float | None) -> str:
    """A precision, and how many times its chance level that is.

    >>> times_chance(0.5, 0.2), times_chance(None, 0.2), times_chance(0.5, None)
    ('.500 (2.5×)', '–', '.500')
    """
    if value is None or not chance:
        return number(value)
    return f"{number(value)} ({value / chance:.1f}×)"


def _estimate(each: Estimate | None) -> str:
    return "–" if each is None else number(each.value, each.ci95)


def _mean(values: Sequence[float | None]) -> float | None:
    return mean_of_known({str(index): value for index, value in enumerate(values)})
