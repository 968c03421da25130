"""The image store gives what preparing each sample gives, whatever is kept in memory."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from protopyramid.config.schema import DataConfig
from protopyramid.data import store as module
from protopyramid.data.images import prepare_sample
from protopyramid.data.manifest import Sample, read_manifest
from protopyramid.data.store import ImageStore
from protopyramid.errors import UserError

SIZE = 32


def data(gigabytes: float = 1.0) -> DataConfig:
    return DataConfig(image_size=SIZE, memory_budget=gigabytes)


@pytest.fixture
def samples(tmp_path: Path) -> list[Sample]:
    """Grey, colour, 16-bit and annotated samples."""
    random = np.random.default_rng(0)
    made = []
    for number in range(8):
        shape = (40, 50, 3) if number % 4 == 3 else (40, 50)
        values = random.integers(0, 256, shape).astype(np.uint8)
        if number % 4 == 1:
            values = random.integers(0, 65536, shape).astype(np.uint16)
        path = tmp_path / f"{number}.png"
        Image.fromarray(values).save(path)
        box = (5.0, 5.0, 25.0, 30.0) if number % 2 else None
        made.append(Sample(number + 2, path.name, path, "spiculated", "train", box=box))
    return made


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the samples in the order in which they are decoded."""
    names: list[str] = []
    lock = threading.Lock()

    def counted(sample: Sample, settings: DataConfig, *rest):  # type: ignore[no-untyped-def]
        with lock:
            names.append(sample.name)
        return prepare_sample(sample, settings, *rest)

    monkeypatch.setattr(module, "prepare_sample", counted)
    return names


@pytest.mark.parametrize("gigabytes", [0, 1e-5, 1])
def test_a_batch_is_its_samples_prepared_exactly(samples: list[Sample], gigabytes: float) -> None:
    store = ImageStore(samples, data(gigabytes))
    assert len(store) == 8
    indices = [3, 0, 1, 1, 7]
    for _ in range(2):
        batch = store.load(indices)
        assert batch.images.shape == (5, 3, SIZE, SIZE)
        assert batch.annotated.tolist() == [True, False, True, True, True]
        for row, index in enumerate(indices):
            prepared = prepare_sample(samples[index], data())
            assert torch.equal(batch.images[row], prepared.image.expand(3, -1, -1))
            if prepared.mask is None:
                assert not batch.masks[row].any()
                assert batch.boxes[row].isnan().all()
            else:
                assert torch.equal(batch.masks[row], prepared.mask)
                torch.testing.assert_close(batch.boxes[row], torch.tensor(prepared.box))


def test_a_grey_batch_has_one_channel(samples: list[Sample]) -> None:
    assert ImageStore(samples, data()).load([0, 1, 2]).images.shape == (3, 1, SIZE, SIZE)


def test_kept_images_are_decoded_once_and_others_each_time(
    samples: list[Sample], decoded: list[str]
) -> None:
    kept = ImageStore(samples, data())
    for _ in range(3):
        kept.load([0, 1, 2, 0])
    assert sorted(decoded) == ["0.png", "1.png", "2.png"]
    decoded.clear()
    unkept = ImageStore(samples, data(0))
    for _ in range(3):
        unkept.load([0, 0])
    assert decoded == ["0.png"] * 3


def test_the_budget_bounds_what_is_kept(samples: list[Sample], decoded: list[str]) -> None:
    grey = 2 * SIZE * SIZE
    store = ImageStore(samples, data(2.5 * grey / 1e9))
    for _ in range(2):
        store.load([0, 2, 4, 6])
    assert len(decoded) == 4 + 2


def test_what_is_prefetched_is_not_decoded_again(samples: list[Sample], decoded: list[str]) -> None:
    store = ImageStore(samples, data(0))
    store.prefetch([4, 5])
    store.prefetch([5, 4])
    store.load([5, 4])
    assert sorted(decoded) == ["4.png", "5.png"]


def test_many_prefetched_images_do_not_pile_up(
    samples: list[Sample], decoded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST_PREFETCH", 3)
    store = ImageStore(samples, data(0))
    store.prefetch(range(8))
    assert len(store.load(range(8)).images) == 8
    assert sorted(decoded) == [f"{number}.png" for number in range(8)]


def test_batches_may_be_changed_without_changing_the_store(samples: list[Sample]) -> None:
    store = ImageStore(samples, data())
    first = store.load([1])
    before = first.images.clone()
    first.images.zero_()
    first.masks.zero_()
    again = store.load([1])
    assert torch.equal(again.images, before)
    assert again.masks.any()


def test_a_bad_file_is_the_users_error_each_time(samples: list[Sample]) -> None:
    samples[2].image.write_bytes(b"not an image")
    store = ImageStore(samples, data())
    store.prefetch([2])
    for _ in range(2):
        with pytest.raises(UserError, match=r"2\.png"):
            store.load([1, 2])
    assert len(store.load([1, 0]).images) == 2


def test_threads_may_share_a_store(samples: list[Sample]) -> None:
    store = ImageStore(samples, data(1e-5))
    expected = store.load(range(8)).images
    outcomes: list[bool] = []

    def work() -> None:
        outcomes.extend(torch.equal(store.load(range(8)).images, expected) for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [True] * 15


def test_an_empty_batch_is_empty(samples: list[Sample]) -> None:
    assert ImageStore(samples, data()).load([]).images.shape == (0, 1, SIZE, SIZE)


def test_real_crops_load_with_masks_where_they_have_boxes(real_manifest_path: Path) -> None:
    samples = read_manifest(real_manifest_path).samples[::40]
    batch = ImageStore(samples, DataConfig(image_size=64)).load(range(len(samples)))
    assert batch.images.shape == (len(samples), 1, 64, 64)
    boxed = [sample.box is not None for sample in samples]
    assert batch.annotated.tolist() == boxed
    assert (~batch.boxes.isnan().any(1)).tolist() == boxed
    assert batch.masks.any(2).any(1).tolist() == boxed
