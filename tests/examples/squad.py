"""SQuAD files in miniature."""

import json


def squad_file(path, articles, *, first=0, impossible=False):
    """Articles of three paragraphs with two questions each; three of seven questions are worded like another paragraph."""
    words = "river stone cloud bread music forest silver winter garden letter market shadow candle bridge island".split()
    content, number = [], 0
    for a in range(first, first + articles):
        paragraphs = []
        for p in range(3):
            text = " ".join(f"{words[(a + i) % 15]}{a}{p}" for i in range(6)) + f" answer{a}{p} end."
            questions = []
            for q in range(2):
                own = a if number % 7 in range(2, 6) else a + 1 if a + 1 < first + articles else first
                asked = "please " * (number % 5) + f"what is {words[(own + q) % 15]}{own}{p} {words[(own + q + 1) % 15]}{own}{p}?"
                answer = {"text": f"answer{a}{p}", "answer_start": text.index(f"answer{a}{p}")}
                none = impossible and number % 4 == 0
                answers = [] if none else [answer]
                questions.append({"id": f"q{a}-{p}-{q}", "question": asked, "answers": answers, "is_impossible": none})
                number += 1
            paragraphs.append({"context": text, "qas": questions})
        content.append({"title": f"article {a}", "paragraphs": paragraphs})
    path.write_text(json.dumps({"version": "1.1", "data": content}))
    return path
