"""What is logged over and over in one run is logged once."""

import logging

import pytest

from pyterrier_debias import CrossEncoder, PositionSensitivity, RotatePassages
from pyterrier_debias.core.telling import gathered, warn_of
from tests import tiny_models
from tests.contract_cases import texts

LOGGER = logging.getLogger("pyterrier_debias.example")


def test_sums(caplog):
    warn_of(LOGGER, "%d of %d cut", 1, 2)
    with pytest.raises(ZeroDivisionError), gathered():
        with gathered():
            warn_of(LOGGER, "%d of %d cut", 1, 2)
        warn_of(LOGGER, "%d of %d cut", 3, 5)
        warn_of(LOGGER, "%d others", 1)
        assert len(caplog.messages) == 1
        raise ZeroDivisionError
    assert caplog.messages == ["1 of 2 cut", "4 of 7 cut (in all of 2 calls)", "1 others"]


def test_a_probe_tells_once_what_its_ranker_cuts(tmp_path, caplog):
    ranker = CrossEncoder(tiny_models.build(tmp_path / "model"), max_length=12)
    ranker(texts())
    (alone,) = (message for message in caplog.messages if "were cut" in message)
    caplog.clear()
    PositionSensitivity(ranker, draws=2, queries_per_call=1).evaluate(texts(), texts()[["qid", "docno"]].assign(label=1))
    told = [message for message in caplog.messages if "were cut" in message]
    assert len(told) == 1 and told[0].startswith("CrossEncoder: ") and "calls)" in told[0]
    number = [int(message.split()[1]) for message in (alone, told[0])]
    assert number[1] > number[0]
    rotated = [message for message in caplog.messages if "never change" in message]
    assert len(rotated) <= 1


def test_outside_of_a_run_each_call_tells(caplog):
    for _ in range(2):
        RotatePassages()(texts())
    assert sum("never change" in message for message in caplog.messages) == 2
