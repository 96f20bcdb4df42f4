"""omikuji with its defaults (Parabel, three trees).

It reads the training file itself; `omikuji.Model.train_on_data` is taken apart
here into reading and training, and only the second is counted. It has no seed:
every run is another one.
"""

import sys
import time

import examples
import omikuji
import report
from omikuji import ffi, lib


def train(data: str, path: str, _seed: int, threads: int) -> tuple[float, float]:
    pool = ffi.gc(lib.init_omikuji_thread_pool(threads), lib.free_omikuji_thread_pool)
    examples_read = lib.load_omikuji_data_set(ffi.new("char[]", data.encode()), pool)
    if examples_read == ffi.NULL:
        sys.exit(f"omikuji cannot read {data}")
    start = time.perf_counter()
    model = lib.train_omikuji_model(examples_read, omikuji.Model.default_hyper_param(), pool)
    seconds = time.perf_counter() - start
    if model == ffi.NULL:
        sys.exit("omikuji failed to train")
    memory = report.peak_memory_mb()
    omikuji.Model(model).save(path)
    return seconds, memory


def answer(data: str, path: str, threads: int):
    model = omikuji.Model.load(path)
    model.init_prediction_thread_pool(threads)
    x, _ = examples.load(data)
    rows = [pairs(x, i) for i in range(x.shape[0])]
    # It fails on an example without features: no answer is its answer.
    top = [[label for label, _ in model.predict(row, top_k=5)] if row else [] for row in rows]
    model.init_prediction_thread_pool(1)
    return top, lambda row: model.predict(row, top_k=5), [row for row in rows[: report.LATENCY_EXAMPLES] if row]


def pairs(x, i: int) -> list[tuple[int, float]]:
    first, last = x.indptr[i], x.indptr[i + 1]
    return list(zip(x.indices[first:last].tolist(), x.data[first:last].tolist()))


if __name__ == "__main__":
    report.main("omikuji", train, answer)
