"""A trained model and everything that explaining and serving it needs, loaded from its run folder alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protopyramid.config import load_config, system_title
from protopyramid.config.schema import Config
from protopyramid.data.geometry import Box
from protopyramid.errors import UserError
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.package import Package, read_package
from protopyramid.runs.provenance import Provenance, read_provenance
from protopyramid.runs.records import PrototypeRecord, read_prototypes
from protopyramid.runs.shelf import find_run
from protopyramid.utils.arguments import as_path, checked_arguments
from protopyramid.utils.opening import is_file, real_path

if TYPE_CHECKING:
    from protopyramid.api import Edited
    from protopyramid.explanations.explanation import Explanation
    from protopyramid.model.network import PrototypeNetwork
    from protopyramid.prototypes.cases import CaseBook


@dataclass(frozen=True)
class Run:
    """A trained model with everything that explaining and serving it needs."""

    folder: RunFolder
    config: Config
    model: PrototypeNetwork
    prototypes: list[PrototypeRecord] = field(default_factory=list)
    # What was read or computed of this run already, by file or name.
    cache: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The folder's name."""
        return real_path(self.folder.path).name

    @property
    def start(self) -> str:
        """The weights that training started from, as recorded; "" where nothing is."""
        return self.provenance.backbone if is_file(self.folder / layout.DATA) else ""

    @property
    def system_title(self) -> str:
        """What the run's system is called: a published name only with the published settings."""
        return system_title(self.config, self.start)

    @cached_property
    def provenance(self) -> Provenance:
        """The data, starting weights and software that the run was made with (data.json)."""
        return read_provenance(self.folder)

    @cached_property
    def package(self) -> Package | None:
        """What a packed model says of itself (model.json); None for a run that was trained here."""
        return read_package(self.folder)

    def predict(
        self, images: Sequence[str | Path], regions: Sequence[Box | None] | None = None
    ) -> list[dict[str, Any]]:
        """Class probabilities and strongest prototypes of image files, one record per image.

        regions: for each image what the model is to see, x0, y0, x1, y1 in pixels of the file, made square
        around its centre; None for all of the image. For several lesions, name the image several times.
        """
        from protopyramid.inference.requests import predict_regions

        return predict_regions(self, images, regions)

    @checked_arguments
    def explain(
        self,
        image: str | Path,
        region: Box | None = None,
        evidence: bool | None = None,
        against: str | None = None,
    ) -> Explanation:
        """The case-based explanation of one image file, or of a region of it as in `predict`.

        It has the evidence regions of the strongest prototypes, unless `evidence` is False. `against` is
        the class that the predicted one is compared with, by default the runner-up.
        """
        from protopyramid.explanations.explanation import explain_file

        return explain_file(self, image, region=region, evidence=evidence, against=against)

    @checked_arguments
    def edit(
        self,
        *,
        remove: Sequence[int] = (),
        require: Sequence[int] | Mapping[int, float] = (),
        weights: Mapping[int, Mapping[str, float]] | None = None,
        data: str | Path | None = None,
        out: str | Path | None = None,
    ) -> Edited:
        """Remove or require prototypes and fit the head again, or choose its weights by hand.

        Without `out`, nothing is written: `.plan` tells the best achievable loss, the metrics on validation
        and the predictions that change. See docs/editing.md.
        """
        from protopyramid.api import edit

        return edit(self, remove=remove, require=require, weights=weights, data=data, out=out)

    def _repr_html_(self) -> str:
        from protopyramid.prototypes.notebook import run_html

        return run_html(self)

    @cached_property
    def cases(self) -> CaseBook:
        """The training images behind the prototypes; made for this model and kept with it."""
        from protopyramid.prototypes.cases import CaseBook

        return CaseBook(self)


def load_run(path: str | Path) -> Run:
    """Load a finished run.

    Args:
        path: The run folder, or the name of a model that is shipped or was pulled.

    Example: ``pp.load_run("runs/demo").explain("lesion.png").save("why.png")``
    """
    from protopyramid.model.build import build_model

    folder = RunFolder(find_run(as_path(path, "run")))
    folder.check_format()
    config = load_config(folder / layout.CONFIG, warn=False)
    if not is_file(folder / layout.MODEL):
        raise UserError(
            f"{folder.path}: its training has not finished (no {layout.MODEL}); "
            f"finish it first: protopyramid train … --out {folder.path} --resume"
        )
    model = build_model(config)
    try:
        model.load_state_dict(folder.read_weights())
    except RuntimeError as error:
        first = str(error).strip().split("\n")[-1].strip()
        raise UserError(
            f"{folder / layout.MODEL}: does not match {layout.CONFIG}: {first}"
        ) from error
    model.eval()
    prototypes = read_prototypes(folder)
    _check_prototypes(folder, prototypes, model, config.data.classes)
    return Run(folder, config, model, prototypes)


def _check_prototypes(
    folder: RunFolder,
    records: Sequence[PrototypeRecord],
    model: PrototypeNetwork,
    classes: Sequence[str],
) -> None:
    """Refuse records that are not those of the model's prototypes, one for each, in their order."""
    layer = model.prototypes
    expected: list[tuple[int, str, int]] = []
    if layer is not None:
        owners, levels = layer.classes.tolist(), layer.levels.tolist()
        expected = [
            (index, classes[owner], level)
            for index, (owner, level) in enumerate(zip(owners, levels, strict=True))
        ]
    found = [(record.index, record.class_name, record.level) for record in records]
    if found != expected:
        place = next(
            (n for n, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]),
            min(len(found), len(expected)),
        )
        raise UserError(
            f"{folder / layout.PROTOTYPES}: entry {place} is not that of the model's prototype {place}; "
            "the file is damaged: restore it, or train the run again"
        )
