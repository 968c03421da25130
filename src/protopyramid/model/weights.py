"""Backbone weights: reading them from files, matching their names, fetching the published ones."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from protopyramid.errors import UserError
from protopyramid.utils.cache_folder import VARIABLE, cache_folder
from protopyramid.utils.downloads import DownloadError, WrongDigest, download, first_line
from protopyramid.utils.opening import WEIGHTS as WEIGHTS_FILE
from protopyramid.utils.opening import checked, is_file, open_file
from protopyramid.utils.progress import Bars, no_bar

if TYPE_CHECKING:
    from protopyramid.model.backbones import Backbone

PREFIXES = ("module.", "backbone.", "model.", "encoder.")
FEATURES = "features."
# A checkpoint of IAIA-BL or ProtoPNet is of a network whose part `features` is a VGG with a part `features`.
NESTED = FEATURES + FEATURES
IMAGENET = "imagenet"
WEIGHTS = "weights"  # folder of downloaded weights in the cache folder
WITHOUT = "--set model.backbone.weights=none"


class Published(NamedTuple):
    """A published file of weights: where it is, its SHA-256 and what it is."""

    url: str
    digest: str
    what: str

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.url.rsplit("/", 1)[-1]


VGG16_IMAGENET = Published(
    "https://download.pytorch.org/models/vgg16-397923af.pth",
    "397923af8e79cdbb6a7127f12361acd7a2f83e06b05044ddf496e83de57a5bf0",
    "torchvision's VGG-16 ImageNet weights (IMAGENET1K_V1)",
)


@dataclass(frozen=True)
class LoadReport:
    """The tensors of a file that were loaded, and those that were not needed."""

    matched: tuple[str, ...]
    ignored: tuple[str, ...]

    def __str__(self) -> str:
        ignored = f", {len(self.ignored)} not needed" if self.ignored else ""
        return f"{len(self.matched)} tensors matched{ignored}"


def load_backbone_weights(backbone: nn.Module, path: Path) -> LoadReport:
    """Load a .safetensors or .pth file into a backbone; every tensor of the backbone must be matched.

    torchvision's names (`features.0.weight`), bare ones (`0.weight`), prefixed ones
    (`module.features.0.weight`) and those of IAIA-BL's and ProtoPNet's checkpoints
    (`features.features.0.weight`) are all understood; the tensors of a classifier, an add-on and
    prototypes are left out.
    """
    expected, tensors = backbone.state_dict(), read_tensors(path)
    names = _names_in(expected, tensors)
    found = {names[name]: tensor for name, tensor in tensors.items()}
    _check_match(path, expected, found)
    backbone.load_state_dict(
        {name: found[name] for name in expected if name in found}, strict=False
    )
    matched = tuple(name for name in expected if name in found)
    return LoadReport(matched, tuple(sorted(set(found) - set(matched))))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors, .pth or .pt file by name; nothing in the file is executed."""
    try:
        if not checked(path, WEIGHTS_FILE).stat().st_size:
            raise UserError(f"{path}: is empty; give a .safetensors or .pth file of weights")
        if path.suffix == ".safetensors":
            return _tensors_of(path, load_file(path))
        with warnings.catch_warnings():  # of formats: what matters of them is an error below
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True)
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(
            f"{path}: no such file; give a .safetensors or .pth file of weights"
        ) from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or first_line(error)}") from None
    except (SafetensorError, RuntimeError, ValueError, EOFError, KeyError) as error:
        raise UserError(f"{path}: not a readable file of weights: {first_line(error)}") from error
    except Exception as error:  # torch raises pickle.UnpicklingError for what weights_only refuses
        raise UserError(
            f"{path}: contains more than tensors, so it was not loaded: {first_line(error)}"
        ) from error
    return _tensors_of(path, content)


def fetch_published(
    source: Published = VGG16_IMAGENET, folder: Path | None = None, bars: Bars = no_bar
) -> Path:
    """The published file, downloaded once into the cache folder; its SHA-256 is checked every time."""
    target = (folder or cache_folder() / WEIGHTS) / source.name
    if is_file(target) and _digest(target) == source.digest:
        return target
    try:
        return download(source.url, target, digest=source.digest, bars=bars, what=source.name)
    except WrongDigest as error:
        raise UserError(f"{error}; try again, or train without: {WITHOUT}") from error
    except DownloadError as error:
        raise UserError(f"{error}; {_offline(source, target)}") from error


def _offline(source: Published, target: Path) -> str:
    """What to do where the file cannot be downloaded, in one line."""
    return (
        f"fetch {source.name} ({source.what}, SHA-256 "
        f"{source.digest}) on another machine and put it at {target} (or set {VARIABLE}), give a file "
        f"with --set model.backbone.weights=FILE, or train without pretrained weights: {WITHOUT}"
    )


def start_backbone(backbone: Backbone, weights: str, bars: Bars = no_bar) -> LoadReport | None:
    """Load what `model.backbone.weights` names: nothing, "imagenet", or a file."""
    if not weights:
        return None
    if weights != IMAGENET:
        return load_backbone_weights(backbone, Path(weights).expanduser())
    if backbone.imagenet is None:
        raise UserError(
            'model.backbone.weights "imagenet" is for the full VGG-16 (name "vgg16", width 1, no batch '
            "norm); for this backbone, give a .safetensors or .pth file of its weights, or train "
            f"without: {WITHOUT}"
        )
    return load_backbone_weights(backbone, fetch_published(backbone.imagenet, bars=bars))


def _names_in(expected: Iterable[str], found: Iterable[str]) -> dict[str, str]:
    """What each name found in a file is called in the backbone; unknown ones without their prefixes.

    timm writes some dots as underscores in its feature networks, so the two count as the same.
    """
    known = {name.replace("_", "."): name for name in expected}
    return {name: _name_in(known, name) for name in found}


def _name_in(known: Mapping[str, str], name: str) -> str:
    plain, stripped = name, True
    while stripped:
        for candidate in (plain, f"features.{plain}"):
            if candidate.replace("_", ".") in known:
                return known[candidate.replace("_", ".")]
        stripped = plain.startswith(NESTED)
        if stripped:
            plain = plain.removeprefix(FEATURES)
        for prefix in PREFIXES:
            if plain.startswith(prefix):
                plain, stripped = plain.removeprefix(prefix), True
                break
    return f"features.{plain}" if plain.split(".", 1)[0].isdigit() else plain


def _check_match(path: Path, expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    counters = {name for name in expected if name.endswith("num_batches_tracked")}
    missing = [name for name in expected if name not in found and name not in counters]
    shapes = [
        f"{name} is {tuple(found[name].shape)}, expected {tuple(expected[name].shape)}"
        for name in expected
        if name in found and found[name].shape != expected[name].shape
    ]
    strangers = [name for name in found if name.startswith("features.") and name not in expected]
    strangers = [name for name in strangers if not name.endswith("num_batches_tracked")]
    problems = shapes + [f"{name} is missing" for name in missing]
    problems += [f"{name} is not expected" for name in strangers]
    if problems:
        more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise UserError(
            f"{path}: does not fit the backbone: {'; '.join(problems[:3])}{more}; "
            "check model.backbone.name, width and batch_norm"
        )


def _tensors_of(path: Path, content: object) -> dict[str, Tensor]:
    if isinstance(content, Mapping):
        for key in ("state_dict", "model"):
            if isinstance(content.get(key), Mapping):
                content = content[key]
                break
    if not isinstance(content, Mapping) or not content:
        raise UserError(f"{path}: contains no table of tensors; save the model's state_dict")
    tensors = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    if not tensors:
        raise UserError(f"{path}: contains no table of tensors; save the model's state_dict")
    odd = [name for name, each in tensors.items() if not torch.isfinite(each).all()]
    if odd:
        raise UserError(f"{path}: {odd[0]} has values that are not finite; the file is damaged")
    return tensors


def _digest(path: Path) -> str:
    with open_file(path, WEIGHTS_FILE) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
