"""Model folders that the tests of training share."""

from tests.training.conftest import light_collections, one_thread, tiny  # noqa: F401
