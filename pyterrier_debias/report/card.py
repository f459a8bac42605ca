"""The verdict and figures of an audit in a model card: Hugging Face's README.md with metadata.

The part between two markers, and the metadata under this package's task, belong to the audit; everything else in a card belongs
to its author and is kept.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import nullcontext
from io import StringIO
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from pyterrier_debias.core.errors import InputError, one_line, visible
from pyterrier_debias.core.files import write_whole
from pyterrier_debias.report.tables import AuditTables
from pyterrier_debias.report.text import (
    ALPHA,
    convention_marks,
    correction_made,
    interval,
    number,
    probability,
    shortened_conventions,
    skipped_reasons,
)
from pyterrier_debias.report.verdict import Verdict, by_sentence, verdicts

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

BEGIN, END = "<!-- pyterrier-debias audit: begin -->", "<!-- pyterrier-debias audit: end -->"
#: The task that identifies our results in a card's metadata.
TASK = {"type": "text-ranking", "name": "Bias audit by pyterrier-debias"}
TAGS = ("bias-audit", "pyterrier-debias")
FILE = "README.md"


def write_card(result: AuditTables, folder: str | Path, system: str | None = None) -> Path:
    """See :meth:`pyterrier_debias.AuditResult.write_card`."""
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise InputError(f"write_card: there is no folder {str(folder)!r}; save the ranker there first")
    path = folder / FILE
    try:
        # Line ends are kept.
        with path.open(encoding="utf-8-sig", newline="") if path.exists() else nullcontext(StringIO()) as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}); fix or remove it") from error
    try:
        new = merged(text, result, system)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    write_whole(path, new)
    return path


def merged(text: str, result: AuditTables, system: str | None = None) -> str:
    """A card in which the audit's part is replaced.

    Args:
        text: The current card; may be empty.
        result: The audit.
        system: The system that the card describes; None shows all systems, and leaves figures out of the metadata if several were
            audited.

    Returns:
        The card. Metadata that does not change keeps its form, including comments; otherwise it is written anew.

    Raises:
        InputError: If the metadata is not a YAML table or has an invalid model index, markers do not match, or the system was
            not audited.
    """
    from huggingface_hub import ModelCard, RepoCard
    from huggingface_hub.repocard import REGEX_YAML_BLOCK
    from yaml import YAMLError

    system = None if system is None else visible(str(system))  # results hold names as they are shown
    findings = _findings(result, system)
    newline = "\r\n" if "\r\n" in text else "\n"
    bare = REGEX_YAML_BLOCK.match(text) is None
    try:
        # RepoCard keeps the author's own model index unchanged; ModelCard would merge several entries into one.
        card = RepoCard(f"---{newline}{{}}{newline}---{newline}{text}" if bare else text)
    except YAMLError as error:
        raise InputError(f"the card's metadata is not YAML ({one_line(error)}); fix it") from error
    except ValueError as error:
        raise InputError("the card's metadata is not a YAML mapping; fix it") from error
    before = card.data.to_dict()
    of = [*result.settings["systems"]] if system is None else [system]
    after = _metadata(before, result, findings, of)
    part = f"{BEGIN}\n{_body(result, findings, system)}\n{END}"
    own = card.text
    card.text = _placed(own, part.replace("\n", newline), newline)
    if before == after:
        return text[: len(text) - len(own)] + card.text
    card.data = type(card.data)(**after)
    try:
        ModelCard(card.content)
    except ValueError as error:
        raise InputError(f"Hugging Face cannot read the card's metadata ({one_line(error)}); fix it") from error
    return card.content


def _findings(result: AuditTables, system: str | None) -> pd.DataFrame:
    if system is None:
        return result.findings
    if system not in result.settings["systems"]:
        raise InputError(f"system {system!r} is not in this audit; use one of {', '.join(result.settings['systems'])}")
    return result.findings[result.findings["system"] == system]


def _placed(body: str, part: str, newline: str) -> str:
    """The body with our part in place of the old one, or at its end."""
    begins, ends = body.count(BEGIN), body.count(END)
    if (begins, ends) == (0, 0):
        before = body.rstrip("\r\n")
        return newline.join([before, "", part, ""] if before.strip() else ["", part, ""])
    first, last = body.find(BEGIN), body.find(END)
    if (begins, ends) != (1, 1) or last < first:
        raise InputError(f"the card's markers do not match ({begins} of {BEGIN}, {ends} of {END}); keep one of each, or none")
    return body[:first] + part + body[last + len(END) :]


# ------------------------------------------------------------------------------------------------ metadata


def _metadata(before: dict[str, Any], result: AuditTables, findings: pd.DataFrame, of: Sequence[str]) -> dict[str, Any]:
    after = dict(before)
    tags = before.get("tags") or []
    if not isinstance(tags, list):
        tags = [tags]
    after["tags"] = [*tags, *(tag for tag in TAGS if tag not in tags)]
    # With several systems, a reader could not tell whose figures these are.
    own = _evaluations(result, findings) if len(of) == 1 else []
    index = before.get("model-index") or []
    if not isinstance(index, list) or not all(isinstance(entry, dict) for entry in index):
        raise InputError("the card's model-index is not a list of mappings; fix it")
    without = [{**entry, "results": [r for r in entry.get("results") or [] if not _is_ours(r)]} for entry in index]
    if own:
        from huggingface_hub.repocard_data import eval_results_to_model_index

        [made] = eval_results_to_model_index(of[0], own)
        if without:
            # An entry that held only our results may have the name of another system.
            ours = index[0].get("results") and not without[0]["results"]
            name = {"name": made["name"]} if ours else {}
            without[0] = {**without[0], **name, "results": [*without[0]["results"], *made["results"]]}
        else:
            without = [made]
    # An entry that held only our results is removed; one that was empty before is the author's.
    none: dict[str, Any] = {}
    index = [entry for entry, old in zip_longest(without, index, fillvalue=none) if entry["results"] or not old.get("results")]
    if index:
        after["model-index"] = index
    else:
        after.pop("model-index", None)
    return after


def _is_ours(result: Any) -> bool:
    return isinstance(result, dict) and isinstance(result.get("task"), dict) and result["task"].get("name") == TASK["name"]


def _evaluations(result: AuditTables, findings: pd.DataFrame) -> list[EvalResult]:
    """The primary figures of one system."""
    from huggingface_hub import EvalResult

    rows = findings[findings["primary"].astype(bool) & findings["value"].map(math.isfinite)]
    s = result.settings
    return [
        EvalResult(
            task_type=TASK["type"],
            task_name=TASK["name"],
            dataset_type=s["dataset"],
            dataset_name=s["dataset"],
            dataset_split=s["split"] or None,
            metric_type=f"{row['bias']}-bias",
            metric_name=f"{row['measure']} ({row['contrast']})",
            metric_value=round(float(row["value"]), 6),
            metric_args={end: round(float(row[end]), 6) for end in ("low", "high")}
            if math.isfinite(row["low"]) and math.isfinite(row["high"])
            else None,
        )
        for row in rows.to_dict("records")
    ]


# ------------------------------------------------------------------------------------------------ text


def _plain(text: Any) -> str:
    """Data as a cell or a sentence of Markdown: one line, no markup of its own."""
    text = " ".join(str(text).split()).replace("&", "&amp;").replace("<", "&lt;")
    text = re.sub(r"([\\`*_\[\]|~]|^[>#+-])", r"\\\1", text)
    return re.sub(r"^(\d+)([.)])(?= |$)", r"\1\\\2", text)  # the first item of a numbered list


def _body(result: AuditTables, findings: pd.DataFrame, system: str | None) -> str:
    s = result.settings
    shown = findings[findings["primary"].astype(bool) | (findings["p_corrected"] < ALPHA)]
    several = findings["system"].nunique() > 1
    about = _plain(system) if system is not None else ", ".join(map(_plain, s["systems"]))
    split = f" ({_plain(s['split'])})" if s["split"] else ""
    topics = f"{s['judged_topics']} judged topic{'s' * (s['judged_topics'] != 1)}"
    parts = [
        "## Bias audit",
        f"Audit of {about} on {_plain(s['dataset'])}{split}: {topics}, depth {s['depth']}.",
        "### Verdict",
        *(_verdict(verdict) for verdict in verdicts(result, system)),
    ]
    if len(shown):
        marks = convention_marks(shown["convention"])
        parts += ["### Figures", _table(shown, marks, several)]
        corrected = correction_made(result)
        parts.append(f"Bold: the primary test of a bias.{f' p corr. is {corrected}' if corrected else ''}")
        told = [text for text in dict.fromkeys(shown["text"]) if text]
        if told:
            parts.append("\n".join(["### In words", "", *(f"- {_plain(text)}" for text in told)]))
        made = [f"- {mark}: {_plain(text)}" for mark, text in shortened_conventions(marks)]
    else:
        parts.append("No primary test was run, and no figure is significant.")
        made = []
    skipped, failed = result.skipped, result.failed
    if system is not None:
        skipped = skipped[skipped["system"] == system]
        failed = failed[failed["system"].isin(["", system])]  # if no system is named, the bias itself failed
    missing = [f"- {_plain(bias)}, {_plain(systems)}: {_plain(reason)}" for bias, systems, reason in skipped_reasons(skipped)]
    missing += [
        f"- {_plain(bias)}: {_plain(error) if raised else f'failed with an internal error ({_plain(error)})'}"
        for bias, raised, error in zip(failed["bias"], failed["system"], failed["error"])
    ]
    if missing:
        parts.append("\n".join(["### Not examined", "", *missing]))
    made += [f"- {_plain(note)}" for note in s["notes"]]
    versions = ", ".join(f"{package} {version}" for package, version in s["versions"].items())
    made.append(f"- Seed {s['seed']}; {_plain(s['created'])}; {_plain(versions)}.")
    parts.append("\n".join(["### Methods", "", *made]))
    parts.append("An audit looks for each bias with one kind of probe. Finding nothing does not prove that there is no bias.")
    return "\n\n".join(parts)


def _verdict(verdict: Verdict) -> str:
    """The question of one bias, the answers, and what to do."""
    lines = [f"**{_plain(verdict.bias)}: {_plain(verdict.question)}**", ""]
    for same in by_sentence(verdict.answers):
        about = f"{', '.join(_plain(answer.system) for answer in same)}: " if len(verdict.answers) > 1 else ""
        lines.append(f"- {about}{_plain(same[0].sentence)}")
    if verdict.nothing_helps:
        lines.append(f"- What to do: {_plain(verdict.nothing_helps)}")
    for treatment in verdict.treatments:
        lines += [f"- What to do: [{treatment.name}]({treatment.address}). {_plain(treatment.sentence)}", "", "  ```python"]
        # A name may hold our markers; in a string of Python this is the same.
        lines += [f"  {line}" for line in f"{treatment.imports}\n{treatment.code}".replace("<!--", r"<!\x2d-").splitlines()]
        lines += ["  ```", ""]
    return "\n".join(lines).rstrip()


def _table(rows: pd.DataFrame, marks: dict[str, str], several: bool) -> str:
    titles = ["bias", "measure", "contrast", "value", "95 % interval", "null value", "n", "p corr.", "method"]
    lines = [(["system"] if several else []) + titles]
    lines.append(["---"] * (4 if several else 3) + ["---:"] * 5 + ["---"])
    for row in rows.to_dict("records"):
        value = number(row["value"], 4)
        lines.append(
            ([_plain(row["system"])] if several else [])
            + [_plain(row["bias"]), _plain(row["measure"]), _plain(row["contrast"])]
            + [f"**{value}**" if row["primary"] and value else value, interval(row["low"], row["high"])]
            + [number(row["null_value"]), str(row["n"] or ""), probability(row["p_corrected"])]
            + [marks.get(row["convention"], "")]
        )
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
