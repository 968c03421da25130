"""A pass over stored images gives each image the evidence that it has alone."""

import numpy as np
import pytest
import torch
from PIL import Image

from protopyramid.config.schema import Config
from protopyramid.data.manifest import read_manifest
from protopyramid.data.store import ImageStore
from protopyramid.model import build_model
from protopyramid.model.inference import evidence_batches

CONFIG = Config.model_validate(
    {"data": {"image_size": 32}, "model": {"backbone": {"width": 0.0625}, "neck": {"dim": 8}}}
)


@pytest.fixture
def pictures(tmp_path):
    """Five grey images of the model's size, and the store that reads them."""
    random = np.random.default_rng(0)
    arrays = [random.integers(0, 256, (32, 32), dtype=np.uint8) for _ in range(5)]
    rows = ["image,label,split"]
    for number, array in enumerate(arrays):
        Image.fromarray(array).save(tmp_path / f"{number}.png")
        rows.append(f"{number}.png,spiculated,train")
    (tmp_path / "manifest.csv").write_text("\n".join(rows) + "\n")
    return arrays, ImageStore(read_manifest(tmp_path / "manifest.csv").samples, CONFIG.data)


@pytest.mark.parametrize("batch_size", [1, 2, 5, 32])
def test_batches_cover_the_store_in_order_with_the_evidence_of_each_image(pictures, batch_size):
    arrays, store = pictures
    model = build_model(CONFIG).train()
    seen = list(evidence_batches(model, store, batch_size=batch_size))
    assert [number for part in seen for number in part.images] == [0, 1, 2, 3, 4]
    logits = torch.cat([part.evidence.logits for part in seen])
    mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    for number, array in enumerate(arrays):
        grey = torch.from_numpy(array / 255.0).float()
        with torch.no_grad():
            alone = model((grey.expand(3, -1, -1) - mean) / std[None])
        torch.testing.assert_close(logits[number], alone.logits[0], rtol=1e-4, atol=1e-5)
    assert not model.training
    assert not logits.requires_grad


def test_a_choice_of_images_keeps_its_order(pictures):
    _, store = pictures
    seen = list(evidence_batches(build_model(CONFIG), store, [3, 0, 3], batch_size=2))
    assert [part.images for part in seen] == [[3, 0], [3]]
    torch.testing.assert_close(seen[0].evidence.logits[0], seen[1].evidence.logits[0])
