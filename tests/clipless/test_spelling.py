import pytest

from clipless.spelling import did_you_mean, did_you_mean_file


@pytest.mark.parametrize(
    ("name", "hint"), [("ADM", "; did you mean 'adam'?"), ("rmsprop", ""), (5, ""), ("sgdd", "; did you mean 'sgd'?")]
)
def test_the_nearest_of_the_known_names_is_meant_if_one_is_near(name, hint):
    assert did_you_mean(name, ["sgd", "adam"], before="; ") == hint


def test_the_nearest_file_that_ends_alike_is_meant(tmp_path):
    for name in ("ward.csv", "wad.yaml", "other.csv"):
        (tmp_path / name).touch()
    assert did_you_mean_file(tmp_path / "wad.csv") == f"did you mean {tmp_path / 'ward.csv'}?"
    assert did_you_mean_file(tmp_path / "patients.csv") == ""
    assert did_you_mean_file(tmp_path / "nowhere" / "wad.csv", before="; ") == ""
