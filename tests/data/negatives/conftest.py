"""Films with lesions, and lesion crops, as files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from protopyramid.data.manifest import Manifest, read_manifest

from ...pictures import save_noise
from .films import HEIGHT, LESION, WIDTH, scanned_film


@pytest.fixture
def lesions(tmp_path: Path) -> Manifest:
    """Twelve lesion crops of sides 24 to 46 of patients p0 to p11: eight train, four test."""
    folder = tmp_path / "lesions"
    rows = ["image,label,split,patient_id,note"]
    for number in range(12):
        side = 24 + 2 * number
        save_noise(folder / f"{number}.png", (side, side), bits=16, seed=number)
        split = "train" if number < 8 else "test"
        rows.append(f"{number}.png,spiculated,{split},p{number},kept")
    (folder / "manifest.csv").write_text("\n".join(rows) + "\n")
    return read_manifest(folder / "manifest.csv")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Six films of three patients, as 16-bit files, each with a lesion; one has another by a mask."""
    folder = tmp_path / "films"
    folder.mkdir()
    rows = ["image,patient_id,mask,lesion_x0,lesion_y0,lesion_x1,lesion_y1"]
    for number in range(6):
        values = (scanned_film(number) * 65535).astype(np.uint16)
        Image.fromarray(values).save(folder / f"{number}.png")
        rows.append(f"{number}.png,p{number // 2 * 4},,{','.join(f'{edge:g}' for edge in LESION)}")
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[320:330, 30:60] = 255
    Image.fromarray(mask).save(folder / "mask.png")
    rows.append("3.png,p4,mask.png,,,,")
    (folder / "films.csv").write_text("\n".join(rows) + "\n")
    return folder / "films.csv"
