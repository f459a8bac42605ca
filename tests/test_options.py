"""Keywords that do not exist are refused by name, for every public class and function."""

import copy
import inspect
import pickle
import re
from pathlib import Path

import pytest

import pyterrier_debias
from pyterrier_debias import CrossEncoder, Disparity, InputError, NFaiRR, PositionSensitivity, RotatePassages, Training, audit
from pyterrier_debias.core.options import ALIASES, UnknownOptionError, suggested

PUBLIC = sorted(set(pyterrier_debias.__all__) - {"__version__", "InputError", "Bias"})


def parameters(public):
    found = inspect.signature(public.__init__ if isinstance(public, type) else public).parameters
    return [name for name in found if name != "self" and not name.startswith("_")]


@pytest.mark.parametrize("name", PUBLIC)
def test_unknown_keywords(name):
    """Before anything else is looked at, required arguments included."""
    public = getattr(pyterrier_debias, name)
    message = f"^{name} has no option 'no_such_thing'; it has .*{parameters(public)[0]}"
    with pytest.raises(UnknownOptionError, match=message) as told:
        public(no_such_thing=1)
    options = str(told.value).partition("it has ")[2].split(", ")
    assert len(options) == len(set(options))
    long = max(parameters(public), key=len)
    with pytest.raises(UnknownOptionError, match=rf"^{name} has no option '{long}z'; did you mean '{long}'\?"):
        public(**{f"{long}z": 1})


@pytest.mark.parametrize("name", PUBLIC)
def test_too_many_positional_arguments(name):
    """Named by the public class or function, with the options that are taken by name."""
    public = getattr(pyterrier_debias, name)
    known = inspect.signature(public.__init__ if isinstance(public, type) else public).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in known):
        pytest.skip("takes any number of arguments")
    most = sum(p.kind is not p.KEYWORD_ONLY and p.kind is not p.VAR_KEYWORD and p.name != "self" for p in known)
    by_name = next((p.name for p in known if p.kind is p.KEYWORD_ONLY), "it has no other options")
    takes = "no" if most == 0 else f"at most {most}"
    with pytest.raises(UnknownOptionError, match=f"^{name} takes {takes} positional .*, but {most + 1} w.* given; .*{by_name}"):
        public(*[None] * (most + 1))


@pytest.mark.parametrize("name", PUBLIC)
def test_words_of_other_libraries(name):
    public = getattr(pyterrier_debias, name)
    known = parameters(public)
    for alias, meant in ALIASES.items():
        meant = next((one for one in meant if one in known), None)
        if alias in known or meant is None or any(p.kind is p.VAR_KEYWORD for p in inspect.signature(public).parameters.values()):
            continue
        with pytest.raises(UnknownOptionError, match=rf"no option '{alias}'; did you mean '{meant}'\?"):
            public(**{alias: 1})


@pytest.mark.parametrize(("alias", "meant"), [
    ("lr", "learning_rate"), ("num_epochs", "epochs"), ("n_epochs", "epochs"), ("epoch", "epochs"),
    ("warmup_steps", "warmup"), ("warmup_ratio", "warmup"), ("max_grad_norm", "clip"), ("random_state", "seed"),
    ("lerning_rate", "learning_rate"),
])  # fmt: skip
def test_training(alias, meant):
    with pytest.raises(InputError, match=rf"Training has no option '{alias}'; did you mean '{meant}'\?"):
        Training(**{alias: 1})
    with pytest.raises(TypeError, match=rf"did you mean {'.' if meant == 'seed' else 'training=Training.'}{meant}"):
        CrossEncoder("model", **{alias: 1})


@pytest.mark.parametrize(("alias", "meant"), [
    ("max_len", "max_length"), ("max_seq_length", "max_length"), ("device_map", "device"), ("torch_dtype", "dtype"),
    ("batch_size", "batch_tokens"), ("text_attr", "text_field"), ("body_attr", "text_field"), ("batch", "batch_tokens"),
])  # fmt: skip
def test_rankers(alias, meant):
    with pytest.raises(UnknownOptionError, match=rf"CrossEncoder has no option '{alias}'; did you mean '{meant}'\?"):
        CrossEncoder("model", **{alias: 1})


def test_what_works_stays():
    """Copies, pickles, signatures, measures with options of others."""
    for made in (RotatePassages(seed=3), Training(epochs=2), NFaiRR(depth=3, threshold=2) @ 10, NFaiRR(text_field="body") @ 5):
        assert copy.deepcopy(made) == made == pickle.loads(pickle.dumps(made))
    assert "epochs" in inspect.signature(Training).parameters and inspect.signature(audit).parameters["depth"].default == 100
    assert pickle.loads(pickle.dumps(audit)) is audit

    class Mine(RotatePassages):
        """With any further option."""

        def __init__(self, **others):
            super().__init__()
            self.others = others

    assert Mine(anything=1).others == {"anything": 1}
    assert suggested("completely_different", ["seed"]) is None


def test_draws_are_variants_of_texts():
    """How often a test or an interval resamples is ``resamples`` everywhere; ``draws`` are random variants of each text."""
    package = Path(pyterrier_debias.__file__).parent
    named = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"\bdraws: (int|Any)", path.read_text(encoding="utf-8"))
    }
    of_audits = {"core/systems.py", "report/inputs.py", "report/request.py", "report/run.py"}
    assert named == {"position/measures/sensitivity.py", *of_audits}
    with pytest.raises(UnknownOptionError, match=r"no option 'draws'; did you mean 'resamples'\?"):
        Disparity(draws=9)
    with pytest.raises(UnknownOptionError, match=r"no option 'n_permutations'; did you mean 'resamples'\?"):
        PositionSensitivity(None, n_permutations=9)
    with pytest.raises(UnknownOptionError, match=r"no option 'n_draws'; did you mean 'draws'\?"):
        audit(n_draws=9)
