import json

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import InputError, Room, audit
from pyterrier_debias.audit.checkpoint import Checkpoint, DrawnFigure
from pyterrier_debias.findings import Finding, RoomResult
from pyterrier_debias.plots import new_axes, rendered
from tests.audit import worlds
from tests.audit.worlds import ORDER, PICKY


@pytest.fixture
def dataset():
    return worlds.collection()


class Counted:
    """A room that counts its runs, and breaks off for as long as it is told to."""

    def __init__(self, room, broken=False):
        self.room, self.broken, self.runs = room, broken, 0

    def __call__(self, context):
        self.runs += 1
        if self.broken:
            raise RuntimeError("out of memory")
        return self.room.run(context)

    @property
    def as_room(self):
        return Room(self.room.name, self.room.needs, self)


def test_a_finished_audit_is_read_again_and_is_the_same(dataset, tmp_path):
    whole = audit(worlds.systems(dataset), dataset, rooms=[ORDER, PICKY], baseline="BM25")
    rooms = [Counted(ORDER), Counted(PICKY)]
    options = {"rooms": [r.as_room for r in rooms], "baseline": "BM25", "checkpoint": tmp_path / "kept"}
    first = audit(worlds.systems(dataset), dataset, **options)
    again = audit(worlds.systems(dataset), dataset, **options)
    assert [r.runs for r in rooms] == [1, 1]
    for name in ("findings", "per_query", "skipped", "failed"):
        for result in (first, again):
            pd.testing.assert_frame_equal(getattr(result, name), getattr(whole, name))
    # Figures are drawn once; pages differ in nothing but the time.
    again.settings = first.settings = whole.settings
    assert first.to_html() == again.to_html() == whole.to_html()
    assert again.save(tmp_path / "saved").joinpath("order-change.png").read_bytes().startswith(b"\x89PNG")


def test_rooms_that_broke_off_run_again_and_finished_ones_do_not(dataset, tmp_path):
    good, bad = Counted(ORDER), Counted(PICKY, broken=True)
    options = {"rooms": [good.as_room, bad.as_room], "checkpoint": tmp_path / "kept"}
    result = audit(worlds.systems(dataset), dataset, **options)
    assert result.failed["bias"].tolist() == ["picky"] and set(result.findings["bias"]) == {"order"}
    bad.broken = False
    result = audit(worlds.systems(dataset), dataset, **options)
    assert result.failed.empty and set(result.findings["bias"]) == {"order", "picky"}
    assert (good.runs, bad.runs) == (1, 2)


def test_an_interruption_keeps_what_had_finished(dataset, tmp_path):
    class Impatient(Counted):
        def __call__(self, context):
            raise KeyboardInterrupt

    good = Counted(ORDER)
    with pytest.raises(KeyboardInterrupt):
        rooms = [good.as_room, Impatient(PICKY).as_room]
        audit(worlds.systems(dataset), dataset, rooms=rooms, checkpoint=tmp_path / "kept")
    audit(worlds.systems(dataset), dataset, rooms=[good.as_room, PICKY], checkpoint=tmp_path / "kept")
    assert good.runs == 1


def test_rooms_may_be_added_and_correction_changed(dataset, tmp_path):
    audit(worlds.systems(dataset), dataset, rooms=[ORDER], checkpoint=tmp_path / "kept")
    options = {"rooms": [ORDER, PICKY], "checkpoint": tmp_path / "kept", "correction": "bonferroni", "baseline": "BM25"}
    assert set(audit(worlds.systems(dataset), dataset, **options).findings["bias"]) == {"order", "picky"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 1}, "seed is 0 there and 1 here"),
        ({"depth": 7}, "depth is 100 there and 7 here"),
        ({"draws": 2}, "draws is None there and 2 here"),
        ({"topics": 3}, "its topics differ"),
        ({"qrels": worlds.collection().get_qrels().assign(label=2)}, "its judgements differ"),
    ],
)
def test_other_settings_are_refused(dataset, tmp_path, options, message):
    audit(worlds.systems(dataset), dataset, rooms=[ORDER], checkpoint=tmp_path / "kept")
    before = {f.name: f.read_bytes() for f in (tmp_path / "kept").iterdir()}
    with pytest.raises(InputError, match=message):
        audit(worlds.systems(dataset), dataset, rooms=[ORDER], checkpoint=tmp_path / "kept", **options)
    assert {f.name: f.read_bytes() for f in (tmp_path / "kept").iterdir()} == before


def test_other_systems_are_refused(dataset, tmp_path):
    first, texts = pt.Transformer.from_df(dataset.get_runs()["bm25"]), dataset.text_loader()
    ranker = worlds.CountingRanker

    def go(systems):
        audit(systems, dataset, rooms=[ORDER], checkpoint=tmp_path / "kept")

    go({"a": first >> texts >> ranker()})
    go({"a": first >> texts >> ranker()})
    with pytest.raises(InputError, match="its systems are a, not b"):
        go({"b": first >> texts >> ranker()})
    with pytest.raises(InputError, match="made of other stages"):
        go({"a": first >> texts})
    # The same class and the same name: only its scores give it away.
    with pytest.raises(InputError, match="scores otherwise, as one with other weights would"):
        go({"a": first >> texts >> ranker(sign=-1)})
    fewer = pt.Transformer.from_df(dataset.get_runs()["bm25"].query("rank == 0"))
    with pytest.raises(InputError, match="retrieves other documents"):
        go({"a": fewer >> texts >> ranker()})


def test_folders_that_are_no_checkpoint(dataset, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="holds something else"):
        audit(worlds.systems(dataset), dataset, rooms=[ORDER], checkpoint=tmp_path / "mine")
    with pytest.raises(InputError, match="is a file"):
        Checkpoint(tmp_path / "mine" / "thesis.tex")
    (tmp_path / "mine" / "checkpoint.json").write_text("{")
    with pytest.raises(InputError, match="damaged"):
        audit(worlds.systems(dataset), dataset, rooms=[ORDER], checkpoint=tmp_path / "mine")


def test_a_file_that_cannot_be_read_makes_its_room_run_again(dataset, tmp_path):
    room = Counted(ORDER)
    audit(worlds.systems(dataset), dataset, rooms=[room.as_room], checkpoint=tmp_path / "kept")
    (file,) = (tmp_path / "kept").glob("room-order-*.json")
    file.write_text(file.read_text()[:-20])
    audit(worlds.systems(dataset), dataset, rooms=[room.as_room], checkpoint=tmp_path / "kept")
    assert room.runs == 2
    json.loads(file.read_text())


def test_numbers_survive_exactly(tmp_path):
    values = pd.DataFrame(
        {"system": "s", "bias": "b", "measure": "m", "group": "g", "qid": ["1", "2"], "value": [0.1 + 0.2, np.nan]}
    )
    finding = Finding("s", "b", "m", "g", 1 / 3, low=-np.inf, n=np.int64(2), primary=np.bool_(True))
    kept = Checkpoint(tmp_path / "kept")
    kept.keep("r", RoomResult([finding], values))
    back = kept.kept("r")
    assert back.findings[0].value == 1 / 3 and back.findings[0].low == -np.inf and np.isnan(back.findings[0].p)
    pd.testing.assert_frame_equal(back.per_query, values, check_dtype=False)
    assert kept.kept("other") is None


def test_a_drawn_figure_can_be_drawn_onto_axes():
    figure = DrawnFigure.of(worlds._run(_context()).figures[0])
    axes = new_axes()
    figure.draw(axes)
    assert len(axes.images) == 1
    assert rendered(axes.figure).startswith(b"\x89PNG")


def _context():
    from pyterrier_debias.systems import Context

    dataset = worlds.collection()
    return Context([worlds.bm25_system(dataset)], dataset, dataset.get_topics(), dataset.get_qrels())
