"""Audits with the findings that a test of verdicts names."""

import pandas as pd

from pyterrier_debias import AuditResult
from pyterrier_debias.core.bias import Finding, findings_frame, per_query_frame
from pyterrier_debias.report.tables import FAILED_COLUMNS, SKIPPED_COLUMNS

BIASES = ["position", "survivorship", "gender", "linguistic", "pooling"]
#: Of each bias the primary figure, as the bias' audit makes it.
PRIMARY = {
    "position": ("nDCG@10", "rotated - original"),
    "survivorship": ("rho of DCG@10", "first relevant rank"),
    "gender": ("ARaB@10", "order - random order"),
    "linguistic": ("slope of nDCG@10", "complexity, given the candidates"),
    "pooling": ("Judged@10", "system - pool (bm25)"),
    "source": ("displacement", "rewritten - human"),
    "length": ("length percentile", "first documents - random order"),
    "order": ("places", "result by given list"),
}


def settings(systems, biases, **more):
    return {
        "dataset": "planted-0", "split": None, "systems": list(systems), "biases": list(biases), "baseline": None, "topics": 50,
        "judged_topics": 50, "depth": 30, "draws": None, "seed": 0, "correction": "holm", "notes": [],
        "created": "2026-01-01T00:00:00+00:00", "seconds": 1.0, "versions": {}, **more,
    }  # fmt: skip


def made(findings, systems=("BM25",), biases=BIASES, skipped=(), failed=(), **more):
    return AuditResult(
        findings_frame(findings), per_query_frame(findings), pd.DataFrame(list(skipped), columns=SKIPPED_COLUMNS),
        pd.DataFrame(list(failed), columns=FAILED_COLUMNS), settings(systems, biases, **more),
    )  # fmt: skip


def found(bias="position", value=-0.03, low=-0.05, high=-0.01, p=0.001, p_corrected=0.01, system="BM25", n=50, **more):
    measure, contrast = PRIMARY.get(bias, ("words", "first ten"))
    more = {"measure": measure, "contrast": contrast, "primary": True, **more}
    return Finding(system, bias, value=value, low=low, high=high, p=p, p_corrected=p_corrected, n=n, **more)
