"""The trainer: transformers' Trainer over a :class:`~pyterrier_debias.training.method.Method`.

Imported only when training begins: it needs torch and transformers. It does not depend on the architecture. If ``torchrun`` or
``accelerate launch`` starts the program, several devices are used; nothing else changes.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pyterrier as pt
import torch
import transformers
from transformers.trainer import OPTIMIZER_NAME, SCALER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME
from transformers.trainer_callback import EarlyStoppingCallback, PrinterCallback, ProgressCallback

from pyterrier_debias._version import __version__
from pyterrier_debias.core.cache_key import trainable_fingerprint
from pyterrier_debias.core.errors import InputError, kind_of, one_line
from pyterrier_debias.core.files import (
    PACKAGE,
    check_files,
    check_seal,
    checksums,
    entries,
    is_unfinished,
    locked_inside,
    remove_written,
    sealed,
    whole_folder,
    write_whole,
)
from pyterrier_debias.core.locks import scratch_folder
from pyterrier_debias.training.examples import Example, Examples, run_length
from pyterrier_debias.training.groups import Groups
from pyterrier_debias.training.method import Method
from pyterrier_debias.training.options import Training, saveable
from pyterrier_debias.training.precision import default_precision, default_workers, tf32
from pyterrier_debias.training.report import HOLDS, TrainingReport
from pyterrier_debias.training.seeds import RANDOM
from pyterrier_debias.training.validation import Validation

logger = logging.getLogger(__name__)

#: Written first into a checkpoint, and anew at the end: only then is it whole. It names the package and the checkpoint, so that
#: checkpoints of other programs, and copies under other names, are not taken for this package's.
_RECORD = "pyterrier_debias.json"
_WEIGHTS = "pytorch_model.bin"
_RANKER = "ranker"
#: How the name of a checkpoint ends of which nothing but its mark is left.
_REMOVED = f".removed.{PACKAGE}"
#: What else transformers writes into one.
_STATES = (TRAINER_STATE_NAME, OPTIMIZER_NAME, SCHEDULER_NAME, SCALER_NAME, "rng_state.pth", "rng_state_*.pth")

_SCHEDULES = {"linear": "linear", "cosine": "cosine", "constant": "constant_with_warmup"}


def train(
    ranker: Any, method: Method, groups: Groups, training: Training, validation: Validation | None = None
) -> TrainingReport:
    """Train a method's networks in place.

    Args:
        ranker: The ranker that is the result: it is evaluated, and written into every checkpoint.
        method: What is trained; owns the ranker's module.
        groups: The training data.
        training: The options.
        validation: The validation data; None for no evaluation.

    Returns:
        The report. The networks hold the best weights if there is validation data, else the last ones.

    Raises:
        InputError: For incompatible options, a checkpoint of another run, a full disk, or a loss that is not a number.
    """
    device = ranker.torch_device
    training = replace(
        training,
        learning_rate=method.rates(training.learning_rate),
        precision=default_precision(device) if training.precision is None else training.precision,
        workers=default_workers(device) if training.workers is None else training.workers,
    )
    _check(ranker, method, training)
    started, started_from = time.monotonic(), ranker.fingerprint()
    world, first = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0")) == 0
    per_epoch = Examples(groups, training, 0).units
    steps, effective = run_length(training, len(per_epoch))
    warmup = int(training.warmup if training.warmup >= 1 else round(training.warmup * steps))
    if warmup >= steps and first:
        logger.warning(
            "%s: the learning rate never reaches its peak, because its warm-up (warmup=%g) ends with step %d, and the run with "
            "step %d; lower warmup, or train for more steps",
            type(ranker).__name__,
            training.warmup,
            warmup,
            steps,
        )
    examples = Examples(groups, training, steps * effective, read=ranker.training_text)
    record = _run_record(ranker, method, training, groups, validation, examples, world)
    with ExitStack() as stack:
        stack.enter_context(as_found(ranker.torch_device))
        folder = _folder(training, stack, alone=first)
        checkpoint = _last_checkpoint(folder, training, record)
        epoch = max(1, math.ceil(len(per_epoch) / effective))
        arguments = _arguments(ranker, training, folder, steps, warmup, epoch, validation)
        if checkpoint is not None and _about_ours(checkpoint)["ended"]:
            state, best = _ended_in(checkpoint, method.to(arguments.device))
            before = _seconds(checkpoint)
        else:
            if arguments.save_strategy != "no" and first:
                _check_free(folder, checkpoint, arguments)
            trainer = _Trainer(
                ranker=ranker,
                training=training,
                validation=validation,
                record=record,
                started=started,
                method=method,
                arguments=arguments,
                examples=examples,
            )
            if training.precision == "tf32":
                stack.enter_context(tf32(True))
            with _messages_of_workers():
                trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
            trainer.check_losses()
            state, best = trainer.state, trainer.best
            before = trainer.before
        if best and first:
            _take_weights(method, _best_in(folder, best))
        if world > 1:
            # A temporary folder is the first process' own, and so are the best weights in it.
            for weight in (*method.parameters(), *method.buffers()):
                torch.distributed.broadcast(weight.detach(), 0)
    method.eval()
    if validation is not None and first:
        _tell_equal_values(type(ranker).__name__, validation, state, best)
    return TrainingReport(
        started_from=started_from,
        data=groups.fingerprint,
        counts=groups.counts,
        options=training.describe(),
        steps=state.global_step,
        best_step=best.get("step"),
        metric=None if validation is None else str(validation.metric),
        best=best.get("value"),
        depth=best.get("depth"),
        validation=best.get("per_query", {}),
        history=state.log_history,
        seconds=before + time.monotonic() - started,
    )


@contextmanager
def _messages_of_workers() -> Iterator[None]:
    """Raise errors of the processes that prepare batches with their own message, which torch puts behind their traceback."""
    try:
        yield
    except InputError as error:
        kind = type(error)
        trace, _, own = str(error).rpartition(f"\n{kind.__module__}.{kind.__qualname__}: ")
        if not trace.startswith(f"Caught {kind.__name__} in DataLoader worker process"):
            raise
        raise kind(own.rstrip("\n")) from error


def _tell_equal_values(name: str, validation: Validation, state: transformers.TrainerState, best: dict[str, Any]) -> None:
    """Log that validation could not tell the weights of a run apart, if it could not."""
    values = [entry[key] for entry in state.log_history if (key := f"eval_{_key(validation.metric)}") in entry]
    if len(values) > 1 and len(set(values)) == 1:
        logger.warning(
            "%s: %s is %.4f in all %d evaluations, so the weights of the first one (step %d) are kept; evaluate less often, or "
            "use more validation queries, or none",
            name,
            validation.metric,
            values[0],
            len(values),
            best["step"],
        )


def _run_record(
    ranker: Any, method: Method, training: Training, groups: Groups, validation: Validation | None, examples: Examples, world: int
) -> dict[str, Any]:
    """What a run and the run that resumes it must have in common."""
    record = {
        "data": groups.fingerprint,
        "validation": None if validation is None else validation.fingerprint(),
        "options": training.record(),
        "world": world,
        **method.record(),
        "ranker": ranker.record(),
    }
    if training.checkpoints is not None:
        json.dumps(ranker.saved_options())  # options that no folder can hold raise an error now, not at the first checkpoint
        # A resumed run forgets the weights that it is given: they must be those that the run began with.
        record["starting weights"] = trainable_fingerprint(method)
        # A first example shows which columns samplers and weights read; later ones may be made in other processes.
        examples[0]
        record |= {f"column {name!r}": digest for name, digest in groups.columns_read().items()}
    return saveable(record)


def _folder(training: Training, stack: ExitStack, *, alone: bool) -> Path:
    """The folder of checkpoints, locked if this process is the one that writes; a temporary folder if there are none."""
    if training.checkpoints is None:
        return stack.enter_context(scratch_folder())
    folder = Path(training.checkpoints).expanduser()
    if alone:
        stack.enter_context(locked_inside(folder))
    return folder


def take_device(ranker: Any) -> None:
    """Give each process of a distributed run its own accelerator, before all of them put a model on the first one."""
    if ranker.torch_device.type == "cuda" and "LOCAL_RANK" in os.environ:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))


def check_device(ranker: Any, training: Training) -> None:
    """Refuse a device that cannot train, or not with the requested precision; no model is loaded for the check.

    Args:
        ranker: The ranker.
        training: The options.

    Raises:
        InputError: For a GPU other than the first, or a precision that needs a GPU.
    """
    name, device = type(ranker).__name__, ranker.torch_device
    if device.type == "cuda" and device.index not in (None, 0):
        raise InputError(
            f"{name}: training computes on the first visible device, not on {device}; leave device out and set "
            f"CUDA_VISIBLE_DEVICES"
        )
    if training.precision in ("float16", "tf32") and device.type != "cuda":
        raise InputError(
            f"{name}: Training(precision={training.precision!r}) needs CUDA; use 'bfloat16' or 'float32' on {device.type}"
        )


def check_rates(stage: Any, method: Method, asked: float | Mapping[str, float]) -> None:
    """Refuse learning rates that, completed by the method, do not name exactly its networks.

    Args:
        stage: The stage or ranker, named in the message.
        method: What is trained.
        asked: ``Training.learning_rate``.

    Raises:
        InputError: Naming the networks.
    """
    networks, rates = method.networks(), method.rates(asked)
    if not isinstance(rates, (int, float)) and set(rates) != set(networks):
        named = asked if isinstance(asked, Mapping) else rates
        raise InputError(
            f"{type(stage).__name__}: learning_rate names {', '.join(named)}, but the networks are {', '.join(networks)}; give "
            f"one rate for each"
        )


def _check(ranker: Any, method: Method, training: Training) -> None:
    name = type(ranker).__name__
    check_device(ranker, training)
    if any(p.dtype != torch.float32 for p in method.parameters() if p.requires_grad and p.is_floating_point()):
        raise InputError(
            f"{name}: weights must be float32 to be trained; make the ranker with dtype='float32', ask for mixed precision by "
            f"Training(precision='bfloat16'), and score in half precision later"
        )
    trainable = {p for p in method.parameters() if p.requires_grad}
    if not trainable:
        raise InputError(f"{name}: no weight of the model can be trained (requires_grad is False everywhere); unfreeze some")
    if not trainable <= {p for network in method.networks().values() for p in network.parameters()}:
        raise InputError(
            f"{name}: {type(method).__name__} holds trainable weights that none of its networks() holds; add or freeze them"
        )


@contextmanager
def as_found(device: torch.device) -> Iterator[None]:
    """Restore what transformers' Trainer changes for the whole process: random states and its log level.

    One thread at a time: two threads would draw from the same random states.
    """
    from transformers.utils import logging as hf_logging

    with RANDOM:
        level, python, legacy = hf_logging.get_verbosity(), random.getstate(), np.random.get_state()  # noqa: NPY002
        with torch.random.fork_rng(devices=[torch.cuda.current_device()] if device.type == "cuda" else []):
            try:
                yield
            finally:
                random.setstate(python)
                np.random.set_state(legacy)  # noqa: NPY002
                hf_logging.set_verbosity(level)


def _arguments(
    ranker: Any, training: Training, folder: Path, steps: int, warmup: int, epoch: int, validation: Validation | None
) -> transformers.TrainingArguments:
    """Our options in the form of transformers."""
    every = training.evaluate_every or epoch
    cpu = ranker.torch_device.type == "cpu"
    distributed = "WORLD_SIZE" in os.environ and int(os.environ["WORLD_SIZE"]) > 1
    validated = validation is not None
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=training.batch_size,
        gradient_accumulation_steps=training.accumulation,
        optim="adamw_torch",
        lr_scheduler_type=_SCHEDULES[training.schedule],
        warmup_steps=warmup,
        max_grad_norm=training.clip or 0.0,
        bf16=training.precision == "bfloat16",
        fp16=training.precision == "float16",
        seed=training.seed,
        use_cpu=cpu,
        ddp_backend="gloo" if cpu and distributed else None,
        # Models may hold weights that scores do not depend on (a pooler, for one).
        ddp_find_unused_parameters=True if distributed else None,
        dataloader_num_workers=training.workers or 0,
        dataloader_pin_memory=not cpu,
        # Batches come from pinned memory while the device computes.
        accelerator_config={"non_blocking": ranker.torch_device.type == "cuda"},
        remove_unused_columns=False,
        average_tokens_across_devices=False,
        eval_strategy="steps" if validated else "no",
        eval_steps=every if validated else None,
        save_strategy="steps" if validated or training.checkpoints is not None else "no",
        save_steps=every,
        # transformers would remove any folder that is called like a checkpoint.
        save_total_limit=None,
        save_only_model=training.checkpoints is None,
        load_best_model_at_end=validated,
        metric_for_best_model=_key(training.metric) if validated else None,
        greater_is_better=True if validated else None,
        # Early stopping counts on after a resume.
        restore_callback_states_from_checkpoint=True,
        logging_strategy="steps",
        # A shorter run has an entry at its end.
        logging_steps=min(training.log_every, steps),
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
        log_level="error",
    )
    # Several visible devices in one process would mean nn.DataParallel.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    return arguments


def _key(metric: Any) -> str:
    """``ndcg_10`` for nDCG@10."""
    return str(metric).lower().replace("@", "_")


def _about(checkpoint: Path) -> dict[str, Any] | None:
    """What we wrote into a checkpoint; None if the checkpoint is not ours.

    Raises:
        InputError: If it is ours, and has changed since it was written.
    """
    path = checkpoint / _RECORD
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    ours = isinstance(about, dict) and (about.get("package"), about.get("checkpoint")) == (PACKAGE, checkpoint.name)
    return check_seal(about, path) if ours else None


def _about_ours(checkpoint: Path) -> dict[str, Any]:
    """What we wrote into a checkpoint that is known to be ours."""
    return cast(dict[str, Any], _about(checkpoint))


def _seconds(checkpoint: Path) -> float:
    """The seconds that a run had taken when it wrote a checkpoint; 0 for checkpoints of earlier versions."""
    return float(_about_ours(checkpoint).get("seconds", 0.0))


def mark_checkpoint(checkpoint: Path, **content: Any) -> None:
    """Mark a checkpoint as ours, and record its state.

    Args:
        checkpoint: Its folder.
        content: Its state: ``whole`` (False while it is written, so that no run resumes from it), ``ended`` (whether
            the run took its last step, or stopped early), ``record``, ``best``, ``seconds``.
    """
    about = {"package": PACKAGE, "version": __version__, "checkpoint": checkpoint.name, **content}
    write_whole(checkpoint / _RECORD, json.dumps(sealed(about), indent=1) + "\n")


def _remove(checkpoint: Path) -> None:
    """Remove what a run wrote into one of our checkpoints, and the folder if nothing else is in it."""
    about = _about(checkpoint)
    if about is None:
        return
    if about.get("whole"):  # on a full disk nothing can be written, and what was not finished is to go
        mark_checkpoint(checkpoint, whole=False)
    remove_written(checkpoint / _RANKER)
    # A process killed while it removed the ranker leaves empty folders, without the list of what it wrote.
    for path in sorted((checkpoint / _RANKER).glob("**"), reverse=True):
        with suppress(OSError):
            path.rmdir()
    for path in [path for path in checkpoint.iterdir() if is_unfinished(path)]:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    for pattern in (_WEIGHTS, *_STATES):
        for path in checkpoint.glob(pattern):
            path.unlink()
    if [path.name for path in checkpoint.iterdir()] == [_RECORD]:
        # An empty folder without its mark could be anybody's: it leaves its name together with the mark.
        checkpoint.rename(checkpoint.with_name(f".{checkpoint.name}{_REMOVED}"))
        _sweep(checkpoint.parent)
    else:
        (checkpoint / _RECORD).unlink()
        logger.warning("training: %s also holds files that are not part of a checkpoint; they stay there", checkpoint)


def _sweep(folder: Path) -> None:
    """Finish the removal of checkpoints of which only the mark is left."""
    for left in folder.glob(f".checkpoint-*{_REMOVED}"):
        with suppress(OSError):
            (left / _RECORD).unlink(missing_ok=True)
            left.rmdir()


def remove_checkpoints(folder: str | Path) -> None:
    """Remove the checkpoints of runs that are no longer needed, and the folders that are then empty.

    Args:
        folder: The folder that ``Training(checkpoints=folder)`` named. Folders in it that hold checkpoints are searched too.
    """
    folder = Path(folder).expanduser()
    parents = {folder}
    for left in list(folder.glob(f"**/.checkpoint-*{_REMOVED}")):
        _sweep(left.parent)
    for path in list(folder.glob("**/checkpoint-*")):
        if _about(path) is not None:
            parents.update(parent for parent in path.parents if parent.is_relative_to(folder))
            _remove(path)
    for parent in sorted(parents, key=lambda path: -len(path.parts)):
        with suppress(OSError):
            parent.rmdir()


def _checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints, the latest at the end."""
    found = [path for path in folder.glob("checkpoint-*") if (_about(path) or {}).get("whole")]
    return sorted(found, key=lambda path: int(path.name.rpartition("-")[2]))


def _last_checkpoint(folder: Path, training: Training, record: dict[str, Any]) -> Path | None:
    """The checkpoint to resume from.

    Raises:
        InputError: If the folder holds a run that differs in data, options, ranker or starting weights, or one that may not be
            resumed, is of an earlier version, or lacks its best checkpoint.
    """
    found, first = _checkpoints(folder), int(os.environ.get("RANK", "0")) == 0
    if first:
        _sweep(folder)
    for other in sorted(set(folder.glob("checkpoint-*")) - set(found)) if first else []:
        if _about(other) is not None:
            logger.warning("training: %s is incomplete and is removed", other)
            _remove(other)
    if not found:
        return None
    if not training.resume:
        raise InputError(f"{folder} holds the checkpoints of a run; continue with Training(resume=True), or name another folder")
    about = _about_ours(found[-1])
    if "ended" not in about:
        raise InputError(
            f"{found[-1]} was written by an earlier version of {PACKAGE}, which did not note whether the run had ended; name "
            f"another folder"
        )
    there = about["record"]
    several = ("ranker", "options")
    differ = [f"{name} ({there.get(name)!r} there)" for name in record if name not in several and there.get(name) != record[name]]
    for old, new in ((there.get(name, {}), record[name]) for name in several):
        differ += [f"{name}={new[name]!r} ({old.get(name)!r} there)" for name in new if old.get(name) != new[name]]
    if differ:
        raise InputError(f"{folder} holds the checkpoints of another run, with other {', '.join(differ)}; name another folder")
    if about["best"] and _best_in(folder, about["best"]) not in found:
        raise InputError(
            f"{folder} lacks {_best_in(folder, about['best']).name}, which holds the best weights of its run; put it back, or "
            f"begin again in another folder"
        )
    return found[-1]


def _best_in(folder: Path, best: dict[str, Any]) -> Path:
    """The checkpoint with the best weights, found by its step, because a path is wrong once the folder was moved or copied."""
    return folder / f"checkpoint-{best['step']}"


def _ended_in(checkpoint: Path, method: Method) -> tuple[transformers.TrainerState, dict[str, Any]]:
    """The result of a run that has ended; transformers would continue a run that had stopped early.

    Args:
        checkpoint: Its last checkpoint.
        method: The method that takes the last weights.

    Returns:
        Its last state, and the record of its best weights.
    """
    _take_weights(method, checkpoint)
    return transformers.TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME)), _about_ours(checkpoint)["best"]


def _take_weights(method: Method, checkpoint: Path) -> None:
    """Take the weights of a checkpoint, all of them and no others.

    Raises:
        InputError: If it is damaged, or belongs to another model.
    """
    _compare(checkpoint)
    try:
        method.load_state_dict(torch.load(checkpoint / _WEIGHTS, map_location="cpu", weights_only=True))
    except Exception as error:
        raise InputError(
            f"training: checkpoint {checkpoint} does not fit this model ({one_line(error)}); resume with the model that wrote "
            f"it, or name another folder"
        ) from error


def _compare(checkpoint: Path) -> None:
    """Compare a checkpoint's files with their checksums."""
    files = {name: (int(size), str(told)) for name, (size, told) in ((_about(checkpoint) or {}).get("files") or {}).items()}
    check_files(checkpoint, files, f"training: checkpoint {checkpoint}", "or remove it to resume from the checkpoint before it")


def _check_free(folder: Path, last: Path | None, arguments: transformers.TrainingArguments) -> None:
    """Refuse a folder where a checkpoint of this run would overwrite files of another program.

    Raises:
        InputError: Naming the folder that is in the way.
    """
    done = 0 if last is None else int(last.name.rpartition("-")[2])
    every = int(arguments.save_steps)
    steps = {*range(every, arguments.max_steps, every), arguments.max_steps}
    for step in sorted(step for step in steps if step > done):
        path = folder / f"checkpoint-{step}"
        # A process that was killed may have made the folder only.
        empty = path.is_dir() and not path.is_symlink() and not entries(path)
        if os.path.lexists(path) and not empty and _about(path) is None:
            raise InputError(
                f"{folder} holds {path.name}, which {PACKAGE} did not write, and training would write a checkpoint of that name; "
                f"move it away, or name another folder"
            )


class _Collator:
    """Batches of a method, with the positions of their examples."""

    def __init__(self, method: Method):
        self.method = method

    def __call__(self, examples: Sequence[Example]) -> dict[str, torch.Tensor]:
        return {**self.method.collate(examples), "positions": torch.tensor([example.position for example in examples])}


class _Progress(transformers.TrainerCallback):
    """PyTerrier's progress bar."""

    def __init__(self, verbose: bool):
        self.verbose = verbose
        self.bar: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Open the bar when the run begins, or continues."""
        show = self.verbose and state.is_world_process_zero
        self.bar = pt.tqdm(total=state.max_steps, initial=state.global_step, desc="training", unit="step", disable=not show)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count."""
        self.bar.update(1)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Show the last loss and the last measure."""
        shown = {name: f"{value:.4f}" for name, value in (logs or {}).items() if name == "loss" or name.startswith("eval_")}
        if shown:
            self.bar.set_postfix(shown, refresh=False)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Close the bar."""
        self.bar.close()


class _LastEvaluation(transformers.TrainerCallback):
    """Evaluates after the last step too, at any step number."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """Ask for an evaluation."""
        control.should_evaluate = control.should_evaluate or state.global_step >= state.max_steps
        return control


class _LogAtCheckpoints(transformers.TrainerCallback):
    """Ends an entry of the log at each checkpoint, so that none is cut by an interruption: a resumed run has the same log."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """Ask for an entry where a checkpoint will be written."""
        control.should_log = control.should_log or control.should_save
        return control


class _Loss(NamedTuple):
    """A batch's loss, until it is known to be a number."""

    step: int
    rate: float
    loss: torch.Tensor
    positions: torch.Tensor
    scores: torch.Tensor | None


def _check_every(device: torch.device, training: Training) -> int:
    """The number of batches between checks of the losses: a check waits for a GPU, which would be idle after each step."""
    return 1 if device.type == "cpu" else training.log_every


def checked_loss(loss: Any) -> torch.Tensor:
    """Refuse a loss that training cannot minimise.

    Args:
        loss: The loss of a batch.

    Returns:
        The loss.

    Raises:
        InputError: If it is not a tensor, not a single number, or has no gradient.
    """
    what = ""
    if not isinstance(loss, torch.Tensor):
        what = f"is {kind_of(loss)}"
    elif loss.numel() != 1:
        what = f"has the shape {tuple(loss.shape)}"
    elif not loss.requires_grad:
        what = "has no gradient"
    if what:
        raise InputError(f"training: the loss {what}; let it return one number as a torch tensor computed from the scores")
    return cast(torch.Tensor, loss)


class _Trainer(transformers.Trainer):
    """transformers' Trainer for methods; see the module."""

    model: Method
    train_dataset: Examples

    def __init__(
        self,
        *,
        ranker: Any,
        training: Training,
        validation: Validation | None,
        record: dict[str, Any],
        started: float,
        method: Method,
        arguments: transformers.TrainingArguments,
        examples: Examples,
    ):
        self.ranker = ranker
        self.training = training
        self.validation = validation
        self.record = record
        self.best: dict[str, Any] = {}
        self.started = started
        #: Seconds that the run took before it was resumed.
        self.before = 0.0
        self._parts: dict[str, list[torch.Tensor]] = {}
        self._unchecked: list[_Loss] = []
        self._check_every = _check_every(ranker.torch_device, training)
        callbacks: list[Any] = [_Progress(getattr(ranker, "verbose", False))]
        if validation is not None:
            callbacks.append(_LastEvaluation())
        callbacks.append(_LogAtCheckpoints())
        if training.patience is not None:
            callbacks.append(EarlyStoppingCallback(training.patience))
        if training.log_to == "tensorboard":
            callbacks.append(_tensorboard(training))
        super().__init__(
            model=method,
            args=arguments,
            data_collator=_Collator(method),
            train_dataset=examples,
            eval_dataset=validation,
            callbacks=callbacks,
        )
        for noisy in (PrinterCallback, ProgressCallback):
            self.remove_callback(noisy)

    # Data: the dataset is the order.

    def _get_train_sampler(self, train_dataset: Any = None) -> torch.utils.data.Sampler[int]:
        return torch.utils.data.SequentialSampler(self.train_dataset)

    # Steps

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """AdamW, with each network's own rate and no weight decay for biases and normalisation."""
        if self.optimizer is None:
            training = self.training
            groups: list[dict[str, Any]] = []
            for name, network in self.model.networks().items():
                rates = training.learning_rate
                rate = rates if isinstance(rates, (int, float)) else rates[name]
                decayed = set(self.get_decay_parameter_names(network))
                for decay in (True, False):
                    chosen = [p for key, p in network.named_parameters() if p.requires_grad and (key in decayed) == decay]
                    weight_decay = training.weight_decay if decay else 0.0
                    groups.append({"params": chosen, "lr": rate, "weight_decay": weight_decay})
            groups = [group for group in groups if group["params"]]
            # One kernel for each weight; on processors it takes an eighth of the time, which large embedding tables show.
            fused = all(p.device.type in ("cpu", "cuda") for group in groups for p in group["params"])
            self.optimizer = torch.optim.AdamW(groups, fused=fused)
        return self.optimizer

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
        """The method's loss, with what the methods inside it add; its other scalars are kept for the log.

        Raises:
            InputError: If the loss is NaN or infinite.
        """
        positions = inputs.pop("positions")
        outputs = model(**inputs)
        loss = checked_loss(outputs["loss"])
        for part in [part for part in self.model.modules() if isinstance(part, Method)]:
            for name, penalty in part.penalties(self.state.global_step, self.state.max_steps).items():
                outputs[name] = outputs.get(name, 0) + penalty
                loss = loss + penalty
        for name, value in outputs.items():
            if name != "loss" and value.ndim == 0:
                self._parts.setdefault(name, []).append(value.detach())
        scores = outputs.get("scores")
        self._unchecked.append(
            _Loss(
                self.state.global_step,
                float(self._get_learning_rate()),
                loss.detach(),
                positions,
                None if scores is None else scores.detach(),
            )
        )
        if len(self._unchecked) >= self._check_every:
            self.check_losses()
        return (loss, outputs) if return_outputs else loss

    def check_losses(self) -> None:
        """Stop at the first batch since the last check whose loss is not a number.

        Raises:
            InputError: If there is such a batch.
        """
        waiting, self._unchecked = self._unchecked, []
        if not waiting or bool(torch.isfinite(torch.stack([one.loss for one in waiting])).all()):
            return
        self._report_loss(next(one for one in waiting if not torch.isfinite(one.loss)))

    def _report_loss(self, bad: _Loss) -> None:
        """Write the batch to a file and stop."""
        step, loss, scores, positions = bad.step, float(bad.loss), bad.scores, bad.positions.tolist()
        examples = [self.train_dataset[position] for position in positions]
        about = [
            {
                "qid": example.qid,
                "query": example.query,
                "documents": [
                    {"docno": docno, "label": float(label), "weight": float(weight), "text": text}
                    for docno, label, weight, text in zip(
                        example.docnos,
                        example.labels,
                        np.broadcast_to(example.weights, len(example.docnos)),
                        example.texts,
                    )
                ],
                "scores": None if scores is None else [float(score) for score in scores[row].detach().float().cpu()],
            }
            for row, example in enumerate(examples)
        ]
        if self.training.checkpoints is None:
            folder = Path(tempfile.mkdtemp(prefix="pyterrier_debias-"))
        else:
            folder = self._folder
        name = f"batch-of-step-{step}-process-{self.args.process_index}"
        names = itertools.chain([f"{name}.json"], (f"{name}-{number}.json" for number in itertools.count(2)))
        file = next(folder / name for name in names if not os.path.lexists(folder / name))
        content = {"step": step, "loss": str(loss), "learning_rate": bad.rate, "examples": about}
        write_whole(file, json.dumps(content, indent=1, ensure_ascii=False) + "\n", replace=False)
        raise InputError(
            f"training: the loss became {loss} at step {step}; its batch is in {file}; lower learning_rate, check weights and "
            f"loss, or train in float32"
        )

    def _clip_grad_norm(self, model: Any) -> torch.Tensor:
        """Clip each network's gradient on its own; the norm of the whole gradient is logged."""
        self.accelerator.unscale_gradients()
        clip = torch.nn.utils.clip_grad_norm_
        norms = [clip(network.parameters(), self.args.max_grad_norm) for network in self.model.networks().values()]
        return torch.linalg.vector_norm(torch.stack([norm.float() for norm in norms]))

    # Evaluation

    def evaluate(self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval") -> dict[str, float]:
        """Re-rank the validation candidates; each process scores its share of the queries."""
        self.check_losses()
        validation, world = cast(Validation, self.validation), self.args.world_size
        rows = validation.share(self.args.process_index, world)
        found = self.ranker.score([validation.queries[i] for i in rows], [validation.texts[i] for i in rows])
        scores = np.empty(len(validation.rows))
        shares: list[Any] = [(rows, found)]
        if world > 1:
            shares = [None] * world
            torch.distributed.all_gather_object(shares, (rows, found))
        for places, values in shares:
            scores[places] = values
        values, depth = validation.measure(scores)
        value = float(values.mean())
        if value > self.best.get("value", -math.inf):
            about = {"step": self.state.global_step, "value": value, "depth": depth, "per_query": values.to_dict()}
            self.best = about
        metrics = {f"{metric_key_prefix}_{_key(validation.metric)}": value}
        if depth is not None:
            metrics[f"{metric_key_prefix}_depth"] = depth
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the method's parts, and the epoch as we count it."""
        if "loss" in logs:
            self.check_losses()
            for name, values in self._parts.items():
                # A part is NaN in a batch where it is not known.
                mean = float(torch.stack(values).float().nanmean()) if values else math.nan
                if not math.isnan(mean):
                    logs[name] = mean
            self._parts = {}
        logs.pop("total_flos", None)
        shown = self.state.global_step * len(self.train_dataset) / max(self.state.max_steps, 1)
        self.state.epoch = shown / len(self.train_dataset.units)
        super().log(logs, start_time)

    # Checkpoints

    @property
    def _folder(self) -> Path:
        return Path(cast(str, self.args.output_dir))

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """The method's weights, and the ranker in its own public format, with its options, beside them."""
        if not self.args.should_save:
            return
        folder = Path(output_dir) if output_dir else self._folder
        mark_checkpoint(folder, whole=False)
        torch.save(self.model.state_dict() if state_dict is None else state_dict, folder / _WEIGHTS)
        if self.training.checkpoints is not None:
            with whole_folder(folder / _RANKER, holds=HOLDS) as scratch:
                self.ranker.write_with_options(scratch)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write a checkpoint that is valid only once it is complete, then drop those that are neither the last nor the best."""
        self.check_losses()
        folder = self._folder
        target = folder / f"checkpoint-{self.state.global_step}"
        try:
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                about = {"ended": self.control.should_training_stop, "record": self.record, "best": self.best}
                about["seconds"] = self.before + time.monotonic() - self.started
                mark_checkpoint(target, whole=True, **about, files=checksums(target, [_RECORD]))
        except Exception as error:
            with suppress(OSError, InputError):
                _remove(target)
                target.rmdir()
            older = [path.name for path in _checkpoints(folder)]
            kept = (
                f"make space or change permissions, then resume from {older[-1]} with Training(resume=True)"
                if older
                else "there is no older one; make space or change permissions, then train again"
            )
            raise InputError(
                f"training: checkpoint {target} cannot be written ({one_line(error)}); {kept}"
            ) from error
        if self.args.should_save:
            needed = [target, _best_in(folder, self.best)] if self.best else [target]
            for other in _checkpoints(folder):
                if other not in needed:
                    _remove(other)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Take the weights of a checkpoint, and the best weights until then."""
        _take_weights(self.model, Path(resume_from_checkpoint))
        self.best = _about_ours(Path(resume_from_checkpoint))["best"]
        self.before = _seconds(Path(resume_from_checkpoint))

    def _load_best_model(self) -> None:
        """Do nothing: transformers knows the best checkpoint by its former path, and forgets it if that is gone.

        :func:`train` takes it from the folder of the run.
        """


def _tensorboard(training: Training) -> Any:
    from transformers.integrations import TensorBoardCallback

    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:  # pragma: no cover - depends on the installation
        raise InputError("Training: log_to='tensorboard' needs the package tensorboard: pip install tensorboard") from error
    main = int(os.environ.get("RANK", "0")) == 0
    folder = Path(cast(str | Path, training.checkpoints)).expanduser() / "tensorboard"
    return TensorBoardCallback(SummaryWriter(str(folder)) if main else None)
