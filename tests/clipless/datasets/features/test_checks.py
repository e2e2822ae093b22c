import pytest
import torch
from torch import nn

from clipless.datasets.features.checks import check_rows_alone, check_unchanged, make_probes
from clipless.datasets.features.encode import OpenFeatures
from clipless.datasets.features.encoders import RowKind, open_encoder
from clipless.errors import DataError

from .conftest import NUMBERS, PICTURES, Counted, Shortest


class Map(nn.Module):
    """A module whose pass is a function of itself and its rows."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.register_buffer("mean", torch.zeros(64))
        self.seen = 0

    def forward(self, x):
        return self.function(self, x.flatten(1))


def running_mean(self, x):
    self.mean.mul_(0.9).add_(x.mean(dim=0), alpha=0.1)
    return x - self.mean


def counting(self, x):
    self.seen += 1
    return x + self.seen


FAULTS = {
    "training mode": (lambda: Counted(64), r"layer top \(Counted\) is in training mode: return the module after .eval"),
    "one layer in training mode": (
        lambda: nn.Sequential(nn.Flatten(), nn.Dropout(0.0).train()).eval().train(False).append(nn.Dropout(0.0)),
        r"layer 2 \(Dropout\) is in training mode",
    ),
    "statistics of the batch": (
        lambda: nn.Sequential(nn.BatchNorm2d(1, track_running_stats=False)).eval(),
        "normalises by statistics of the batch",
    ),
    "a batch's mean": (lambda: Map(lambda _, x: 2 * x - x.mean(dim=0)).eval(), "with another row of its batch"),
    "a batch's largest": (lambda: Map(lambda _, x: x / x.abs().max()).eval(), "with another row of its batch"),
    "a running mean": (lambda: Map(running_mean).eval(), "with the rows before it, or by chance"),
    "a count": (lambda: Map(counting).eval(), "with the rows before it, or by chance"),
    "chance": (lambda: Map(lambda _, x: nn.functional.dropout(x, training=True)).eval(), "or by chance"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_encoder_that_does_not_treat_each_row_alone_is_refused(encoders, declare, fault):
    encoders.faulty, why = FAULTS[fault][0], FAULTS[fault][1]
    encoder = open_encoder(declare("faulty", clip=1e3), PICTURES)
    with pytest.raises(DataError, match=rf"'tiny' to make the features of each row of that row alone, but .*{why}"):
        check_rows_alone(encoder, make_probes(PICTURES))


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: Counted(64), PICTURES),
        (lambda: Counted(13), NUMBERS),
        (lambda: nn.Sequential(nn.BatchNorm2d(1), nn.Flatten()), PICTURES),
        (Shortest, RowKind("letters", (40,), "bytes of text")),
        (lambda: Map(lambda _, x: x.reshape(1, 64)), PICTURES),  # takes one row at a time
    ],
    ids=["pictures", "numbers", "batch norm with its own statistics", "texts", "one row at a time"],
)
def test_an_encoder_that_treats_each_row_alone_passes(encoders, declare, make, kind):
    encoders.sound = lambda: make().eval()
    encoder, probes = open_encoder(declare("sound", clip=1e3), kind), make_probes(kind)
    check_unchanged(encoder, probes, check_rows_alone(encoder, probes))


class Choosy(nn.Module):
    """A module that raises on rows that are not finite, or beyond a limit."""

    def __init__(self, limit):
        super().__init__()
        self.limit = limit

    def forward(self, x):
        if not bool(torch.isfinite(x).all()) or float(x.abs().max()) > self.limit:
            raise ValueError("rows have to be\nfinite")
        return x.flatten(1)


def test_an_encoder_need_not_take_wild_rows_but_other_made_up_ones(encoders, declare):
    encoders.choosy = lambda: Choosy(1e6).eval()
    encoder, probes = open_encoder(declare("choosy"), PICTURES), make_probes(PICTURES)
    check_unchanged(encoder, probes, check_rows_alone(encoder, probes))
    encoders.choosy = lambda: Choosy(0.0).eval()
    sentence = (
        r"'tiny' to take rows of the data set, but it does not take made-up ones: ValueError: rows have to be finite"
    )
    with pytest.raises(DataError, match=sentence):
        check_rows_alone(open_encoder(declare("choosy"), PICTURES), probes)


def test_an_encoder_that_takes_no_made_up_row_any_more_is_refused_without_its_text(encoders, declare):
    def remember(self, x):
        if self.seen:
            raise ValueError("secret")
        self.seen += int(float(x.max()) == 0.75)
        return x

    encoders.late = lambda: Map(remember).eval()
    encoder, probes = open_encoder(declare("late", clip=1e3), PICTURES), make_probes(PICTURES)
    opened = OpenFeatures(encoder, probes, check_rows_alone(encoder, probes))
    with pytest.raises(DataError, match="but rows that went through have changed it") as caught:
        opened.encode(torch.full((3, 1, 8, 8), 0.75))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("lasting", [True, False], ids=["state", "behaviour"])
def test_an_encoder_that_rows_have_changed_is_refused_afterwards(encoders, declare, lasting):
    """It behaves while made-up rows go through, and remembers the first row that is unlike them."""

    def remember(self, x):
        if float(x.max()) == 0.75:
            if lasting:
                self.mean += 1.0
            else:
                self.seen += 1
        return x + self.seen

    encoders.late = lambda: Map(remember).eval()
    encoder, probes = open_encoder(declare("late", clip=1e3), PICTURES), make_probes(PICTURES)
    opened = OpenFeatures(encoder, probes, check_rows_alone(encoder, probes))
    opened.encode(torch.full((3, 1, 8, 8), 0.5))
    with pytest.raises(DataError, match="but rows that went through have changed it"):
        opened.encode(torch.full((3, 1, 8, 8), 0.75))
