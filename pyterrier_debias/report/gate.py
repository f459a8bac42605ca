"""A gate for teams: is every figure of an audit within its budget?

A budget is kept if the whole interval of the figure is within it, not only the figure itself: with too few queries nothing is
shown, and the gate fails. Budgets are in a TOML file.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyterrier_debias.core.errors import InputError, check_choice, check_number, is_finite, shortened, visible
from pyterrier_debias.report.cross_bias import ALL
from pyterrier_debias.report.inputs import BIASES, FURTHER, find_biases, meant
from pyterrier_debias.report.request import Request
from pyterrier_debias.report.result import AuditResult
from pyterrier_debias.report.verdict import ROUNDING, doubt, unmeasured

if TYPE_CHECKING:
    import pandas as pd

_BOUNDS = ("interval", "value")


@dataclass(frozen=True)
class Budget:
    """The limits within which figures of an audit must stay.

    Attributes:
        bias: The bias.
        measure: Only figures with this measure; if there is no ``contrast`` either, None means the primary figures.
            Those of different systems may differ: in ranks for rankers and in ``nDCG@10`` for retrievers, for the position bias.
        contrast: Only figures with this contrast.
        system: Only figures of this system; None means every system. A system that could not be examined exceeds the budget.
        at_most: The limit for the upper end of the interval.
        at_least: The limit for the lower end of the interval.
        bound: ``'interval'``; or ``'value'``, for figures that have no interval: then the figure itself is compared.
    """

    bias: str
    measure: str | None = None
    contrast: str | None = None
    system: str | None = None
    at_most: float | None = None
    at_least: float | None = None
    bound: str = "interval"

    def __post_init__(self) -> None:
        """Refuse an unknown bound, a limit that is not a number, and a budget without a limit."""
        if self.system is not None:
            object.__setattr__(self, "system", visible(self.system))  # results hold names as they are shown
        check_choice("Budget", "bound", self.bound, _BOUNDS)
        if self.at_most is None and self.at_least is None:
            raise InputError(f"Budget: {self.bias!r} has no limit; give at_most or at_least")
        for limit in ("at_most", "at_least"):
            if getattr(self, limit) is not None:
                check_number("Budget", limit, getattr(self, limit))

    @property
    def name(self) -> str:
        """The budget in words."""
        what = [part for part in (self.measure, f"({self.contrast})" if self.contrast else None) if part] or ["primary figure"]
        return f"{self.bias}: {' '.join(what)}" + (f" of {self.system}" if self.system else "")


@dataclass(frozen=True)
class Gate:
    """A file of budgets.

    Attributes:
        budgets: The budgets.
        request: The audit to run.
        file: A saved audit to use instead; None runs one.
        named: Whether the file names the collection to audit. If not, there must be a saved audit: an audit of the planted
            collection would let a mistyped file pass.
    """

    budgets: tuple[Budget, ...]
    request: Request
    file: Path | None = None
    named: bool = True


@dataclass(frozen=True)
class Verdict:
    """One figure against one budget.

    Attributes:
        crossed: True if the figure is not shown to be within the budget.
        text: The result in one line.
    """

    crossed: bool
    text: str


def read_gate(path: str | Path) -> Gate:
    """Read a file of budgets.

    Args:
        path: A TOML file: ``[[budget]]`` tables with the keys of :class:`Budget`, and a table ``[audit]`` with the options of
            ``pyterrier-debias audit`` or with ``file``, a saved audit. Relative paths start where the command is called.

    Returns:
        The gate.

    Raises:
        InputError: If the file is missing or not TOML, or has an unknown key or no budget.
    """
    path = Path(path).expanduser()
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # not TOML, not UTF-8, or a number with thousands of digits
        raise InputError(f"{path} is not TOML: {error}") from error
    unknown = [key for key in content if key not in ("audit", "budget")]
    if unknown:
        raise InputError(f"{path}: table {unknown[0]!r} is not known; use [audit] and [[budget]]")
    table = content.get("audit", {})
    if not isinstance(table, dict):
        raise InputError(f"{path}: 'audit' is not a table; write it as [audit]")
    budgets = content.get("budget", [])
    if not isinstance(budgets, list) or not budgets or not all(isinstance(b, dict) for b in budgets):
        raise InputError(f"{path} holds no budget; add a table [[budget]] with bias and at_most or at_least")
    file = None
    if "file" in table:
        if len(table) > 1 or not isinstance(table["file"], str):
            raise InputError(f"{path}: [audit] file must be text and the only key; a saved audit takes no options")
        table, file = {}, Path(table["file"])
    return Gate(
        tuple(_budget(b, f"{path}: budget {i}") for i, b in enumerate(budgets, start=1)),
        Request.from_table(table, f"{path}: [audit]"),
        file,
        "dataset" in table or "queries" in table,
    )


def _budget(table: Mapping[str, Any], where: str) -> Budget:
    for key, value in table.items():
        if key not in Budget.__dataclass_fields__:
            raise InputError(f"{where}: key {key!r} is not known; use some of {', '.join(Budget.__dataclass_fields__)}")
        numeric = key in ("at_most", "at_least")
        if numeric and (isinstance(value, bool) or not isinstance(value, (int, float)) or not is_finite(value)):
            raise InputError(f"{where}: {key} is {shortened(repr(value), 80)}; it must be a number")
        if not numeric and not isinstance(value, str):
            raise InputError(f"{where}: {key} is {value!r}; it must be text")
    if "bias" not in table:
        raise InputError(f"{where} names no bias; add bias = 'position' or another")
    if "at_most" not in table and "at_least" not in table:
        raise InputError(f"{where} has no limit; add at_most or at_least")
    check_choice(where, "bound", table.get("bound", "interval"), _BOUNDS)
    if "at_most" in table and "at_least" in table and table["at_most"] < table["at_least"]:
        raise InputError(f"{where}: at_most is below at_least, so no figure can be within both; correct one of them")
    return Budget(**table)


def check_names(gate: Gate, path: str | Path, systems: Sequence[str] | None = None) -> None:
    """Refuse budgets of biases or systems that an audit will not examine, before it runs.

    Args:
        gate: Budgets, and the audit to run.
        path: Their file, which messages name.
        systems: The systems to audit; None if they are not known yet, so that only biases are checked.

    Raises:
        InputError: If a bias does not exist or the audit leaves it out, or a system does not exist; the message lists those that
            do.

    Example:
        >>> check_names(Gate((Budget("pooling", at_most=1),), Request(biases=["position"])), "budget.toml")
        Traceback (most recent call last):
        pyterrier_debias.core.errors.InputError: budget.toml: budget 1: [audit] examines position, not 'pooling'; add it to biases
    """
    audited = [bias.name for bias in find_biases(gate.request.biases)]
    known = [*BIASES, *FURTHER]
    for number, budget in enumerate(gate.budgets, start=1):
        where = f"{path}: budget {number}"
        if budget.bias not in {*audited, *known}:
            told = f"bias {budget.bias!r} is not known{meant(budget.bias, [*audited, *known])}"
            raise InputError(f"{where}: {told}; [audit] examines {', '.join(audited)}")
        if budget.bias not in audited:
            raise InputError(f"{where}: [audit] examines {', '.join(audited)}, not {budget.bias!r}; add it to biases")
        if systems is not None and budget.system is not None and budget.system not in {*systems, ALL}:
            told = f"there is no system {budget.system!r}{meant(budget.system, systems)}"
            raise InputError(f"{where}: {told}; [audit] examines {', '.join(systems)}")


def read_audit(path: str | Path) -> AuditResult:
    """Read a saved audit.

    Args:
        path: ``audit.json``, or the folder that holds it.

    Returns:
        The audit.

    Raises:
        InputError: If the file is missing or not an audit.
    """
    return AuditResult.load(path)


def check_budgets(result: AuditResult, budgets: Sequence[Budget]) -> list[Verdict]:
    """Compare the figures of an audit with their budgets.

    Args:
        result: The audit.
        budgets: The budgets.

    Returns:
        One verdict per figure and limit, in the order of budgets and figures. A bias that failed exceeds its budget, and so does
        a system that the bias could not examine or that raised an error. If the budget covers every system, a system without such
        a figure exceeds it too, because nothing is shown.

    Raises:
        InputError: If the audit does not have the bias, system or figure of a budget; the message lists what it has.

    Example:
        ::

            check_budgets(audit(...), [Budget("position", at_least=-0.02)])
    """
    return [verdict for budget in budgets for verdict in _check(result, budget)]


def _check(result: AuditResult, budget: Budget) -> list[Verdict]:
    broken = result.failed[result.failed["bias"] == budget.bias]
    whole = broken[broken["system"].eq("") | broken["system"].eq(budget.system)]
    if whole.empty and not (result.findings["bias"] == budget.bias).any():
        whole = broken  # every system raised
    if len(whole):
        told, raised = whole["error"].iloc[0], whole["system"].iloc[0]
        what = told if raised else f"failed with an internal error ({told})"
        return [Verdict(True, f"{budget.name}: {what}, so nothing is shown")]
    rows = result.findings
    for name in ("bias", "system", "measure", "contrast"):
        wanted = getattr(budget, name)
        if wanted is None:
            continue
        there = list(dict.fromkeys(map(str, rows[name])))
        rows = rows[rows[name] == wanted]
        if rows.empty:
            unexamined = _unexamined(result, budget) if name in ("bias", "system") else []
            if unexamined:
                return unexamined
            what = "figures for the bias" if name == "bias" else name
            told = f"the audit has no {what} {wanted!r}{meant(wanted, there)}"
            raise InputError(f"budget for {budget.name}: {told}; it has {', '.join(there) or 'none'}")
    if budget.measure is None and budget.contrast is None:
        rows = rows[rows["primary"].astype(bool)]
        if rows.empty:
            why = unmeasured(result, budget.bias, budget.system or result.settings["systems"][0])
            of_one = budget.system in (None, *result.settings["systems"])
            if not why or not of_one:
                of = budget.bias if of_one else f"{budget.bias}: {budget.system}"
                raise InputError(f"the audit has no primary figure for {of!r}; name a measure and a contrast")
            asked = result.settings["systems"] if budget.system is None else [budget.system]
            return [_not_examined(budget, system, unmeasured(result, budget.bias, system) or why) for system in asked]
    records = rows.to_dict("records")
    few = budget.bound != "value"
    found = [verdict for row in records for verdict in _verdicts(row, budget, doubt(result, row, few=few))]
    return found + _unshown(result, budget, rows)


def _unshown(result: AuditResult, budget: Budget, rows: pd.DataFrame) -> list[Verdict]:
    """The systems that a budget for every system covers and for which the audit has no figure."""
    if budget.system is not None:
        return []
    named, shown = result.settings["systems"], set(rows["system"])
    reasons = {}
    if shown <= set(named):  # otherwise it is a figure of all systems together
        # A baseline is not compared with itself.
        lacking = [n for n in named if n not in shown and not str(budget.contrast).endswith(f", vs {n}")]
        reasons = {name: f"the audit has no such figure for {name}" for name in lacking}
    for why, column in ((result.skipped, "reason"), (result.failed, "error")):
        for one in why[(why["bias"] == budget.bias) & why["system"].ne("")].to_dict("records"):
            reasons[one["system"]] = f"{one['system']} was not examined ({one[column]})"
    remedy = "if the budget is for certain systems only, name each with system ="
    return [Verdict(True, f"{budget.name}: {reason}, so nothing is shown for it; {remedy}") for reason in reasons.values()]


def _unexamined(result: AuditResult, budget: Budget) -> list[Verdict]:
    """The system of a budget, or all systems, if its bias could not be examined."""
    skipped = result.skipped[result.skipped["bias"] == budget.bias]
    if budget.system is not None:
        skipped = skipped[skipped["system"] == budget.system]
    return [_not_examined(budget, system, reason) for system, reason in zip(skipped["system"], skipped["reason"])]


def _not_examined(budget: Budget, system: str, reason: str) -> Verdict:
    return Verdict(True, f"{budget.name}: {system} was not examined ({reason}), so nothing is shown for it")


def _verdicts(row: Mapping[str, Any], budget: Budget, doubted: str) -> list[Verdict]:
    figure = f"{row['bias']}: {row['system']}: {row['measure']} ({row['contrast']})"
    value, low, high = row["value"], row["low"], row["high"]
    by_value = budget.bound == "value"
    shown = f"is {value:.4f}" + ("" if by_value or math.isnan(low) else f" [{low:.4f}, {high:.4f}]")
    verdicts = []
    for limit, end, which, beyond, inside in (
        (budget.at_most, high, "upper", "above", "at most"),
        (budget.at_least, low, "lower", "below", "at least"),
    ):
        if limit is None:
            continue
        bound = value if by_value else end
        if math.isnan(bound):
            undefined = by_value or math.isnan(value)
            why = "it is not defined" if undefined else "it has no interval (bound = 'value' compares the value)"
            verdicts.append(Verdict(True, f"{figure} {shown}: {why}, so '{inside} {limit:g}' is not shown"))
            continue
        crossed = bound > limit + ROUNDING if which == "upper" else bound < limit - ROUNDING
        # What is doubted pulls a figure towards 0, which only helps to keep a limit that 0 keeps.
        if doubted and not crossed and (limit >= 0 if which == "upper" else limit <= 0):
            verdicts.append(Verdict(True, f"{figure} {shown}, but {doubted}: '{inside} {limit:g}' is not shown"))
            continue
        part = "it" if by_value else f"its {which} end"
        state = f"{part} is {beyond} the budget of {limit:g}" if crossed else f"within the budget of {inside} {limit:g}"
        verdicts.append(Verdict(bool(crossed), f"{figure} {shown}: {state}"))
    return verdicts
