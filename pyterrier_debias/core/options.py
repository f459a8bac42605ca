"""Errors for options that a class or function does not have, or does not take by position; they suggest the intended one."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Any, TypeVar

from pyterrier_debias.core.errors import InputError

T = TypeVar("T")


class UnknownOptionError(InputError, TypeError):
    """Raised for options that do not exist, or that must be given by name; also a ``TypeError``, like Python's own error."""


#: Our options, and what Hugging Face, sentence-transformers, Lightning, scikit-learn and plugins of PyTerrier call them.
_CALLED = {
    "learning_rate": "lr learn_rate eta step_size",
    "epochs": "epoch n_epochs num_epochs num_train_epochs max_epochs",
    "max_steps": "steps num_steps max_iter total_steps",
    "batch_size": "batch bs batchsize train_batch_size per_device_train_batch_size",
    "batch_tokens": "batch batch_size bs eval_batch_size per_device_eval_batch_size",
    "accumulation": "grad_accumulation gradient_accumulation_steps accumulate_grad_batches",
    "warmup": "warmup_steps warmup_ratio num_warmup_steps",
    "schedule": "scheduler lr_scheduler lr_scheduler_type",
    "clip": "max_grad_norm gradient_clip_val grad_clip",
    "weight_decay": "wd l2",
    "precision": "fp16 bf16 amp mixed_precision",
    "dtype": "torch_dtype float_type fp16 bf16",
    "loss": "loss_fn loss_function criterion objective",
    "negatives_per_positive": "num_negatives n_negatives num_negs",
    "negatives": "sampler negative_sampler",
    "patience": "early_stopping early_stopping_patience early_stop",
    "evaluate_every": "eval_steps evaluation_steps validate_every",
    "checkpoints": "output_dir save_dir checkpoint_dir out_dir",
    "resume": "resume_from_checkpoint",
    "workers": "num_workers dataloader_num_workers n_jobs",
    "log_every": "logging_steps log_steps",
    "log_to": "report_to logger",
    "augment": "augmentation augmenter transforms",
    "model": "model_name model_name_or_path pretrained model_id path",
    "ranker": "reranker model",
    "max_length": "max_len max_seq_length max_seq_len maxlen max_tokens doc_maxlen",
    "device": "device_map gpu cuda use_gpu no_cuda",
    "pooling": "pool pooling_mode",
    "similarity": "sim similarity_fn_name distance",
    "text_field": "text_attr body_attr text_column text_col text_key field body_field",
    "column": "text_column field",
    "seed": "random_state random_seed rng manual_seed",
    "cutoffs": "k cutoff cut_off top_k topk at",
    "depth": "k cutoff cut_off top_k topk num_results",
    "draws": "n_draws rotations n_rotations variants",
    "resamples": "draws n_resamples n_bootstrap n_boot num_bootstrap n_permutations permutations",
    "level": "alpha confidence confidence_level ci",
    "measures": "eval_metrics metrics metric measure",
    "metric": "eval_metric measure measures",
    "effectiveness": "eval_metrics metrics metric measure measures",
    "min_label": "min_rel rel relevance_level min_grade",
    "tokeniser": "tokenizer",
    "normalise": "normalize normalization",
    "normaliser": "normalizer normalize",
    "lemmatiser": "lemmatizer",
    "correction": "corrections p_adjust",
    "wordlist": "word_list words lexicon",
    "verbose": "progress show_progress show_progress_bar tqdm",
    "tau": "temperature temp",
    "systems": "pipelines retr_systems rankers",
    "topics": "queries",
    "qrels": "judgements judgments labels",
    "biases": "bias",
}

#: Such a word to the options that it may stand for.
ALIASES = {
    word: tuple(option for option, words in _CALLED.items() if word in words.split())
    for word in dict.fromkeys(" ".join(_CALLED.values()).split())
}


def suggested(option: str, known: list[str]) -> str | None:
    """The option that a user probably meant by one that does not exist.

    Args:
        option: The given option.
        known: The options that exist.

    Returns:
        The option that has this name in other libraries, otherwise the most similar one; None if there is none.

    Example:
        >>> suggested("lr", ["epochs", "learning_rate"]), suggested("epocs", ["epochs"]), suggested("x", ["epochs"])
        ('learning_rate', 'epochs', None)
    """
    for meant in ALIASES.get(option.lower(), ()):
        if meant in known:
            return meant
    return next(iter(difflib.get_close_matches(option.lower(), known, n=1, cutoff=0.7)), None)


@cache
def _options(function: Callable[..., Any]) -> tuple[tuple[str, ...], bool]:
    """The keywords of a function, and whether it takes any others."""
    parameters = list(inspect.signature(function).parameters.values())
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return tuple(name for name in named if name != "self"), any(p.kind is p.VAR_KEYWORD for p in parameters)


@cache
def _positional(function: Callable[..., Any]) -> int | None:
    """How many arguments a function takes by position, ``self`` left out; None for any number."""
    parameters = list(inspect.signature(function).parameters.values())
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.name != "self" for p in parameters)


def check_options(
    where: str, function: Callable[..., Any], given: Mapping[str, Any], more: tuple[str, ...] = (), positional: int = 0
) -> None:
    """Refuse keywords that a function does not have, and more positional arguments than it takes.

    Args:
        where: The class or function that the message names.
        function: The function to be called with them.
        given: The keywords.
        more: Further keywords of a function that takes any.
        positional: The number of positional arguments, without ``self``.

    Raises:
        UnknownOptionError: If there is such a keyword; the message names the first one and the option that was probably meant.
            Also if there are too many positional arguments; the message lists the options to give by name.

    Example:
        >>> check_options("sorted", lambda self, *, key=None, reverse=False: None, {"revers": True})
        Traceback (most recent call last):
        pyterrier_debias.core.options.UnknownOptionError: sorted has no option 'revers'; did you mean 'reverse'?
    """
    most = _positional(function)
    if most is not None and positional > most:
        by_name = [name for name in [*_options(function)[0][most:], *more] if not name.startswith("_")]
        takes = f"at most {most} positional argument{'s' * (most != 1)}" if most else "no positional arguments"
        remedy = f"name the option: {', '.join(dict.fromkeys(by_name))}" if by_name else "it has no other options"
        were = "was" if positional == 1 else "were"
        raise UnknownOptionError(f"{where} takes {takes}, but {positional} {were} given; {remedy}")
    if not given:
        return
    named, others = _options(function)
    if others and not more:
        return
    known = [name for name in dict.fromkeys([*named, *more]) if not name.startswith("_")]
    bad = next((name for name in given if name not in named and name not in more), None)
    if bad is None:
        return
    meant = suggested(bad, known)
    if meant is None and "training" in known:
        inside = suggested(bad, _training_options())
        if inside is not None:
            raise UnknownOptionError(f"{where} has no option {bad!r}; did you mean training=Training({inside}=...)?")
    remedy = f"did you mean {meant!r}?" if meant else f"it has {', '.join(known)}" if known else "it has no options"
    raise UnknownOptionError(f"{where} has no option {bad!r}; {remedy}")


def _training_options() -> list[str]:
    """The options of the class that options of training belong to, which is above this layer."""
    import pyterrier_debias

    return list(_options(pyterrier_debias.Training.__init__)[0])


def with_known_options(public: T) -> T:
    """Make a class or function refuse keywords that it does not have; the package applies this to its public names.

    Args:
        public: A class, which is changed (stages inherit this from :class:`~pyterrier_debias.core.stage.Stage`), or a function,
            which is wrapped; anything else is returned unchanged.

    Returns:
        The class, or the wrapped function.
    """
    if isinstance(public, type):
        import pyterrier as pt  # by now the module of the name has loaded it; the package itself does not

        if not issubclass(public, (pt.Transformer, BaseException)) and "_known_options" not in vars(public):
            _in_class(public)
        return public
    if not inspect.isfunction(public) or hasattr(public, "__known_options__"):
        return public

    @wraps(public)
    def called(*args: Any, **kwargs: Any) -> Any:
        check_options(public.__name__, public, kwargs, positional=len(args))
        return public(*args, **kwargs)

    called.__known_options__ = True  # type: ignore[attr-defined]
    return called  # type: ignore[return-value]


@cache
def _passed_on(kind: Any) -> tuple[str, ...]:
    """What a measure of ir_measures takes, itself or for those that it is made from."""
    if not hasattr(kind, "SUPPORTED_PARAMS"):
        return ()
    inits = [vars(one)["__init__"] for one in kind.__mro__ if "__init__" in vars(one) and one is not object]
    return tuple(dict.fromkeys([*kind.SUPPORTED_PARAMS, *(name for init in inits for name in _options(init)[0])]))


def _in_class(kind: Any) -> None:
    """Look at the keywords before ``__init__`` does."""
    init = kind.__init__
    if init is object.__init__:
        return

    @wraps(init)
    def started(self: Any, *args: Any, **kwargs: Any) -> None:
        check_options(type(self).__name__, init, kwargs, _passed_on(self.__class__), len(args))
        init(self, *args, **kwargs)

    kind.__init__ = started
    kind._known_options = True
