"""PECOS XR-Linear with its defaults, on examples that lie in memory.

Training seconds are those of everything between the matrices and the model:
embeddings of the classes, their clustering, and the ranker.
"""

import time

import examples
import numpy
import report
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel

# The default of PECOS's own command.
BEAM = 10


def train(data: str, path: str, seed: int, threads: int) -> tuple[float, float]:
    x, y = examples.load(data)
    start = time.perf_counter()
    embeddings = LabelEmbeddingFactory.create(y, x, method="pifa")
    tree = Indexer.gen(embeddings, indexer_type="hierarchicalkmeans", seed=seed, threads=threads)
    model = XLinearModel.train(x, y, C=tree, threads=threads)
    seconds = time.perf_counter() - start
    memory = report.peak_memory_mb()
    model.save(path)
    return seconds, memory


def answer(data: str, path: str, threads: int):
    model = XLinearModel.load(path, is_predict_only=True)
    x, _ = examples.load(data)
    ranked = model.predict(x, only_topk=5, beam_size=BEAM, threads=threads)
    top = []
    for first, last in zip(ranked.indptr, ranked.indptr[1:]):
        best = numpy.argsort(-ranked.data[first:last], kind="stable")
        top.append(ranked.indices[first:last][best].tolist())
    queries = [x[i] for i in range(min(report.LATENCY_EXAMPLES, x.shape[0]))]
    return top, lambda query: model.predict(query, only_topk=5, beam_size=BEAM, threads=1), queries


if __name__ == "__main__":
    report.main("libpecos", train, answer)
