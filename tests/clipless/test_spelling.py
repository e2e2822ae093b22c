import pytest

from clipless.spelling import did_you_mean, did_you_mean_file


@pytest.mark.parametrize(
    ("name", "hint"), [("ADM", "; did you mean 'adam'?"), ("rmsprop", ""), (5, ""), ("sgdd", "; did you mean 'sgd'?")]
)
def test_the_nearest_of_the_known_names_is_meant_if_one_is_near(name, hint):
    assert did_you_mean(name, ["sgd", "adam"], before="; ") == hint


def test_of_folders_that_begin_with_the_name_the_last_is_meant(tmp_path):
    for name in ("digits-20261123-080000", "digits-20261124-192310", "digit"):
        (tmp_path / name).mkdir()
    assert did_you_mean_file(tmp_path / "digits-2026") == f"did you mean {tmp_path / 'digits-20261124-192310'}?"


def test_the_nearest_file_that_ends_alike_is_meant(tmp_path):
    for name in ("ward.csv", "wad.yaml", "other.csv"):
        (tmp_path / name).touch()
    assert did_you_mean_file(tmp_path / "wad.csv") == f"did you mean {tmp_path / 'ward.csv'}?"
    assert did_you_mean_file(tmp_path / "patients.csv") == ""
    assert did_you_mean_file(tmp_path / "nowhere" / "wad.csv", before="; ") == ""


@pytest.mark.parametrize(("there", "named"), [("german.csv", "german.cvs"), ("small.yaml", "small.yml")])
def test_a_mistyped_ending_is_matched_too(tmp_path, there, named):
    (tmp_path / there).touch()
    assert did_you_mean_file(tmp_path / named) == f"did you mean {tmp_path / there}?"
