import os
import stat

import pytest
import torch

from clipless.datasets.features.checks import make_probes
from clipless.datasets.features.encoders import open_encoder
from clipless.datasets.features.store import MOST_SECONDS, clean, key_of, read_features, write_features

from .conftest import PICTURES

ROWS = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(5))
FEATURES = torch.arange(6.0).repeat(len(ROWS), 1)


@pytest.fixture
def kept(cache):
    write_features("a" * 64, FEATURES)
    return cache / f"{'a' * 64}.npz"


def test_features_are_read_back_by_their_owner_alone(kept):
    assert torch.equal(read_features("a" * 64, len(ROWS)), FEATURES)
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_a_folder_that_others_may_enter_is_closed_and_what_it_held_is_not_used(kept):
    kept.parent.chmod(0o755)
    assert read_features("a" * 64, len(ROWS)) is None
    write_features("b" * 64, FEATURES)
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700


def test_a_link_in_the_place_of_the_folder_is_not_used(kept, tmp_path):
    kept.parent.rename(tmp_path / "elsewhere")
    kept.parent.symlink_to(tmp_path / "elsewhere")
    assert read_features("a" * 64, len(ROWS)) is None
    (tmp_path / "elsewhere").chmod(0o755)
    write_features("b" * 64, FEATURES)
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == [kept.name]
    assert stat.S_IMODE((tmp_path / "elsewhere").stat().st_mode) == 0o755, "which is not ours to change"


@pytest.mark.parametrize("damage", ["cut", "changed", "other rows", "gone"])
def test_a_file_that_is_not_what_it_was_is_not_used(kept, damage):
    content = bytearray(kept.read_bytes())
    if damage == "cut":
        kept.write_bytes(content[: len(content) // 2])
    if damage == "changed":
        import numpy as np

        with np.load(kept) as archive:
            arrays = dict(archive)
        arrays["features"][0, 0] += 1.0
        np.savez(kept, **arrays)
    if damage == "gone":
        kept.unlink()
    assert read_features("a" * 64, len(ROWS) - (damage == "other rows")) is None


def test_every_thing_that_decides_features_decides_their_name(declare):
    encoder, probes = open_encoder(declare(), PICTURES), make_probes(PICTURES)
    probed = torch.stack([encoder(row) for row in probes])
    same = key_of(encoder, probed, ROWS)
    assert key_of(open_encoder(declare(), PICTURES), probed, ROWS.clone()) == same
    moved = probed.clone()
    moved[0, 0] = torch.nextafter(moved[0, 0], torch.tensor(9.0))
    changed = ROWS.clone()
    changed[0, 0, 0, 0] += 0.125
    others = {
        key_of(open_encoder(declare("other"), PICTURES), probed, ROWS),
        key_of(open_encoder(declare(clip=3.0), PICTURES), probed, ROWS),
        key_of(open_encoder(declare(resize=9), PICTURES), probed, ROWS),
        key_of(encoder, moved, ROWS),
        key_of(encoder, probed, changed),
        key_of(encoder, probed, ROWS[:-1]),
    }
    assert len(others - {same}) == 6


def test_what_nobody_has_used_for_long_goes_and_the_oldest_of_too_many(cache):
    now = 1e9
    cache.mkdir(parents=True)
    for age, name in ((10.0, "new"), (20.0, "old"), (MOST_SECONDS + 1.0, "stale")):
        (cache / f"{name}.npz").write_bytes(b"x" * 100)
        os.utime(cache / f"{name}.npz", (now - age, now - age))
    clean(cache, now)
    assert {path.stem for path in cache.iterdir()} == {"new", "old"}
    clean(cache, now, most_bytes=150)
    assert {path.stem for path in cache.iterdir()} == {"new"}


def test_a_cache_that_cannot_be_written_keeps_nothing_and_stops_nobody(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SWEEPER_CACHE", str(tmp_path / "file"))
    write_features("a" * 64, FEATURES)
    assert read_features("a" * 64, len(ROWS)) is None
