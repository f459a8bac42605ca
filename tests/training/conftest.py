"""Model folders that the tests of training share."""

import gc

import pytest

from tests.rankers.conftest import one_thread, tiny  # noqa: F401


@pytest.fixture(scope="session", autouse=True)
def light_collections():
    """Every run of the trainer collects garbage; what the libraries hold need not be looked through each time."""
    import sentence_transformers  # noqa: F401
    import transformers.trainer  # noqa: F401

    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
