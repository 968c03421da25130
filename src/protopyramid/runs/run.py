"""A trained model and what explaining and serving it needs, loaded from its run folder alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protopyramid.config import load_config
from protopyramid.config.schema import Config
from protopyramid.errors import UserError
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.records import PrototypeRecord

if TYPE_CHECKING:
    from protopyramid.explain.explanation import Explanation
    from protopyramid.model.network import PrototypeNetwork


@dataclass
class Run:
    """A trained model with all that explaining and serving it needs."""

    folder: RunFolder
    config: Config
    model: PrototypeNetwork
    prototypes: list[PrototypeRecord] = field(default_factory=list)
    # What was read or computed of this run already, by file or name.
    cache: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.path.resolve().name

    def predict(self, images: Sequence[str | Path]) -> list[dict[str, Any]]:
        """Class probabilities and strongest prototypes of image files, one record an image."""
        from protopyramid.inference.prediction import predict_files

        return predict_files(self, images)

    def explain(self, image: str | Path) -> Explanation:
        """The case-based explanation of one image file."""
        from protopyramid.explain.explanation import explain_file

        return explain_file(self, image)


def load_run(path: str | Path) -> Run:
    """Load a finished run.

    Example: ``run = load_run("runs/demo"); run.explain("lesion.png").save("why.png")``
    """
    from protopyramid.model.network import build_model

    folder = RunFolder(path)
    if not folder.path.is_dir():
        raise UserError(f"{folder.path}: no such run folder")
    folder.check_format()
    config = load_config(folder / layout.CONFIG, warn=False)
    if not (folder / layout.MODEL).is_file():
        raise UserError(
            f"{folder.path}: training has not finished (no {layout.MODEL}); go on with --resume"
        )
    model = build_model(config)
    tensors, _ = folder.read_tensors(layout.MODEL)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        first = str(error).strip().split("\n")[-1].strip()
        raise UserError(
            f"{folder / 'model.safetensors'}: does not fit config.toml: {first}"
        ) from error
    model.eval()
    records = [PrototypeRecord.from_json(entry) for entry in folder.read_json(layout.PROTOTYPES)]
    return Run(folder, config, model, records)
