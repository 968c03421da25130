"""A pass over stored images gives each image the evidence that it has alone."""

import copy

import numpy as np
import pytest
import torch
from PIL import Image

from protopyramid.config.schema import Config
from protopyramid.data.manifest import read_manifest
from protopyramid.data.store import ImageStore
from protopyramid.inference.batches import _has_compiler, compile_network, evidence_batches
from protopyramid.model import build_model

CONFIG = Config.model_validate(
    {"data": {"image_size": 32}, "model": {"backbone": {"width": 0.0625}, "neck": {"dim": 8}}}
)

# torch's own compiler uses what torch has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


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


# -- the compiled network ------------------------------------------------------------------------
def plain_and_images(count):
    torch.manual_seed(0)
    return build_model(CONFIG).eval(), torch.rand(count, 3, 32, 32)


@pytest.mark.skipif(not _has_compiler(), reason="needs a C++ compiler")
def test_the_compiled_network_gives_the_evidence_of_the_network_as_it_is():
    plain, images = plain_and_images(3)
    compiled = copy.deepcopy(plain)
    assert compile_network(compiled, 32) is None
    assert compiled._compiled_call_impl is not None
    with torch.inference_mode():
        found, expected = compiled(images), plain(images)
    torch.testing.assert_close(found.logits, expected.logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(found.scores, expected.scores, rtol=0, atol=1e-5)
    torch.testing.assert_close(found.maps, expected.maps, rtol=0, atol=1e-5)
    torch.testing.assert_close(found.closeness, expected.closeness, rtol=0, atol=1e-5)


def stays_as_it_is(model, images, before):
    with torch.inference_mode():
        return torch.equal(model(images).logits, before)


@pytest.mark.parametrize("named", [None, "no-such-compiler"])
def test_without_a_compiler_the_network_stays_as_it_is_and_the_reason_is_told(named, monkeypatch):
    model, images = plain_and_images(2)
    with torch.inference_mode():
        before = model(images).logits
    monkeypatch.delenv("CXX", raising=False)
    if named is None:
        monkeypatch.setattr("shutil.which", lambda name: None)
    else:
        monkeypatch.setenv("CXX", named)
    assert "no C++ compiler" in compile_network(model, 32)
    assert stays_as_it_is(model, images, before)


@pytest.mark.parametrize("fault", ["raises", "shifts"])
def test_a_compiler_that_fails_or_changes_numbers_is_not_used(fault, monkeypatch):
    model, images = plain_and_images(2)
    with torch.inference_mode():
        before = model(images).logits

    def broken(given):
        if fault == "raises":
            raise RuntimeError("ld: not found\nmore")
        evidence = model.forward(given)
        return evidence._replace(scores=evidence.scores + 1e-3)

    monkeypatch.setattr("protopyramid.inference.batches._has_compiler", lambda: True)
    monkeypatch.setattr(model, "compile", lambda: setattr(model, "_compiled_call_impl", broken))
    reason = compile_network(model, 32)
    assert reason == (
        "the compiler failed (ld: not found)"
        if fault == "raises"
        else "compiled outputs differ by 1.0e-03"
    )
    assert stays_as_it_is(model, images, before)
