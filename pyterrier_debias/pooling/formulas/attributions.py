"""The contribution of unjudged documents to the difference of judged shares between a system and the pool's run.

A pure function on rankings and judgements; used for the attribution of the audit's pooling figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from pyterrier_debias.core.bias import ITEM
from pyterrier_debias.core.frames import pair_numbers, ranked, with_string_ids


def unjudged_parts(
    runs: Mapping[str, pd.DataFrame], qrels: pd.DataFrame, qids: Sequence[str], cutoff: int = 10
) -> pd.DataFrame:
    """The contribution of unjudged documents to the mean difference of Judged@k between a system and the pool's run.

    Judged@k is 1 less the share of unjudged documents. Each unjudged document therefore subtracts 1 / (k m) from the system's
    value, and so from the difference; one in the pool's run adds 1 / (k m) to the difference. k is the number of documents in
    that list for the query, up to ``cutoff``, and m the number of queries.

    Args:
        runs: The system's results and the pool's, in this order, by name.
        qrels: Judgements.
        qids: Queries; those with results of both runs count.
        cutoff: Largest k: only the first so many documents of a list count.

    Returns:
        ``item`` (docno), ``note`` (its highest rank), ``qid``, ``queries``, ``contribution``; documents with the highest rank
        first.

    Example:
        >>> run = lambda docnos: pd.DataFrame({"qid": "1", "docno": docnos, "score": [2.0, 1.0]})
        >>> judged = pd.DataFrame({"qid": ["1"], "docno": ["a"], "label": [0]})
        >>> unjudged_parts({"mine": run(["b", "c"]), "bm25": run(["a", "c"])}, judged, ["1"]).values.tolist()
        [['b', 'unjudged at rank 1 of mine', '1', 1, -0.5]]
    """
    tops = {}
    for name, results in runs.items():
        run = ranked(with_string_ids(results, name)[["qid", "docno", "score"]], name)
        tops[name] = run[run["qid"].isin(set(qids)) & (run["rank"] < cutoff)]
    common = set.intersection(*(set(top["qid"]) for top in tops.values()))
    qrels = with_string_ids(qrels, "pooling bias, judgements")
    rows = []
    for (name, top), sign in zip(tops.items(), (-1.0, 1.0)):
        top = top[top["qid"].isin(common)]
        sizes = top.groupby("qid")["docno"].transform("size").to_numpy()
        own, labelled = pair_numbers(top, qrels)
        known = np.isin(own, labelled)
        part = sign / sizes / max(len(common), 1)
        rows.append(top.assign(owner=name, contribution=part)[~known])
    frame = pd.concat(rows, ignore_index=True)
    # If both runs have a document, its parts cancel, and it does not count for that query.
    frame = frame.assign(net=frame.groupby(["qid", "docno"])["contribution"].transform("sum"))
    frame = frame[frame["net"].abs() > 1e-15].sort_values(["rank", "docno", "qid"], kind="stable")
    note = [f"unjudged at rank {rank + 1} of {owner}" for rank, owner in zip(frame["rank"], frame["owner"])]
    grouped = frame.assign(note=np.array(note, dtype=object)).groupby("docno", sort=False)
    found = grouped.agg(
        note=("note", "first"), qid=("qid", "first"), queries=("qid", "nunique"), contribution=("contribution", "sum")
    )
    return found.rename_axis("item").reset_index()[ITEM]
