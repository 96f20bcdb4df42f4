"""scikit-learn's own checks of an estimator."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from lookalike import ExtremeClassifier

# Checks train on a few dozen examples of a few classes, so: small batches, a
# high rate, every class scored.
ESTIMATOR = ExtremeClassifier(
    "full", hidden=32, epochs=60, batch=16, lr=0.02, threads=1, settings={"normalise": "none"}
)

# A weight of 2 doubles an example's gradient; twice the example is in other batches too.
BATCHES = "an example that stands twice is in other batches than one of weight 2"
EXCEPTIONS: dict[str, str] = {
    "check_sample_weight_equivalence_on_dense_data": BATCHES,
    "check_sample_weight_equivalence_on_sparse_data": BATCHES,
}


@parametrize_with_checks([ESTIMATOR], expected_failed_checks=lambda _: EXCEPTIONS)
def test_scikit_learns_checks(estimator, check):
    check(estimator)
