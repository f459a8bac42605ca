"""How much each unlabelled candidate counts as a negative: a common scale for all corrections."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.training.groups import Groups, make_groups
from pyterrier_debias.training.options import Training

#: Columns of the frames that this module returns.
COLUMNS = ["qid", "positive", "docno", "emphasis"]


def emphasis_of(stage: Any, res_tr: pd.DataFrame, qrels_tr: pd.DataFrame) -> pd.DataFrame:
    """Compute how much each candidate counts as a negative when a stage is fitted (its emphasis).

    An emphasis of 1 is that of plain training, which draws negatives with equal chances and equal weights; 0 means never used.
    Stages that also weight or relabel candidates have their own method ``emphasis(res_tr, qrels_tr)``.

    Args:
        stage: A ranker with ``training`` and ``text_columns``, or a stage with such a method. If weights are learned, those of
            the fitted stage are used.
        res_tr: The candidates that reach the stage.
        qrels_tr: The judgements on which it is fitted.

    Returns:
        A frame ``qid``, ``positive``, ``docno`` (of the candidate), ``emphasis``; one row for each positive and each document of
        its pool.

    Raises:
        InputError: If the sampler of negatives has no ``chances``.
    """
    own = getattr(stage, "emphasis", None)
    if own is not None:
        return own(res_tr, qrels_tr)
    training = stage.training if stage.training is not None else Training()
    groups = make_groups(
        res_tr, qrels_tr, text_columns=stage.text_columns(), min_label=training.min_label, need_negatives=True, stage=stage
    )
    return pool_chances(groups, training)


def pool_chances(groups: Groups, training: Training) -> pd.DataFrame:
    """Compute the chances of the sampler of negatives, relative to equal chances.

    Args:
        groups: The training queries.
        training: The options with the sampler.

    Returns:
        A frame as from :func:`emphasis_of`.

    Raises:
        InputError: If the sampler has no ``chances``.
    """
    sampler = training.negatives
    if not hasattr(sampler, "chances"):
        raise InputError(
            f"{sampler!r} does not provide the chances of its draws; make it a ChanceSampler (pyterrier_debias.training.samplers)"
        )
    pairs = [(group, positive) for group in groups.groups for positive in group.positives.tolist()]
    if not pairs:
        return pd.DataFrame(columns=COLUMNS)
    emphasis = []
    for group, positive in pairs:
        chances = np.asarray(sampler.chances(groups, group, positive), dtype=np.float64)
        emphasis.append(chances / chances.sum() * len(group.pool))
    # A single frame: one for each positive would take a thousand times as long.
    docnos = np.array(groups.column("docno"), dtype=object)
    qids = np.array([group.qid for group, _ in pairs], dtype=object)
    sizes = [len(group.pool) for group, _ in pairs]
    own = {
        "qid": np.repeat(qids, sizes),
        "positive": np.repeat(docnos[[positive for _, positive in pairs]], sizes),
        "docno": docnos[np.concatenate([group.pool for group, _ in pairs])],
        "emphasis": np.concatenate(emphasis),
    }
    return pd.DataFrame(own)
