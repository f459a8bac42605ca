"""Three documents, three queries and a run, for audits of rankers of other packages."""

import pandas as pd

from pyterrier_debias import Collection

TEXTS = ["red king. the old river works.", "doctor. a nurse built the bridge. late.", "long. market of the blue city."]
QUERIES = ["where is the king", "who built the bridge", "what market"]
RUN = pd.DataFrame([{"qid": f"q{q}", "docno": f"d{d}", "score": -float(d), "rank": d} for q in range(3) for d in range(3)])
TOY = Collection(
    "toy",
    corpus=pd.DataFrame({"docno": ["d0", "d1", "d2"], "text": TEXTS}),
    topics={"test": pd.DataFrame({"qid": ["q0", "q1", "q2"], "query": QUERIES})},
    qrels={"test": pd.DataFrame({"qid": ["q0", "q1", "q2"], "docno": ["d0", "d1", "d2"], "label": 1})},
    runs={"bm25": RUN},
)
