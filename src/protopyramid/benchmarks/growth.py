"""How cost scales with prototypes, classes, image size and dataset size.

Every curve has its theoretical order (`order`), the order between its two largest points (`measured`: how
it continues), and the order fitted to all points (`fitted`). Neither of the two may exceed the first. There
is no curve of forward pass and training step by dataset size (an epoch is a number of steps), nor of the
head fit by image size (a head sees scores alone).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from protopyramid.benchmarks.head import random_scores
from protopyramid.benchmarks.projection import projection_search
from protopyramid.benchmarks.settings import (
    Settings,
    TrainingStep,
    fetched_images,
    fresh_model,
    labels_of,
    random_images,
    train_steps,
)
from protopyramid.benchmarks.timing import Work, medians_in_turns
from protopyramid.config.schema import Config
from protopyramid.model.backbones import LEVELS
from protopyramid.model.build import initial_head_weights
from protopyramid.training.head_fit import fit_head
from protopyramid.utils.files import replacing

PER_CLASS = 10  # prototypes of a class in ProtoPNet's CUB model: 200 classes, 2,000 prototypes
PER_SIDE = 16  # images of a projection whose image size grows: enough of every class
TOLERANCE = 0.15  # ours: how much a measured order may exceed the theoretical one


@dataclass(frozen=True)
class Growth:
    """The points of the curves; small ones in tests."""

    prototypes: tuple[int, ...] = (10, 40, 160, 640, 2000)
    classes: tuple[int, ...] = (4, 12, 40, 100, 200)
    sides: tuple[int, ...] = (112, 224, 448, 896)
    images: tuple[int, ...] = (128, 512, 2048, 8192)
    searched: int = (
        512  # images of a projection whose prototypes grow: 125 of a class and level at most
    )
    batch: int = 2
    repetitions: int = 5
    settings: Settings = field(default_factory=Settings)


FULL_GROWTH = Growth()
QUICK_GROWTH = Growth(
    prototypes=(10, 160, 2000),
    classes=(4, 40, 200),
    sides=(112, 224, 448),
    images=(128, 512, 2048),
    batch=1,
    repetitions=1,
)


@dataclass(frozen=True)
class Curve:
    """Median seconds of some work at growing values of a variable."""

    work: str
    variable: str
    values: tuple[int, ...]
    seconds: tuple[float, ...]
    order: float
    why: str

    @property
    def measured(self) -> float:
        """The order between the last two points."""
        (x0, x1), (y0, y1) = self.values[-2:], self.seconds[-2:]
        return math.log(y1 / y0) / math.log(x1 / x0)

    @property
    def fitted(self) -> float:
        """The order over all points: the slope of the line through their logarithms."""
        x, y = ([math.log(value) for value in values] for values in (self.values, self.seconds))
        return statistics.linear_regression(x, y).slope

    @property
    def met(self) -> bool:
        """Whether it scales no worse than its theoretical order."""
        return max(self.measured, self.fitted) <= self.order + TOLERANCE

    def to_json(self) -> dict[str, Any]:
        """The curve with its measured orders."""
        return {
            **asdict(self),
            "measured": self.measured,
            "fitted": self.fitted,
            "met": self.met,
        }


def all_curves(growth: Growth) -> Iterator[Curve]:
    """Every curve, one by one as it is measured."""
    four = growth.settings.config().data.classes
    yield from _model_curves(
        growth, "prototypes", growth.prototypes, lambda m: spread_prototypes(four, m), 1.0,
        "a product with every prototype at every patch",
    )  # fmt: skip
    yield from _model_curves(
        growth, "classes", growth.classes, classes_of_ten, 1.0,
        f"{PER_CLASS} prototypes per class",
    )  # fmt: skip
    yield from _size_curves(growth)
    yield from _projection_curves(growth)
    yield from _head_curves(growth)


def spread_prototypes(classes: Sequence[str], m: int) -> dict[str, Any]:
    """Overrides for m prototypes, spread evenly over classes and levels.

    >>> spread_prototypes(["a", "b"], 3)["model.prototypes.per_class"]
    {'a': {2: 1, 3: 1, 4: 0, 5: 0}, 'b': {2: 0, 3: 1, 4: 0, 5: 0}}
    """
    counts = {name: dict.fromkeys(LEVELS, 0) for name in classes}
    for number in range(m):
        turn, place = divmod(number, len(classes))
        counts[classes[place]][LEVELS[(place + turn) % len(LEVELS)]] += 1
    return {"model.prototypes.per_class": counts}


def classes_of_ten(count: int) -> dict[str, Any]:
    """Overrides for a number of classes, none of them negative, with ten prototypes each."""
    names = [f"class {number}" for number in range(count)]
    return {
        "data.classes": names,
        "data.negative_class": "",
        "loss.fine.inside": {},
        "loss.fine.outside": {},
        **spread_prototypes(names, PER_CLASS * count),
    }


def _model_curves(
    growth: Growth,
    variable: str,
    values: tuple[int, ...],
    overrides: Callable[[int], dict[str, Any]],
    order: float,
    why: str,
) -> Iterator[Curve]:
    """Forward and training step at growing values."""
    configs = [growth.settings.config(**overrides(value)) for value in values]
    for work, make in (("forward", _forward), ("training step", _step)):
        works = [make(config, growth.batch) for config in configs]
        yield Curve(work, variable, values, _measured(works, growth), order, why)


def _size_curves(growth: Growth) -> Iterator[Curve]:
    configs = [growth.settings.config(**{"data.image_size": side}) for side in growth.sides]
    for work, make in (("forward", _forward), ("training step", _step)):
        seconds = _measured([make(config, 1) for config in configs], growth)
        yield Curve(work, "image side", growth.sides, seconds, 2.0, "every pixel is processed")


def _projection_curves(growth: Growth) -> Iterator[Curve]:
    """The search of a projection with z given; the forward pass before it has a curve of its own."""
    four = growth.settings.config().data.classes
    searched = growth.searched

    def search(overrides: dict[str, Any], images: int, batch: int = growth.settings.batch) -> Work:
        return projection_search(growth.settings.config(**overrides), images, batch)

    work = "projection search"
    works = [search(spread_prototypes(four, m), searched) for m in growth.prototypes]
    why = "a product with every prototype at every patch"
    yield Curve(work, "prototypes", growth.prototypes, _measured(works, growth), 1.0, why)
    many = max(searched, 4 * max(growth.classes))  # enough images of every class
    works = [search(classes_of_ten(count), many) for count in growth.classes]
    why = f"{PER_CLASS} prototypes per class"
    yield Curve(work, "classes", growth.classes, _measured(works, growth), 1.0, why)
    works = [search({"data.image_size": side}, PER_SIDE, growth.batch) for side in growth.sides]
    why = "every patch is compared"
    yield Curve(work, "image side", growth.sides, _measured(works, growth), 2.0, why)
    works = [search({}, images) for images in growth.images[:-1]]
    why = "every image is searched"
    yield Curve(work, "images", growth.images[:-1], _measured(works, growth), 1.0, why)


def _head_curves(growth: Growth) -> Iterator[Curve]:
    four = len(growth.settings.config().data.classes)
    count = growth.settings.head_images
    works = [_head_fit(growth, count, m, four) for m in growth.prototypes]
    why = "products of all pairs of prototypes, and their inverse"
    yield Curve("head fit", "prototypes", growth.prototypes, _measured(works, growth), 3.0, why)
    works = [_head_fit(growth, count, PER_CLASS * c, c) for c in growth.classes]
    why = f"{PER_CLASS} prototypes per class, so as above"
    yield Curve("head fit", "classes", growth.classes, _measured(works, growth), 3.0, why)
    default = len(fresh_model(growth.settings.config()).head.weight[0])
    works = [_head_fit(growth, images, default, four) for images in growth.images]
    why = "every score is read"
    yield Curve("head fit", "images", growth.images, _measured(works, growth), 1.0, why)


def _measured(works: Sequence[Work], growth: Growth) -> tuple[float, ...]:
    return medians_in_turns(works, growth.repetitions)


def _forward(config: Config, batch: int) -> Work:
    model = fresh_model(config)
    images = random_images(batch, config.data.image_size)

    @torch.inference_mode()
    def forward() -> None:
        model(images)

    return forward


def _step(config: Config, batch: int) -> Work:
    step = TrainingStep(config, fresh_model(config), list(train_steps(config))[-1])
    images, labels = fetched_images(config, batch), labels_of(batch, config)
    return lambda: step(images, labels)


def _head_fit(growth: Growth, images: int, m: int, classes: int) -> Work:
    config = growth.settings.config()
    owners, labels = torch.arange(m) % classes, torch.arange(images) % classes
    scores: Tensor = random_scores(labels, owners)
    first = initial_head_weights(owners, classes, config.model.head)
    return lambda: fit_head(scores, labels, owners, first, config.head_fit)


def draw(curves: Sequence[Curve], folder: Path) -> list[Path]:
    """One plot per variable: `growth-VARIABLE.png`."""
    written = []
    for variable in dict.fromkeys(curve.variable for curve in curves):
        chosen = [curve for curve in curves if curve.variable == variable]
        written.append(_picture(chosen, variable, folder))
    return written


def _picture(curves: Sequence[Curve], variable: str, folder: Path) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 4.0), layout="constrained")
    axes = figure.subplots()
    for curve in curves:
        label = f"{curve.work}: order {curve.measured:.2f} (at most {curve.order:g})"
        (line,) = axes.loglog(curve.values, curve.seconds, marker="o", label=label)
        axes.loglog(curve.values[-2:], _theoretical(curve), linestyle=":", color=line.get_color())
    axes.plot([], [], linestyle=":", color="grey", label="theoretical order")
    axes.set_xlabel(variable)
    axes.set_ylabel("seconds")
    values = sorted({value for curve in curves for value in curve.values})
    axes.set_xticks(values, [f"{value:,}" for value in values])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"growth-{variable.replace(' ', '-')}.png"
    with replacing(path) as file:
        figure.savefig(file, dpi=100, format="png")
    return path


def _theoretical(curve: Curve) -> tuple[float, float]:
    """Seconds at the last two points if the last step had its theoretical order."""
    (x0, x1), y1 = curve.values[-2:], curve.seconds[-1]
    return y1 * (x0 / x1) ** curve.order, y1
