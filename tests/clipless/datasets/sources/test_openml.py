import socket
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest

from clipless.datasets.sources.openml import cache_dir, checksum, download, read_or_fetch
from clipless.errors import DataError

ARRAYS = {"x": np.arange(6, dtype=np.uint8).reshape(2, 3), "t": np.array(["a", "bc"])}


def test_the_cache_is_where_the_user_says_or_in_the_users_cache(monkeypatch, tmp_path):
    assert cache_dir() == tmp_path / "cache"
    monkeypatch.delenv("SWEEPER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "sweeper"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == Path.home() / ".cache" / "sweeper"


def test_a_data_set_is_fetched_once_and_read_back_alike():
    fetched = []

    def fetch():
        fetched.append(1)
        return ARRAYS

    for _ in range(3):
        arrays = read_or_fetch("toy", fetch)
        assert all(np.array_equal(arrays[name], ARRAYS[name]) for name in ARRAYS)
        assert set(arrays) == set(ARRAYS)
    assert fetched == [1]
    assert [path.name for path in cache_dir().iterdir()] == ["toy.npz"]


def test_the_checksum_is_of_a_canonical_form():
    one = checksum(ARRAYS)
    assert one == "040b3cd5ab46a11447a75ae1fe20f1f0d09ae5ba2c64183f909e0bb207c7b401"
    assert checksum(dict(reversed(ARRAYS.items()))) == one
    assert checksum(ARRAYS | {"x": np.asfortranarray(ARRAYS["x"])}) == one
    swapped = {"x": np.arange(3.0)}
    assert checksum({"x": swapped["x"].astype(">f8")}) == checksum(swapped)
    for other in (ARRAYS["x"].reshape(3, 2), ARRAYS["x"].astype(np.int8), ARRAYS["x"] + 1):
        assert checksum(ARRAYS | {"x": other}) != one
    assert checksum({"x2": ARRAYS["x"], "t": ARRAYS["t"]}) != one


def test_a_changed_cache_is_refused():
    read_or_fetch("toy", lambda: ARRAYS)
    path = cache_dir() / "toy.npz"
    with np.load(path) as archive:
        members = dict(archive)
    np.savez(path, **(members | {"x": ARRAYS["x"] + 1}))
    with pytest.raises(DataError, match=r"toy.npz does not match its checksum: delete it to fetch it again"):
        read_or_fetch("toy", lambda: ARRAYS)


@pytest.mark.parametrize("damage", [lambda b: b[:-30], lambda _: b"", lambda _: b"text"])
def test_a_damaged_cache_is_refused(damage):
    read_or_fetch("toy", lambda: ARRAYS)
    path = cache_dir() / "toy.npz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=r"Cannot read the cached file .*toy.npz: delete it"):
        read_or_fetch("toy", lambda: ARRAYS)


def test_a_fetch_that_fails_leaves_nothing_behind():
    def fail():
        raise DataError("offline")

    with pytest.raises(DataError, match="offline"):
        read_or_fetch("toy", fail)
    assert not cache_dir().exists()


def test_a_write_that_fails_leaves_nothing_behind(monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(DataError, match=r"Cannot write .*toy.npz: No space left on device; set SWEEPER_CACHE"):
        read_or_fetch("toy", lambda: ARRAYS)
    assert list(cache_dir().iterdir()) == []


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (URLError("Name or service not known"), "Name or service not known"),
        (TimeoutError(), "TimeoutError"),
        (ValueError("md5 checksum\nof local file differs"), "md5 checksum of local file differs"),
    ],
)
def test_without_a_network_one_sentence_names_the_remedy(monkeypatch, error, reason):
    seen = []

    def fail(**options):
        seen.append((options["data_id"], socket.getdefaulttimeout()))
        raise error

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fail)
    with pytest.raises(DataError) as caught:
        download("mnist", 554, "pass --data-dir", as_frame=False)
    message = f"Cannot fetch mnist from OpenML ({reason}): connect to the network, or pass --data-dir"
    assert str(caught.value) == message
    assert seen == [(554, 60.0)]
    assert socket.getdefaulttimeout() is None
