"""Arguments and options that several commands share, as types of their parameters."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

IMAGES_HELP = "Images, folders (with their subfolders), or a table (CSV) with a column image."


class Crop(StrEnum):
    """What the model sees of each image of a table."""

    NONE = "none"
    LESION = "lesion"


# -- files and folders ---------------------------------------------------------------------------
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder, or the name of a model.")]
FolderArgument = Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write to.")]
OutFolder = Annotated[Path, typer.Option(metavar="DIR", help="Folder to write to.")]
RunManifest = Annotated[
    Path | None, typer.Option(metavar="MANIFEST", help="Manifest, by default the one of training.")
]
Split = Annotated[str, typer.Option(help="train, validation or test.")]
TableSplit = Annotated[str | None, typer.Option(help="Only the rows of this split of the table.")]

# -- how it is done ------------------------------------------------------------------------------
Preset = Annotated[str, typer.Argument(help="Name of a preset, or a TOML file.")]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting.")
]
Accelerator = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Workers = Annotated[int, typer.Option(min=0, help="Worker processes (0 = one per CPU core).")]
DataSeed = Annotated[int, typer.Option(min=0, help="Seed; the same seed gives the same bytes.")]
ResampleSeed = Annotated[int, typer.Option(min=0, help="Seed of the resamples.")]
Compile = Annotated[
    bool, typer.Option("--compile", help="Compile the network first; pays for many images.")
]
Jet = Annotated[bool, typer.Option("--jet", help="Use the paper's colormap, jet.")]


# -- lesions marked on an image ------------------------------------------------------------------
def _box_option(name: str, help: str) -> Any:
    return typer.Option(name, metavar="X0,Y0,X1,Y1", help=help)


Regions = Annotated[
    list[str] | None,
    _box_option(
        "--region",
        "Part of one image that the model is to see, in pixels of the file; made square around its "
        "centre. Repeat it for several.",
    ),
]
RegionsMm = Annotated[
    list[str] | None,
    _box_option(
        "--region-mm",
        "The same in millimetres from the upper left corner (DICOM with pixel spacing).",
    ),
]
Lesions = Annotated[
    list[str] | None,
    _box_option(
        "--lesion",
        "Lesion box on one image, in pixels of the file; the run's margin is added around it.",
    ),
]
CropOption = Annotated[
    Crop | None,
    typer.Option(
        "--crop",
        help="Whether the lesion boxes of a table are cut from their images (default: as in training).",
    ),
]
