"""Five short texts whose gendered words are counted by hand, and two rankings of them."""

import pandas as pd

TEXTS = {
    "d1": "He gave him his word.",  # m 3
    "d2": "She is a daughter.",  # f 2
    "d3": "Rain falls.",
    "d4": "His sister and her mother: he knew.",  # m 2, f 3
    "d5": "her",  # f 1
}
CORPUS = pd.DataFrame({"docno": list(TEXTS), "text": list(TEXTS.values())})
TOPICS = pd.DataFrame({"qid": ["1", "2", "3"], "query": ["one", "two", "three"]})
QRELS = pd.DataFrame({"qid": ["1", "2", "3"], "docno": ["d1", "d3", "d5"], "label": 1})


def frame(lists, texts=True):
    rows = [(q, d, float(-i)) for q, docs in lists.items() for i, d in enumerate(docs)]
    out = pd.DataFrame(rows, columns=["qid", "docno", "score"]).merge(TOPICS, on="qid")
    out["rank"] = -out["score"].astype(int)
    return out.merge(CORPUS, on="docno", how="left") if texts else out


ONE = {"1": ["d1", "d2", "d3"], "2": ["d4", "d3"], "3": ["d5", "d1", "d4"]}
TWO = {"1": ["d2", "d3", "d1"], "2": ["d3", "d4"], "3": ["d4", "d5", "d1"]}
