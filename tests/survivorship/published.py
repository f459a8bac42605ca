"""Figures of Gupta (2021): sizes, Table of Appendix A, histogram of Figure 3, query types of msmarco-qna/dev."""

TOTAL, ANSWERED, UNANSWERED = 101_093, 55_578, 45_515
#: Queries answered within k documents, k = 1 to 10.
SIZES = [8197, 15543, 22060, 27858, 33062, 38024, 42669, 47146, 51344, 55568]
HISTOGRAM = [8197, 7346, 6517, 5798, 5204, 4962, 4645, 4477, 4198, 4224]
#: MRR@10 for k = 10 to 1.
MRR = {
    "BM25": [0.18670, 0.18758, 0.18688, 0.18725, 0.18646, 0.18651, 0.18605, 0.18625, 0.18327, 0.18344],
    "MonoT5": [0.36467, 0.36404, 0.36316, 0.36189, 0.36058, 0.35792, 0.35627, 0.35454, 0.34951, 0.34806],
    "ANCE": [0.28577, 0.28591, 0.28566, 0.28567, 0.28419, 0.28391, 0.28348, 0.28186, 0.27805, 0.27741],
    "ColBERT": [0.33124, 0.33095, 0.33035, 0.32892, 0.32674, 0.32452, 0.32340, 0.32220, 0.31789, 0.31509],
}
#: MRR@10 over all queries, as printed.
MRR_ALL = {"BM25": 0.10263, "MonoT5": 0.20049, "ANCE": 0.15711, "ColBERT": 0.18210}
#: Type to queries and unanswered queries.
TYPES = {
    "DESCRIPTION": (54616, 25519), "NUMERIC": (25547, 12048), "ENTITY": (8677, 3819), "PERSON": (6425, 2487),
    "LOCATION": (5828, 1642),
}  # fmt: skip
